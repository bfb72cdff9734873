"""Blocks of compressed scenes: decoded once for all windows that touch them, in memory that is bounded."""

import math
import threading

import h5py
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from pdenet_cli import Window, open_cube
from pdenet_cli.formats.common import kept
from pdenet_cli.formats.common.kept import KeptBlocks
from pdenet_cli.formats.hdf5.guard import GuardedArray
from pdenet_cli.formats.tiff.segments import SegmentArray
from pdenet_cli.formats.zarr import ZarrArray
from pdenet_cli.models.model import bicubic_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.job import Job, Settings

PIXELS = np.random.default_rng(0).integers(1, 4000, (6, 64, 48), dtype="u2")


class Counted:
    """An array in blocks that counts the values that are read of it."""

    def __init__(self, pixels):
        self.pixels, self.shape, self.values = pixels, pixels.shape, 0

    def __getitem__(self, key):
        part = self.pixels[key]
        self.values += part.size
        return part.copy()


def strips(path, rows):
    """A TIFF with strips of so many rows of one band."""
    form = dict(planarconfig="separate", photometric="minisblack", compression="deflate", rowsperstrip=rows)
    tifffile.imwrite(path, PIXELS, **form)
    return path


def counted(monkeypatch):
    """The strips that are decoded from now on."""
    decoded, segment = [], SegmentArray._segment
    monkeypatch.setattr(SegmentArray, "_segment", lambda *words: decoded.append(words[1:]) or segment(*words))
    return decoded


@pytest.mark.parametrize("rows", [64, 5])
def test_a_strip_is_decoded_once_for_all_tiles(tmp_path, monkeypatch, rows):
    decoded = counted(monkeypatch)
    job = Job(
        strips(tmp_path / "a.tif", rows),
        tmp_path / "fine.tif",
        Posterior(bicubic_model(2), 1),
        Settings(tile=8, quicklook=False),
    )
    assert job.scene.plan.count == 48
    assert list(job.run())
    assert len(decoded) == len({*decoded}) == 6 * math.ceil(64 / rows)


@pytest.mark.parametrize("owner", [GuardedArray, ZarrArray])
def test_a_chunk_is_read_once_for_all_windows(tmp_path, monkeypatch, owner):
    if owner is GuardedArray:
        path = tmp_path / "a.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("cube", data=PIXELS, chunks=(3, 64, 20), compression="gzip")
    else:
        path = tmp_path / "a.zarr"
        pytest.importorskip("zarr").create_array(path, data=PIXELS, chunks=(3, 64, 20))
    sizes, read = [], owner.__getitem__

    def spy(array, key):
        part = read(array, key)
        sizes.append(part.size)
        return part

    with open_cube(path, axes="brc") as cube:
        monkeypatch.setattr(owner, "__getitem__", spy)
        for window in cube.meta.window.blocks(8, 8):
            np.testing.assert_array_equal(cube.read(window), PIXELS[:, *window.slices])
    assert sum(sizes) == PIXELS.size


def test_no_more_than_the_limit_is_kept_and_what_exceeds_it_is_read_as_before(tmp_path, monkeypatch):
    plane = PIXELS[0].nbytes
    monkeypatch.setattr(kept, "KEPT_BYTES", 2 * plane)
    decoded = counted(monkeypatch)
    with open_cube(strips(tmp_path / "a.tif", 64)) as cube:
        for first, stop, fresh in ((0, 2, 2), (0, 1, 0), (2, 3, 1), (0, 1, 0), (1, 2, 1)):
            decoded.clear()
            cube.read(Window(3, 3, 5, 5), slice(first, stop))
            assert len(decoded) == fresh, first  # of all, the one not used for longest has gone
            assert sum(block.nbytes for block in cube.array.kept.values()) <= 2 * plane
        before = list(cube.array.kept)
        np.testing.assert_array_equal(cube.read(), PIXELS)
        assert list(cube.array.kept) == before
    assert not cube.array.kept  # closed


def test_little_is_kept_where_little_memory_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "free_memory", lambda: 8000)
    with open_cube(strips(tmp_path / "a.tif", 64)) as cube:
        assert cube.array.most == 1000


@given(
    st.tuples(*(st.integers(1, 70) for _ in range(3))),
    st.lists(st.tuples(*(st.tuples(st.integers(0, n), st.integers(0, n)) for n in PIXELS.shape)), max_size=8),
    st.sampled_from([PIXELS.nbytes, PIXELS.nbytes // 3, 1000, 0]),
)
def test_any_windows_in_any_order_are_those_of_the_array(block, windows, most):
    source = Counted(PIXELS)
    array = KeptBlocks(source, block, PIXELS.itemsize, most)
    for ends in windows:
        key = tuple(slice(min(pair), max(pair)) for pair in ends)
        np.testing.assert_array_equal(array[key], PIXELS[key])
        assert sum(part.nbytes for part in array.kept.values()) <= most
    if most == PIXELS.nbytes:
        assert source.values <= PIXELS.size


def test_threads_that_share_a_scene_do_not_disturb_each_other():
    array = KeptBlocks(Counted(PIXELS), (2, 7, 9), PIXELS.itemsize, PIXELS.nbytes // 4)
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(100):
                key = tuple(slice(*sorted(rng.integers(0, n + 1, 2))) for n in PIXELS.shape)
                np.testing.assert_array_equal(array[key], PIXELS[key])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
