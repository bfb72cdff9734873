"""One contract for every format that is written: what goes in by windows comes out whole, with all it said."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, Window, create_cube, open_cube, system
from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.formats import FORMATS, new_output
from pdenet_cli.formats.common import raw
from pdenet_cli.formats.common.choosing import Variable, choose_axes, listed
from pdenet_cli.formats.tiff.segments import SegmentArray
from pdenet_cli.scene.georeference import Georeference
from tests.conftest import PEAK, on_linux
from tests.cubes import written
from tests.stores import make

WRITTEN = [suffix for f in FORMATS if f.create is not None for suffix in f.suffixes[:1]] + [".nc", ".dat"]
DTYPES = ["u1", "<i2", ">i2", "<u2", ">u2", "<i4", "<u4", "<f4", ">f4", "<f8", "<i8", "<u8"]

UTM = Georeference(transform=(500000.0, 30.0, 0.0, 4649000.0, 0.0, -30.0), crs="EPSG:32616")


def full_meta(bands: int, rows: int, columns: int, dtype: str, interleave: str = "bsq") -> CubeMeta:
    return CubeMeta(
        bands,
        rows,
        columns,
        np.dtype(dtype),
        interleave=interleave,
        wavelengths=tuple(400.5 + 10 * b for b in range(bands)),
        wavelength_units="Nanometers",
        fwhm=tuple(9.5 + b / 8 for b in range(bands)),
        good_bands=tuple(b % 3 != 1 for b in range(bands)),
        band_names=tuple(f"band {b + 1}" for b in range(bands)),
        default_bands=(bands - 1, bands // 2, 0),
        nodata=0.0,
        reflectance_scale=10000.0,
        georeference=UTM,
        extra={"sensor type": "Made up", "acquisition time": "2024-06-01T10:00:00Z"},
    )


shapes = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


@pytest.mark.parametrize("suffix", WRITTEN)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=shapes,
    dtype=st.sampled_from(DTYPES),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    cut=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 99),
)
def test_what_is_written_by_windows_is_read_back_whole_and_by_windows(
    suffix, shape, dtype, interleave, cut, seed, tmp_path_factory
):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 255, shape).astype(dtype)
    path = tmp_path_factory.mktemp("cube") / f"scene{suffix}"
    meta = full_meta(*shape, dtype, interleave)
    with create_cube(path, meta) as cube:
        for window in meta.window.blocks(*cut):
            cube.write(window, pixels[(slice(None), *window.slices)])

    with open_cube(path) as cube:
        assert cube.meta.shape() == shape
        whole = cube.read()
        assert whole.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(whole, pixels)
        for window in meta.window.blocks(*reversed(cut)):
            np.testing.assert_array_equal(cube.read(window), pixels[(slice(None), *window.slices)])
        some = slice(shape[0] // 2, None)
        np.testing.assert_array_equal(cube.read(bands=some), pixels[some])


@pytest.mark.parametrize("suffix", WRITTEN)
def test_all_that_a_cube_says_of_itself_survives(suffix, tmp_path):
    meta = full_meta(6, 4, 5, "<u2").upscaled(4)
    with create_cube(tmp_path / f"a{suffix}", meta):
        pass
    with open_cube(tmp_path / f"a{suffix}") as cube:
        found = cube.meta
    for name in ("wavelengths", "fwhm", "good_bands", "band_names", "default_bands", "nodata"):
        assert getattr(found, name) == getattr(meta, name), name
    assert found.reflectance_scale == 10000.0
    assert "nano" in found.wavelength_units.lower() or found.wavelength_units.lower() == "nm"
    assert found.georeference.transform == pytest.approx(meta.georeference.transform, rel=1e-12)
    assert "32616" in found.georeference.crs or "UTM" in found.georeference.crs
    assert found.extra["sensor type"] == "Made up"
    assert found.extra["acquisition time"] == "2024-06-01T10:00:00Z"


@pytest.mark.parametrize("second", WRITTEN)
@pytest.mark.parametrize("first", WRITTEN)
def test_metadata_survive_from_any_format_to_any_other(first, second, tmp_path):
    meta = full_meta(4, 3, 5, "<i2")
    with create_cube(tmp_path / f"a{first}", meta):
        pass
    with open_cube(tmp_path / f"a{first}") as cube, create_cube(tmp_path / f"b{second}", cube.meta):
        pass
    with open_cube(tmp_path / f"b{second}") as cube:
        found = cube.meta
    assert found.wavelengths == meta.wavelengths
    assert found.good_bands == meta.good_bands
    assert found.nodata == meta.nodata
    assert found.georeference.transform == pytest.approx(meta.georeference.transform, rel=1e-12)
    assert found.extra["acquisition time"] == "2024-06-01T10:00:00Z"


@pytest.mark.parametrize("suffix", WRITTEN)
def test_the_same_cube_gives_the_same_bytes(suffix, tmp_path):
    meta = full_meta(3, 4, 5, "<f4")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with create_cube(tmp_path / name / f"cube{suffix}", meta) as cube:
            cube.write(meta.window, np.ones(meta.shape(), "f4"))
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_failed_write_leaves_nothing_behind(suffix, tmp_path):
    with pytest.raises(ZeroDivisionError), create_cube(tmp_path / f"a{suffix}", full_meta(3, 4, 5, "<u2")):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", WRITTEN)
def test_what_lies_outside_or_would_change_a_scene_is_refused(suffix, make_cube, tmp_path):
    path, pixels = make_cube(f"scene{suffix}")
    bytes_before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with open_cube(path) as cube:
        with pytest.raises(OutputError, match="never changed"):
            cube.write(Window(0, 0, 1, 1), pixels[:, :1, :1])
        for window in (Window(-1, 0, 2, 2), Window(8, 0, 2, 2), Window(0, 6, 1, 2), Window(0, 0, -1, 2)):
            with pytest.raises(UsageError, match="not within its 9 x 7 pixels"):
                cube.read(window)
        np.testing.assert_array_equal(cube.read(bands=slice(None, 1, -2)), pixels[:1:-2])
        for bands in ([-1], [0, 5]):
            with pytest.raises(UsageError, match="bands"):
                cube.read(bands=bands)
        assert cube.read(bands=[]).shape == (0, 9, 7)
        np.testing.assert_array_equal(cube.read(bands=slice(0, 5, 2)), pixels[::2])
        np.testing.assert_array_equal(cube.with_bands(slice(1, 5)).read(bands=slice(0, 4, 3)), pixels[1::3])
    assert bytes_before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match="of shape"), create_cube(tmp_path / f"b{suffix}", cube.meta) as new:
        new.write(Window(0, 0, 2, 2), pixels[:, :1, :1])


@pytest.mark.parametrize(
    ("pixels", "dtype"),
    [
        (np.array([0.9, -1.0, 70000.0]), "<u2"),
        (np.array([1, -2, 3], "i8"), "u2"),
        (np.array([1, 1e300, 3]), "<f4"),
        (np.array([1, 2, 70000], "u4"), "<u2"),
        (np.array([1, -40000, 3], "i4"), ">i2"),
        (np.array([1j, 2, 3]), "<f4"),
    ],
)
@pytest.mark.parametrize("suffix", WRITTEN)
def test_numbers_that_would_become_others_are_refused(suffix, pixels, dtype, tmp_path):
    meta = CubeMeta(1, 1, 3, np.dtype(dtype))
    with pytest.raises(UsageError, match="do not fit"), create_cube(tmp_path / f"a{suffix}", meta) as cube:
        cube.write(meta.window, pixels[None, None])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "dtype"),
    [("u1", ">u2"), ("<u4", "<u2"), (">i8", "<i2"), ("u2", "f4"), ("f8", "f4"), ("u1", "i1"), ("i8", "u2")],
)
@pytest.mark.parametrize("suffix", WRITTEN)
def test_numbers_that_another_type_holds_are_written(suffix, given, dtype, tmp_path):
    meta = CubeMeta(1, 1, 3, np.dtype(dtype))
    if np.dtype(dtype) == np.int8 and suffix in (".hdr", ".dat"):
        pytest.skip("ENVI has no such numbers")
    with create_cube(tmp_path / f"a{suffix}", meta) as cube:
        cube.write(meta.window, np.array([[[1, 2, 100]]], given))
    with open_cube(tmp_path / f"a{suffix}") as cube:
        assert cube.read().ravel().tolist() == [1, 2, 100]


@pytest.mark.parametrize("suffix", WRITTEN)
def test_an_existing_output_is_refused_and_kept_unless_told_otherwise(suffix, tmp_path):
    path, meta = tmp_path / f"a{suffix}", full_meta(3, 4, 5, "<u2")
    for overwrite, value in ((False, 1), (True, 2)):
        with create_cube(path, meta, overwrite=overwrite) as cube:
            cube.write(meta.window, np.full(meta.shape(), value, "u2"))
    with pytest.raises(OutputError, match="exists"), create_cube(path, meta):
        pass
    with open_cube(path) as cube:
        assert (cube.read() == 2).all()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_folder_is_not_replaced_by_a_cube_of_its_name(suffix, overwrite, tmp_path):
    meta = full_meta(3, 4, 5, "<u2")
    for name in (f"a{suffix}", "b.hdr") if suffix == ".dat" else (f"a{suffix}",):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("mine")
        path = tmp_path / f"{name[0]}{suffix}"
        with pytest.raises(OutputError, match="is a folder"), create_cube(path, meta, overwrite=overwrite):
            pass
        assert (tmp_path / name / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("there", ["a file", "a link to a store", "a link to a file", "a link to nowhere"])
def test_a_store_replaces_a_file_or_a_link_of_its_name(there, tmp_path):
    meta = full_meta(3, 4, 5, "<u2")
    path, other = tmp_path / "a.zarr", tmp_path / "other.zarr"
    if there == "a link to a store":
        with create_cube(other, meta) as cube:
            cube.write(meta.window, np.full(meta.shape(), 1, "u2"))
    elif there != "a link to nowhere":
        other.write_text("mine")
    other.rename(path) if there == "a file" else path.symlink_to(other)
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, np.full(meta.shape(), 2, "u2"))
    with open_cube(path) as cube:
        assert (cube.read() == 2).all()
    assert not path.is_symlink()
    if there == "a link to a store":
        with open_cube(other) as cube:
            assert (cube.read() == 1).all()
    assert [p.name for p in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("gap", [1, raw.GAP])
@pytest.mark.parametrize("suffix", WRITTEN)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    step=st.integers(1, 9),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    corner=st.tuples(st.integers(0, 8), st.integers(0, 6)),
    bands=st.sampled_from([slice(None), slice(2, 3), slice(1, 4, 2)]),
)
def test_every_nth_pixel_is_the_same_however_it_is_read(
    tmp_path_factory, monkeypatch, gap, suffix, step, interleave, corner, bands
):
    monkeypatch.setattr(raw, "GAP", gap)
    pixels = np.random.default_rng(0).integers(1, 999, (5, 9, 7)).astype(">u2")
    path = written(tmp_path_factory.mktemp("cube") / f"a{suffix}", pixels, interleave=interleave)
    row, column = corner
    window = Window(row, column, 9 - row, 7 - column)
    with open_cube(path) as cube:
        for some in (cube, cube.with_bands(slice(0, 5))):
            got = some.thinned(step, window, bands)
            np.testing.assert_array_equal(got, pixels[bands, row::step, column::step])


@on_linux
@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_a_plain_file_is_read_only_where_every_nth_pixel_is(tmp_path, interleave):
    meta = CubeMeta(4, 600, 256, np.dtype("<f4"), interleave=interleave)
    with create_cube(tmp_path / "a.hdr", meta):
        pass
    with open_cube(tmp_path / "a.hdr") as cube:
        before = _bytes_read()
        cube.thinned(300)
        assert 0 < _bytes_read() - before < meta.nbytes // 100


def _bytes_read():
    """What this process has read so far, but for what it has mapped."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_segments_without_a_wanted_row_are_not_decoded(tmp_path, monkeypatch):
    pixels = np.arange(3 * 64 * 8, dtype="<u2").reshape(3, 64, 8)
    how = dict(planarconfig="separate", photometric="minisblack", compression="zlib")
    tifffile.imwrite(tmp_path / "a.tif", pixels, rowsperstrip=4, **how)
    decoded, segment = [], SegmentArray._segment
    monkeypatch.setattr(SegmentArray, "_segment", lambda *words: decoded.append(words[1:]) or segment(*words))
    with open_cube(tmp_path / "a.tif") as cube:
        assert cube.meta.shape() == pixels.shape
        np.testing.assert_array_equal(cube.thinned(32, bands=slice(0, 1)), pixels[:1, ::32, ::32])
    assert len(decoded) == 2


