"""What lies beside or inside a scene may be a pipe, a link, far too large or a lie: a line or a note, and soon."""

import json
import os
import time
from dataclasses import asdict, replace

import h5py
import imagecodecs
import numpy as np
import pytest
import tifffile

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.errors import FormatError, ModelError
from pdenet_cli.models.model import Model, load_model, save_model
from pdenet_cli.models.networks.pdenet import PDENet
from pdenet_cli.models.spec import ModelSpec
from tests.cubes import written
from tests.fuzz.seeds import _tiff_beside, _zarr
from tests.stores import numbers

BESIDE = ("ENMAP01-METADATA.XML", "ENMAP01-SPECTRAL_IMAGE.TIF.aux.xml", "ENMAP01-SPECTRAL_IMAGE.tfw")


@pytest.fixture(autouse=True)
def _soon():
    """Nothing here may wait for another program, or work for long."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 20


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("what", ["pipe", "folder", "link in a circle", "link to a device"])
def test_what_lies_beside_a_picture_and_is_no_file_is_left_alone(name, what, tmp_path):
    picture, beside = _tiff_beside(tmp_path), tmp_path / name
    beside.unlink()
    if what == "pipe":
        os.mkfifo(beside)
    elif what == "folder":
        beside.mkdir()
    else:
        beside.symlink_to("/dev/zero" if what == "link to a device" else beside)
    with open_cube(picture) as cube:
        assert cube.read().any()
        assert cube.meta.wavelengths is None or name != BESIDE[0]


@pytest.mark.parametrize("name", BESIDE)
def test_metadata_of_gigabytes_are_not_read(name, tmp_path):
    picture = _tiff_beside(tmp_path)
    os.truncate(tmp_path / name, 3 << 30)
    with open_cube(picture) as cube:
        assert cube.read().any()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("part", ["header", "chunk", "attributes"])
def test_a_pipe_inside_a_zarr_folder_is_refused(version, part, tmp_path):
    pytest.importorskip("zarr")
    cube = _zarr(tmp_path, zarr_format=version, chunks=(4, 6, 5)) / "cube"
    names = {"header": ".zarray", "chunk": "0.0.0", "attributes": ".zattrs"}
    names = names if version == 2 else dict.fromkeys(names, "zarr.json") | {"chunk": "c/0/0/0"}
    (cube / names[part]).unlink()
    os.mkfifo(cube / names[part])
    with pytest.raises(FormatError):
        open_cube(tmp_path / "scene.zarr").read()


@pytest.mark.parametrize("name", ["scene.img", "scene.hdr"])
def test_an_envi_cube_of_pipes_is_refused(name, tmp_path):
    scene = written(tmp_path / "scene.hdr", numbers((3, 5, 4)))
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(FormatError):
        open_cube(scene)


def test_the_data_and_the_header_of_an_envi_cube_may_be_links(tmp_path):
    (tmp_path / "archive").mkdir()
    written(tmp_path / "archive" / "scene.hdr", numbers((3, 5, 4)))
    for name in ("scene.hdr", "scene.img"):
        (tmp_path / name).symlink_to(tmp_path / "archive" / name)
    np.testing.assert_array_equal(open_cube(tmp_path / "scene.hdr").read(), numbers((3, 5, 4)))


def test_pictures_too_large_to_be_bands_are_refused_by_their_heads(tmp_path):
    head = bytearray(imagecodecs.png_encode(np.zeros((8, 8), "u1")))
    head[16:24] = (30_000).to_bytes(4, "big") * 2
    for number in range(4):
        (tmp_path / f"a_{number}.png").write_bytes(head + bytes(2 << 20))
    with pytest.raises(FormatError, match="too many for a PNG"):
        open_cube(tmp_path)


def test_libpng_keeps_its_warnings_to_itself(tmp_path, capfd):
    whole = imagecodecs.png_encode(numbers((9, 8), "u1"))
    place = whole.index(b"IDAT") - 4
    odd = b"\0\0\0\4gAMA\0\0\0\0" + b"\0\0\0\0"  # a wrong checksum
    for number in range(3):
        (tmp_path / f"a_{number}.png").write_bytes(whole[:place] + odd + whole[place:])
    with open_cube(tmp_path) as cube:
        cube.read()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("size", [100, 60_000, 8 << 20])
def test_a_coordinate_system_of_megabytes_takes_no_time(size, tmp_path):
    scene = written(tmp_path / "scene.hdr", numbers((3, 5, 4)))
    with scene.open("a") as file:
        file.write("map info = {UTM, 1, 1, 5e5, 4.6e6, 30, 30, 16, North, WGS-84}\n")
        file.write("coordinate system string = {PROJCS[" + 'A["B",' * (size // 6) + "}\n")
    began = time.process_time()
    with open_cube(scene) as cube:
        assert cube.read().any()
    assert time.process_time() - began < 3


@pytest.mark.parametrize("predictor", [2, 3])
@pytest.mark.parametrize(
    "layout", [dict(planarconfig="contig"), dict(rowsperstrip=3), dict(tile=(16, 16))], ids=str
)
def test_a_predictor_of_uncompressed_pixels_means_nothing_and_crashes_nothing(predictor, layout, tmp_path):
    pixels = numbers((1, 20, 40), "u2" if predictor == 2 else "f4")
    about = dict(photometric="minisblack", metadata=None, extratags=[(317, 3, 1, predictor, True)])
    tifffile.imwrite(tmp_path / "a.tif", pixels[0], **about, **layout)
    with open_cube(tmp_path / "a.tif") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)  # as GDAL reads it


@pytest.mark.parametrize("value", ["text", np.arange(3), np.zeros((3, 2)), np.int64(1 << 60)], ids=str)
@pytest.mark.parametrize("name", ["DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST", "CLASS"])
def test_dimension_scales_of_another_type_crash_nothing(name, value, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["cube"] = numbers((3, 5, 4))
        file["cube"].attrs[name] = value
    with open_cube(tmp_path / "a.h5", axes="brc") as cube:
        np.testing.assert_array_equal(cube.read(), numbers((3, 5, 4)))


def weights(path, change):
    config = replace(PDENet.configs["tiny"], stages=1, units=2)
    model = Model(ModelSpec("pdenet", asdict(config), 4, {}, "test"), PDENet(config))
    save_model(path, model)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, numbers_ = json.loads(content[8 : 8 + length]), np.frombuffer(content[8 + length :], "<f4").copy()
    spec = json.loads(header["__metadata__"]["pdenet"])
    change(spec, numbers_)
    header["__metadata__"]["pdenet"] = json.dumps(spec)
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + numbers_.tobytes())
    return path


@pytest.mark.parametrize(
    "value", [1e308, -1e308, 1e30, "9" * 5000, [], {}, None, True, float("nan")], ids=lambda v: str(v)[:9]
)
@pytest.mark.parametrize("name", ["mask_start", "width", "stages", "scale", "kernel", "unknown"])
def test_absurd_configurations_of_weights_are_one_line(name, value, tmp_path):
    path = weights(tmp_path / "a.safetensors", lambda spec, numbers: spec["config"].update({name: value}))
    if (name, value) in (("mask_start", None), ("mask_start", True), ("stages", True)):
        return  # True is 1, and None a way to start
    with pytest.raises(ModelError) as error:
        load_model(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [3e38, -3e38, np.nan, np.inf, 1e7])
def test_weights_that_no_training_gives_are_refused(value, tmp_path):
    path = weights(tmp_path / "a.safetensors", lambda spec, numbers: numbers.fill(value))
    with pytest.raises(ModelError, match="no training gives"):
        load_model(path)


def test_a_model_that_gives_no_numbers_is_one_line_and_leaves_nothing(tmp_path, pdenet):
    path = weights(tmp_path / "a.safetensors", lambda spec, numbers: numbers.fill(9e5))
    scene = written(tmp_path / "scene.hdr", numbers((3, 8, 8)))
    ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", "--model", path, "--samples", 1)
    assert ran.returncode == 4, ran.stderr
    assert "not finite" in " ".join(ran.stderr.split())
    assert not list(tmp_path.glob("*fine*"))


@pytest.mark.parametrize("suffix", ["hdr", "tif", "h5", "zarr"])
def test_numbers_at_the_end_of_their_range_print_nothing(suffix, tmp_path, pdenet):
    pixels = np.random.default_rng(0).choice([1e308, -1e308, 1.5, 0, np.inf, np.nan], (4, 12, 10))
    meta = CubeMeta(*pixels.shape, pixels.dtype, gains=(1e300, 1, 2, -1e308), offsets=(1e308, 0, 0, 0))
    with create_cube(tmp_path / f"scene.{suffix}", meta) as cube:
        cube.write(meta.window, pixels)
    for words in (("info",), ("upscale", "-o", tmp_path / f"fine.{suffix}", "--model", "bicubic")):
        ran = pdenet(words[0], tmp_path / f"scene.{suffix}", *words[1:])
        assert "Warning" not in ran.stderr
        assert ran.returncode in (0, 3), ran.stderr


def test_rational_polynomials_without_all_their_numbers_are_kept_as_they_are(tmp_path, pdenet):
    from pdenet_cli.scene.georeference import Georeference

    for place, rpc in enumerate(({"LINE_OFF": "1"}, {"LINE_OFF": "x", "SAMP_OFF": "2"})):
        meta = CubeMeta(3, 8, 8, np.dtype("u2"), georeference=Georeference(rpc=rpc))
        with create_cube(tmp_path / f"{place}.h5", meta) as cube:
            cube.write(meta.window, numbers((3, 8, 8)))
        ran = pdenet("upscale", tmp_path / f"{place}.h5", "-o", tmp_path / f"fine{place}.h5", "--model", "bicubic")
        assert ran.returncode == 0, ran.stderr
