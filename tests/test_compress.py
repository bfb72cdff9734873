"""Compressed outputs: the same cube in fewer bytes, and Cloud-Optimised GeoTIFFs by an independent judge."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rio_cogeo import cog_validate

from pdenet_cli import create_cube, open_cube
from pdenet_cli.errors import OutputError
from pdenet_cli.files import partial_path
from pdenet_cli.formats import FORMATS, new_output
from tests.command import run
from tests.tiffs import full_meta

SUFFIXES = sorted((form.suffixes[0], method) for form in FORMATS for method in form.compressions)
SIZE = 3, 700, 530


def scene(dtype="<u2", nodata=0.0, **changes):
    """A smooth scene with a hole, as noise cannot be compressed, and its metadata."""
    bands, rows, columns = SIZE
    row, column = np.mgrid[:rows, :columns]
    pixels = np.stack([(row + 2 * column + 100 * band) / 4 + 1 for band in range(bands)]).astype(dtype)
    pixels[:, 100:200, :64] = nodata
    meta = full_meta(dtype=np.dtype(dtype), nodata=nodata, **changes)
    return dataclasses.replace(meta, rows=rows, columns=columns), pixels


def write(path, meta, pixels, **how):
    with create_cube(path, meta, **how) as cube:
        cube.write(meta.window, pixels.astype(pixels.dtype.newbyteorder("=")))
    return open_cube(path)


def size_of(path):
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


@pytest.mark.parametrize(("suffix", "method"), SUFFIXES)
def test_a_compressed_cube_says_what_the_plain_one_says_in_fewer_bytes(tmp_path, suffix, method):
    meta, pixels = scene()
    plain = write(tmp_path / f"plain{suffix}", meta, pixels)
    packed = write(tmp_path / f"packed{suffix}", meta, pixels, compress=method)
    np.testing.assert_array_equal(packed.read(), pixels)
    for field in dataclasses.fields(meta):
        assert repr(getattr(packed.meta, field.name)) == repr(getattr(plain.meta, field.name)), field.name
    assert size_of(packed.path) < 0.6 * pixels.nbytes
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"packed{suffix}", f"plain{suffix}"]


@pytest.mark.parametrize("interleave", ["bsq", "bip"])
@pytest.mark.parametrize(
    ("dtype", "method"), [("<u2", "deflate"), (">i2", "zstd"), ("<f4", "lzw"), (">f8", "zstd")]
)
def test_a_compressed_tiff_is_a_valid_cloud_optimised_one(tmp_path, interleave, dtype, method):
    meta, pixels = scene(dtype, interleave=interleave)
    path = write(tmp_path / "a.tif", meta, pixels, compress=method).path
    valid, errors, warnings = cog_validate(path)
    assert (valid, errors, warnings) == (True, [], [])
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(), pixels)
        assert file.profile["compress"].lower() == method
        assert file.overviews(1) == [2]
        assert file.nodata == 0
        assert file.transform.to_gdal() == pytest.approx(meta.georeference.transform)


@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_overviews_are_means_of_what_has_data(tmp_path, dtype):
    meta, pixels = scene(dtype)
    path = write(tmp_path / "a.tif", meta, pixels, compress="deflate").path
    with rasterio.open(path, overview_level=0) as file:
        coarse = file.read()
    known = np.where(pixels == 0, np.nan, pixels.astype("f8")).reshape(3, 350, 2, 265, 2)
    wanted = np.nan_to_num(np.nansum(known, (2, 4)) / np.maximum(np.isfinite(known).sum((2, 4)), 1))
    np.testing.assert_allclose(coarse, np.rint(wanted) if dtype == "u2" else wanted, rtol=1e-6)


def test_a_format_that_cannot_compress_says_what_can(tmp_path):
    meta, _ = scene()
    for name, method in (("a.hdr", "zstd"), ("a.h5", "lzw"), ("a.tif", "jpeg")):
        with pytest.raises(OutputError, match=f"no `compress` {method}"):
            new_output(tmp_path / name, compress=method).refuse(meta)


def test_a_run_that_was_killed_between_packing_and_tidying_is_finished_by_the_next(tmp_path):
    meta, pixels = scene()
    output = new_output(tmp_path / "a.tif", compress="zstd")
    with output.create(meta) as cube:
        cube.write(meta.window, pixels)
    left = partial_path(tmp_path / "a.tif").read_bytes()
    output.commit(meta)
    packed = (tmp_path / "a.tif").read_bytes()
    partial_path(tmp_path / "a.tif").write_bytes(left)
    output.commit(meta)
    assert (tmp_path / "a.tif").read_bytes() == packed
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]


def test_upscale_compresses_the_cube_and_its_maps(tmp_path):
    meta, pixels = scene()
    source = write(tmp_path / "scene.tif", meta, pixels).path
    part = "--window", 0, 0, 40, 40
    model = "--model", "bicubic", "--scale", 2, "--ensemble", "flips", "--samples", 2
    plain, packed = tmp_path / "plain.tif", tmp_path / "packed.tif"
    for path, more in ((plain, ()), (packed, ("--compress", "zstd"))):
        done = run("upscale", source, "-o", path, *part, *model, *more)
        assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(open_cube(packed).read(), open_cube(plain).read())
    assert packed.stat().st_size < plain.stat().st_size
    done = run("upscale", source, "-o", tmp_path / "fine.img", *part, *model, "--compress", "zstd")
    assert (done.returncode, "--compress zstd" in done.stderr) == (OutputError.exit_code, True)
    assert not Path(tmp_path / "fine.img").exists()