CANNOT = [(".hdr", "f2"), (".mat", "f2"), (".nc", "f2"), (".tif", "?"), (".h5", "c8"), (".zarr", "c8")]


@pytest.mark.parametrize(("suffix", "dtype"), CANNOT)
def test_numbers_that_a_format_cannot_hold_are_refused_before_a_file_is_made(tmp_path, suffix, dtype):
    output = new_output(tmp_path / f"a{suffix}")
    with pytest.raises(OutputError, match=np.dtype(dtype).name):
        output.refuse(CubeMeta(3, 4, 5, np.dtype(dtype)))
    assert list(tmp_path.iterdir()) == []


def test_a_store_or_folder_that_came_meanwhile_is_not_replaced_by_a_file(tmp_path):
    meta = full_meta(3, 4, 5, "<u2")
    refused = pytest.raises(OutputError, match="is a folder")
    with refused, create_cube(tmp_path / "a.tif", meta, overwrite=True):
        (tmp_path / "a.tif").mkdir()
        (tmp_path / "a.tif" / "zarr.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".mat", ".tif", ".hdr"])
def test_cubes_are_whole_where_the_system_reserves_no_room(tmp_path, monkeypatch, suffix):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    meta = CubeMeta(3, 5, 4, np.dtype("<u2"), wavelengths=(400.0, 500.0, 600.0), extra={"words": "a" * 3000})
    pixels = np.arange(60, dtype="<u2").reshape(3, 5, 4)
    with create_cube(tmp_path / f"a{suffix}", meta) as cube:
        cube.write(meta.window, pixels)
    with open_cube(tmp_path / f"a{suffix}") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
        assert cube.meta.wavelengths == meta.wavelengths


def answering(code):
    """A way to reserve room that a file system of another kind has."""
    fcntl = pytest.importorskip("fcntl")

    def reserve(descriptor, offset, size):
        # Where the system cannot, the C library writes to every block, which it does not in a file that appends.
        if code is not None or fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            raise OSError(code or errno.EBADF, os.strerror(code or errno.EBADF))
        os.ftruncate(descriptor, max(offset + size, os.fstat(descriptor).st_size))

    return reserve


@pytest.mark.parametrize("code", [None, errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("suffix", [".h5", ".mat", ".tif", ".hdr"])
def test_cubes_are_written_where_the_file_system_reserves_no_room(tmp_path, monkeypatch, suffix, code):
    monkeypatch.setattr(os, "posix_fallocate", answering(code), raising=False)
    meta = CubeMeta(3, 5, 4, np.dtype("<u2"), extra={"words": "a" * 3000})
    pixels = np.arange(60, dtype="<u2").reshape(3, 5, 4)
    with create_cube(tmp_path / f"a{suffix}", meta) as cube:
        cube.write(meta.window, pixels)
    with open_cube(tmp_path / f"a{suffix}") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)


def test_a_disk_too_full_to_reserve_room_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", answering(errno.ENOSPC), raising=False)
    says = pytest.raises(OutputError, match=os.strerror(errno.ENOSPC))
    with says, create_cube(tmp_path / "a.tif", CubeMeta(3, 5, 4, np.dtype("<u2"))):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_or_folder_is_refused_before_any_work(tmp_path):
    meta = full_meta(3, 4, 5, "<u2")
    with pytest.raises(OutputError, match="suffix"), create_cube(tmp_path / "a.xyz", meta):
        pass
    with pytest.raises(OutputError, match="not a folder"), create_cube(tmp_path / "none" / "a.hdr", meta):
        pass


@on_linux
def test_a_window_of_a_sparse_eight_gigabyte_cube_takes_little_memory(tmp_path):
    meta = CubeMeta(200, 4472, 4472, np.dtype("<u2"), interleave="bil")
    assert meta.nbytes > 7.9e9
    header, data = tmp_path / "big.hdr", tmp_path / "big.img"
    small = dataclasses.replace(meta, rows=1, columns=1)
    with create_cube(header, small):
        pass
    text = header.read_text().replace("samples = 1\n", "samples = 4472\n").replace("lines = 1\n", "lines = 4472\n")
    header.write_text(text)
    os.truncate(data, meta.nbytes)
    script = PEAK + (
        "import sys\n"
        "from pdenet_cli import open_cube, Window\n"
        "cube = open_cube(sys.argv[1])\n"
        "before = peak()\n"
        "pixels = cube.read(Window(4000, 4000, 64, 64))\n"
        "assert pixels.shape == (200, 64, 64) and not pixels.any()\n"
        "print(peak() - before)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(header)], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 200 * 1024  # kB


def test_a_missing_empty_or_unknown_file_is_named(tmp_path):
    (tmp_path / "empty.tif").write_bytes(b"")
    (tmp_path / "notes.xyz").write_text("hello, world")
    for folder in ("folder", "hidden"):
        (tmp_path / folder).mkdir()
    (tmp_path / "hidden/.DS_Store").write_text("of the system")
    for name, says in (
        ("gone.hdr", "no such file"),
        ("empty.tif", "empty"),
        ("notes.xyz", "not a cube"),
        ("folder", r"folder: an empty folder\. A cube is a file, a Zarr folder or a folder of PNGs\.$"),
        ("hidden", "an empty folder"),
    ):
        with pytest.raises(FormatError, match=says):
            open_cube(tmp_path / name)


@pytest.mark.parametrize(("name", "said"), [("a.tif", "TIFF"), ("a.hdr", "ENVI")])
def test_a_variable_of_a_format_that_has_none_is_told_of(make_cube, name, said):
    path, _ = make_cube(name)
    assert open_cube(path).meta.notes == ()
    assert open_cube(path, variable="foo").meta.notes == (
        f"`variable` foo is ignored: {said} holds a single unnamed array",
    )


@pytest.mark.parametrize(
    ("names", "advised"),
    [(("a.hdr", "a.img"), "*.hdr"), (("a.TIF", "notes.txt"), "*.TIF"), (("a.b", ".c.tif"), "*")],
)
def test_who_gives_a_folder_is_told_how_to_give_the_cubes_in_it(tmp_path, names, advised):
    for name in names:
        (tmp_path / name).write_text("something")
    with pytest.raises(FormatError) as error:
        open_cube(tmp_path)
    assert str(error.value).endswith(f"a folder, not a cube. Name what is in it, for example {tmp_path / advised}")


@pytest.mark.parametrize("suffix", [".mat", ".h5", ".nc", ".zarr"])
@pytest.mark.parametrize(
    ("name", "field"), [("wl", "wavelengths"), ("bands", "wavelengths"), ("fwhm", "fwhm"), ("bbl", "good_bands")]
)
def test_a_list_of_the_wrong_length_is_dropped_and_noted(name, field, suffix, tmp_path):
    cube, path = np.ones((5, 5, 4), "u1"), tmp_path / f"a{suffix}"
    values = np.array([1.0, 1, 0] if name == "bbl" else [400.0, 500, 600])
    if suffix == ".mat":
        scipy.io.savemat(path, {"cube": cube, name: values})
    elif suffix == ".zarr":
        group = pytest.importorskip("zarr").open_group(path, mode="w")
        group["cube"], group[name] = cube, values
    else:
        make(path, **{"cube": cube, f"info__{name}": values})
    meta = open_cube(path).meta
    assert getattr(meta, field) is None
    told = suffix == ".mat" or name != "bands"  # only in MAT files
    assert (f"{field} ignored: 3 entries for 4 bands" in meta.notes) == told
    assert "read as the wavelengths" not in " ".join(meta.notes)


@pytest.mark.parametrize("suffix", [".mat", ".h5"])
def test_a_list_of_the_right_length_beside_another_is_used(suffix, tmp_path):
    contents = dict(cube=np.ones((5, 5, 4), "u1"), wavelength=np.arange(400.0, 403), wl=np.arange(500.0, 504))
    scipy.io.savemat(tmp_path / "a.mat", contents)
    make(tmp_path / "a.h5", **contents)
    meta = open_cube(tmp_path / f"a{suffix}").meta
    assert meta.wavelengths == (500, 501, 502, 503)
    assert "ignored" not in " ".join(meta.notes)


windows = st.builds(Window, st.integers(0, 30), st.integers(0, 30), st.integers(1, 20), st.integers(1, 20))


@given(
    window=windows,
    margin=st.integers(0, 12),
    factor=st.integers(1, 8),
)
def test_windows_grow_inside_the_scene_and_scale_with_their_parts(window, margin, factor):
    scene = Window(0, 0, 50, 50)
    grown = window.grown(margin, within=scene)
    assert grown.row <= window.row
    assert grown.right >= window.right
    assert grown.grown(0, within=scene) == grown
    inner = window.relative_to(grown)
    ground = np.arange(2500).reshape(50, 50)
    np.testing.assert_array_equal(ground[grown.slices][inner.slices], ground[window.slices])
    assert window.scaled(factor).relative_to(grown.scaled(factor)) == inner.scaled(factor)
    assert window.scaled(factor).coarsened(factor) == window
    assert inner.moved(grown.row, grown.column) == window


@given(one=windows, other=windows)
def test_windows_overlap_where_a_pixel_is_in_both(one, other):
    count = np.zeros((50, 50), int)
    count[one.slices] += 1
    assert count.sum() == one.pixels
    count[other.slices] += 1
    assert one.overlaps(other) == other.overlaps(one) == (count == 2).any()


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), cut=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_blocks_cover_a_window_once(rows, columns, cut):
    count = np.zeros((rows + 3, columns + 2), int)
    for block in Window(3, 2, rows, columns).blocks(*cut):
        count[block.slices] += 1
    assert (count[3:, 2:] == 1).all()
    assert count.sum() == rows * columns


def test_memory_is_what_the_control_group_leaves(tmp_path):
    groups, own = tmp_path / "cgroup", tmp_path / "cgroup" / "job" / "step"
    own.mkdir(parents=True)
    for folder, limit, used in ((own, "max", 10), (own.parent, "1000", 300)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("anon 200\ninactive_file 100\n")
    (tmp_path / "membership").write_text("0::/job/step\n")
    assert system._free_of_group(tmp_path / "membership", groups) == 800
    (tmp_path / "membership").write_text("0::/other\n")
    assert system._free_of_group(tmp_path / "membership", groups) == sys.maxsize
    assert system._free_of_group(tmp_path / "none", groups) == sys.maxsize


def test_memory_is_asked_for_where_each_system_tells_it(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 7 kB\n")
    assert system._free_of_machine(tmp_path / "meminfo") == 7 * 1024
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert system._free_of_machine(tmp_path / "none") == 500 * 4096
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\n")
    assert system._free_of_machine(tmp_path / "meminfo") == 500 * 4096
    monkeypatch.delattr(os, "sysconf")
    assert system._free_of_machine(tmp_path / "none") == 4 << 30


@pytest.mark.parametrize(
    ("unit", "first"),
    [
        *(
            (unit, 550.0)
            for unit in (
                "Nanometers",
                "nm",
                "nanometre",
                None,
                "Unknown",
                "nm (vacuum)",
                "[nm]",
                "Wavelength (nm)",
                "nm - air",
            )
        ),
        *((unit, 0.55) for unit in ("Micrometers", "um", "µm", "microns", "", "unknown")),
        *((unit, 5500.0) for unit in ("Angstroms", "Å")),
        *((unit, 5.5e-7) for unit in ("Meters", "m", None)),
        ("mm", 5.5e-4),
    ],
)
def test_wavelengths_are_nanometres_whatever_their_unit(unit, first):
    meta = CubeMeta(2, 1, 1, np.dtype("u1"), wavelengths=(first, 2 * first), wavelength_units=unit)
    np.testing.assert_allclose(meta.wavelengths_nm, [550, 1100])


@pytest.mark.parametrize("unit", ["Wavenumber", "GHz", "MHz", "Index", "cm-1", "cm^-1", "1/cm", "cm⁻¹"])
def test_what_is_no_length_is_no_wavelength(unit):
    assert CubeMeta(1, 1, 1, np.dtype("u1"), wavelengths=(550.0,), wavelength_units=unit).wavelengths_nm is None


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("odd", [{"bands": 0}, {"rows": 0}, {"interleave": "foo"}])
def test_what_is_no_cube_is_not_written(suffix, odd, tmp_path):
    meta = dataclasses.replace(CubeMeta(2, 3, 4, np.dtype("u1")), **odd)
    with pytest.raises(OutputError, match="no cube can be made of"), create_cube(tmp_path / f"a{suffix}", meta):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("dtype", ["<c8", "?", "<f2"])
def test_what_is_written_can_be_read_or_is_refused(suffix, dtype, tmp_path):
    pixels = np.arange(24).reshape(2, 3, 4).astype(dtype)
    try:
        written(tmp_path / f"a{suffix}", pixels)
    except OutputError:
        assert not list(tmp_path.iterdir())
    else:
        np.testing.assert_array_equal(open_cube(tmp_path / f"a{suffix}").read(), pixels)


@pytest.mark.parametrize("suffix", [".hdr", ".tif", ".mat", ".h5", ".zarr"])
@pytest.mark.parametrize("axes", ["xyz", "bbr", "br", "brcb"])
def test_axes_that_are_none_are_refused(suffix, axes, make_cube):
    with pytest.raises(UsageError, match="once each"):
        open_cube(make_cube(f"a{suffix}")[0], axes=axes)


@pytest.mark.parametrize("suffix", [".hdr", ".tif"])
def test_axes_that_are_told_override_a_file_and_that_is_said(suffix, tmp_path):
    pixels = np.arange(5 * 9 * 7, dtype="u2").reshape(5, 9, 7)
    path = written(tmp_path / f"a{suffix}", pixels, interleave="bip")
    assert open_cube(path, axes="rcb").meta == open_cube(path).meta
    cube = open_cube(path, axes="brc")
    sizes = (5, 9, 7) if suffix == ".hdr" else (9, 7, 5)  # a header says the number of bands itself
    np.testing.assert_array_equal(cube.read(), pixels.transpose(1, 2, 0).reshape(sizes))
    assert cube.meta.interleave == "bsq"
    assert cube.meta.notes == (
        "read as bands x rows x columns, as `axes` says; the file itself says rows x columns x bands",
    )


@pytest.mark.parametrize("suffix", [".h5", ".nc"])
def test_a_closed_file_is_not_called_damaged(suffix, make_cube):
    with open_cube(make_cube(f"a{suffix}")[0]) as cube:
        pass
    with pytest.raises(FormatError, match="after it was closed"):
        cube.read()


@pytest.mark.parametrize(
    ("names", "axes"),
    [
        (("/group/Y", "/group/X", "/group/Wavelength"), "rcb"),
        (("swir_bands", "here", "there"), "brc"),
        (("lat", "lon", "depth"), "rcb"),  # the one that is left
        (("here", "wavelength", "there"), "rbc"),
        (("here", "there", "elsewhere"), None),
        (("y", "x", "x"), None),
    ],
)
def test_the_names_of_dimensions_tell_the_axes(names, axes):
    variable = Variable("cube", (4, 5, 6), np.dtype("f4"))
    if axes is not None:
        assert choose_axes(Path("a.nc"), variable, None, (), names=names) == (axes, ())
    else:
        with pytest.raises(FormatError, match="`axes`"):
            choose_axes(Path("a.nc"), variable, None, (), names=names)


def test_of_many_variables_eight_are_listed():
    variables = [Variable(f"v{i}", (2, 3, 4), np.dtype("u1")) for i in range(11)]
    assert listed(variables[:8]).endswith("v7 (2, 3, 4) uint8")
    assert listed(variables).endswith("v7 (2, 3, 4) uint8 and 3 more")
