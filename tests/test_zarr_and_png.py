"""Zarr stores against zarr itself, folders of PNGs against their pictures, and both against trickery."""

import json
import struct
import sys
import tracemalloc

import imagecodecs
import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats import zarr as zarr_store
from pdenet_cli.formats.common import limits
from pdenet_cli.formats.labelled import layout
from pdenet_cli.scene.georeference import Georeference
from tests.stores import full, numbers, shapes, write

zarr = pytest.importorskip("zarr")
relaxed = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(
    shape=shapes,
    dtype=st.sampled_from(["u1", "<i2", ">u2", "<f4", ">f8"]),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    seed=st.integers(0, 9),
)
def test_zarr_reads_what_we_write(shape, dtype, interleave, seed, tmp_path):
    pixels = numbers(shape, dtype, seed)
    write(tmp_path / "a.zarr", pixels, interleave=interleave, variable="hsi")
    interleave = {"bil": "bsq"}.get(interleave, interleave)
    found = zarr.open_group(tmp_path / "a.zarr", mode="r")["hsi"]
    order = {"bsq": (0, 1, 2), "bip": (2, 0, 1)}[interleave]
    np.testing.assert_array_equal(found[:].transpose(order), pixels)
    assert set(found.attrs["_ARRAY_DIMENSIONS"]) == {"band", "y", "x"}


def test_gdal_opens_what_we_write(tmp_path):
    pixels = numbers((4, 5, 7), "<i2", seed=1)
    pixels[0, 0, :2] = 0, -9999
    place = Georeference(transform=(5e5, 30.0, 0.0, 4.6e6, 0.0, -30.0), crs="EPSG:32616")
    about = dict(georeference=place, wavelengths=(0.0, 1.0, 2.0, 3.0))
    for name, nodata in (("whole", None), ("holed", -9999.0), ("dark", 0.0)):
        write(tmp_path / f"{name}.zarr", pixels, nodata=nodata, **about)
        with rasterio.open(f'ZARR:"{tmp_path / name}.zarr":/cube') as file:
            np.testing.assert_array_equal(file.read(), pixels)
            assert file.nodata == nodata == open_cube(tmp_path / f"{name}.zarr").meta.nodata
            assert file.crs == "EPSG:32616"
            assert file.transform.to_gdal() == place.transform


def test_only_holes_are_fill_values(tmp_path):
    # Readers of v2 take what equals the fill value for a hole, and wavelengths, places and pixels may be 0.
    write(tmp_path / "a.zarr", numbers((4, 5, 7)), **full() | dict(nodata=None))
    headers = sorted((tmp_path / "a.zarr").glob("*/.zarray"))
    assert len(headers) > 2
    assert all(json.loads(header.read_text())["fill_value"] is None for header in headers)


def test_one_file_holds_all_headers(tmp_path):
    write(tmp_path / "a.zarr", numbers((4, 5, 7)), **full())
    listed = json.loads((tmp_path / "a.zarr" / ".zmetadata").read_text())["metadata"]
    own = sorted(p for p in (tmp_path / "a.zarr").rglob(".z*") if p.name != ".zmetadata")
    assert sorted(listed) == [p.relative_to(tmp_path / "a.zarr").as_posix() for p in own]
    assert all(listed[p.relative_to(tmp_path / "a.zarr").as_posix()] == json.loads(p.read_text()) for p in own)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("inside", [None, "deep/cube"])
def test_both_versions_are_read_as_an_array_or_a_group(version, inside, tmp_path):
    pixels = numbers((4, 5, 6))
    path = tmp_path / "a.zarr"
    about = dict(data=pixels, chunks=(2, 3, 4), attributes={"wavelength": [1, 2, 3, 4], "sensor": "X"})
    if inside is None:
        zarr.create_array(path, zarr_format=version, **about)
    else:
        zarr.open_group(path, mode="w", zarr_format=version).create_array(inside, **about)
    for variable in (None, inside):
        cube = open_cube(path, variable=variable)
        np.testing.assert_array_equal(cube.read(), pixels)
        np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 3)), pixels[:, 1:4, 2:5])
        assert cube.meta.wavelengths == (1, 2, 3, 4)
        assert cube.meta.extra == {"sensor": "X"}


def test_sharded_and_oddly_packed_arrays_are_read(tmp_path):
    pixels = numbers((4, 6, 6))
    about = dict(data=pixels, chunks=(2, 3, 3), shards=(4, 6, 6), compressors=zarr.codecs.BloscCodec())
    zarr.create_array(tmp_path / "a.zarr", **about)
    np.testing.assert_array_equal(open_cube(tmp_path / "a.zarr").read(), pixels)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "fill", "nodata"),
    [("i2", -9999, -9999), ("f4", np.nan, np.nan), ("f4", -1.5, -1.5), ("i2", 0, None), ("?", True, None)],
)
def test_a_chosen_fill_value_is_nodata(version, dtype, fill, nodata, tmp_path):
    about = dict(shape=(4, 8, 8), chunks=(4, 8, 4), dtype=dtype, fill_value=fill, zarr_format=version)
    array = zarr.create_array(tmp_path / "a.zarr", **about)
    array[:, :, :4] = 1
    np.testing.assert_equal(open_cube(tmp_path / "a.zarr").meta.nodata, nodata)
    array.attrs["missing_value"] = -5
    assert open_cube(tmp_path / "a.zarr").meta.nodata == -5


@pytest.mark.parametrize(
    ("dtype", "nodata", "spoken"),
    [("<i2", -9999.0, -9999), (">f4", -9999.0, -9999.0), ("<f4", float("nan"), "nan"), ("u1", 0.0, 0)],
)
def test_nodata_is_said_in_the_words_of_cf(dtype, nodata, spoken, tmp_path):
    write(tmp_path / "a.zarr", numbers((2, 3, 4), dtype), nodata=nodata)
    header, said = (json.loads((tmp_path / "a.zarr" / "cube" / n).read_text()) for n in (".zarray", ".zattrs"))
    assert said["_FillValue"] == spoken
    np.testing.assert_equal(float(header["fill_value"]), nodata)
    np.testing.assert_equal(open_cube(tmp_path / "a.zarr").meta.nodata, nodata)


def test_a_type_of_another_name_is_written(tmp_path):
    pixels = numbers((2, 3, 4)).astype(np.dtype("q"))  # as tifffile calls 64-bit integers
    write(tmp_path / "a.zarr", pixels)
    np.testing.assert_array_equal(open_cube(tmp_path / "a.zarr").read(), pixels)


def test_an_interrupted_output_keeps_its_chunks(tmp_path):
    pixels, parts = numbers((4, 5, 7), "u1"), (tmp_path / "part",)
    meta = CubeMeta(*pixels.shape, pixels.dtype, **full())
    assert zarr_store.FORMAT.create is not None
    zarr_store.FORMAT.create(parts, meta).write(meta.window, pixels)
    np.testing.assert_array_equal(zarr_store.FORMAT.create(parts, meta).read(), pixels)


def test_chunks_are_a_few_megabytes_at_most():
    for bands, dtype in ((1, "u1"), (7, "f4"), (400, "f4"), (400, "f8")):
        chunks = layout.chunks(CubeMeta(bands, 1000, 1000, np.dtype(dtype)), "brc")
        assert chunks == (min(bands, 16), 128, 128)
        assert np.prod(chunks) * np.dtype(dtype).itemsize <= 4 << 20
    assert layout.chunks(CubeMeta(400, 90, 1000, np.dtype("f4")), "rcb") == (90, 128, 16)


def test_bands_written_a_few_at_a_time_do_not_read_all_others_again(tmp_path, monkeypatch):
    sizes, get = [], zarr.storage.LocalStore.get

    async def counted(*words, **more):
        found = await get(*words, **more)
        sizes.append(0 if found is None else len(found))
        return found

    pixels = np.random.default_rng(0).random((100, 150, 150), dtype="f4")
    meta = CubeMeta(*pixels.shape, pixels.dtype)
    with create_cube(tmp_path / "a.zarr", meta) as cube:
        monkeypatch.setattr(zarr.storage.LocalStore, "get", counted)
        for band in range(0, 100, 5):
            cube.write(meta.window, pixels[band : band + 5], slice(band, band + 5))
    assert sum(sizes) < 4 * pixels.nbytes
    np.testing.assert_array_equal(open_cube(tmp_path / "a.zarr").read(), pixels)


def test_without_zarr_the_extra_to_install_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.zarr", numbers((4, 5, 5)))
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(FormatError, match=r"pip install '\.\[zarr\]'"):
        open_cube(tmp_path / "a.zarr")
    meta = CubeMeta(2, 3, 4, np.dtype("u1"))
    with pytest.raises(OutputError, match=r"pip install '\.\[zarr\]'"), create_cube(tmp_path / "b.zarr", meta):
        pass


def edited(path, **changes):
    header = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps(header | changes))


def tricky_store(path, kind):
    zarr.create_array(path, data=numbers((4, 10, 10), "u1"), chunks=(4, 10, 10), compressors=None)
    chunk = path / "c/0/0/0"
    if kind == "eight terabytes without a chunk":
        edited(path, shape=[20000, 20000, 20000])
        chunk.unlink()
    elif kind == "eight terabytes and one chunk":
        edited(path, shape=[20000, 20000, 20000])
    elif kind == "a chunk too large for memory":
        edited(path, chunk_grid={"name": "regular", "configuration": {"chunk_shape": [100000, 10000, 10]}})
    elif kind == "a negative size":
        edited(path, shape=[4, -10, 10])
    elif kind == "a chunk that is a link":
        secret = path.with_name("secret")
        secret.write_bytes(b"secret of another file".ljust(400))
        chunk.unlink()
        chunk.symlink_to(secret)
    elif kind == "a header that is a link":
        (path / "zarr.json").rename(path.with_name("header"))
        (path / "zarr.json").symlink_to(path.with_name("header"))
    elif kind == "a pickle":
        edited(path, codecs=[{"name": "numcodecs.pickle", "configuration": {}}])
    elif kind == "an unknown codec":
        edited(path, codecs=[{"name": "bytes"}, {"name": "mystery"}])
    elif kind == "texts":
        edited(path, data_type="string")
    elif kind == "not JSON":
        (path / "zarr.json").write_text("{" * 100)
    elif kind == "JSON without end":
        (path / "zarr.json").write_text("[" * 100_000)
    elif kind == "an empty header":
        (path / "zarr.json").write_text("")
    elif kind == "a short chunk":
        chunk.write_bytes(b"1234")
    elif kind == "two axes":
        edited(path, shape=[40, 10])


STORES = """eight terabytes without a chunk; eight terabytes and one chunk; a chunk too large for memory;
a negative size; a chunk that is a link; a header that is a link; a pickle; an unknown codec; texts; not JSON;
JSON without end; an empty header; a short chunk; two axes""".replace("\n", " ").split("; ")


@pytest.mark.parametrize("kind", STORES)
def test_a_tricky_store_ends_in_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 2_000_000_000)
    tricky_store(tmp_path / "a.zarr", kind)
    assert_refused_in_a_line(tmp_path / "a.zarr")


def assert_refused_in_a_line(path):
    """That a store is refused without much memory, by its name and not by what is in other files; the line."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as error:
            open_cube(path, axes="brc").read()
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    line = str(error.value)
    assert "\n" not in line
    assert path.name in line
    assert "secret of" not in line
    return line


def test_a_variable_does_not_lead_out_of_the_store(tmp_path):
    write(tmp_path / "a.zarr", numbers((4, 5, 5)))
    write(tmp_path / "b.zarr", numbers((4, 5, 5)))
    (tmp_path / "a.zarr" / "link").symlink_to(tmp_path / "b.zarr" / "cube")
    for variable in ("../b.zarr/cube", "link"):
        with pytest.raises(FormatError, match="leads out"):
            open_cube(tmp_path / "a.zarr", variable=variable)
    assert open_cube(tmp_path / "a.zarr").meta.variable == "cube"


def test_a_pickle_in_an_old_store_is_not_run(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    header = dict(zarr_format=2, shape=[4, 5, 6], chunks=[4, 5, 6], dtype="|u1", order="C", fill_value=0)
    header |= dict(filters=[{"id": "pickle", "protocol": 4}], compressor=None)
    (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps(header))
    (tmp_path / "a.zarr" / "0.0.0").write_bytes(b"cposix\nabort\n(tR.")
    assert "pickle" in assert_refused_in_a_line(tmp_path / "a.zarr")


def test_a_second_header_hides_nothing(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=numbers((4, 5, 5)), chunks=(4, 5, 5), zarr_format=2)
    hidden = dict(zarr_format=3, node_type="array", shape=[4, 5, 5], data_type="uint16", attributes={})
    hidden |= dict(codecs=[{"name": "numcodecs.pickle"}], fill_value=0)
    (tmp_path / "a.zarr" / "zarr.json").write_text(json.dumps(hidden))
    np.testing.assert_array_equal(open_cube(tmp_path / "a.zarr").read(), numbers((4, 5, 5)))


def png_scene(folder, bands=31, dtype="u2", name="balloons_ms_{:02d}.png", seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    top = np.iinfo(dtype).max
    pixels = np.random.default_rng(seed).integers(0, top, (bands, 8, 9), dtype, endpoint=True)
    for band in range(bands):
        (folder / name.format(band + 1)).write_bytes(imagecodecs.png_encode(pixels[band]))
    return pixels


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_a_cave_scene_is_a_cube_with_its_wavelengths(dtype, tmp_path):
    pixels = png_scene(tmp_path / "balloons_ms" / "balloons_ms", dtype=dtype)
    for other in ("Thumbs.db", "balloons_RGB.bmp"):
        (tmp_path / "balloons_ms" / "balloons_ms" / other).write_bytes(b"x")
    for folder in (tmp_path / "balloons_ms", tmp_path / "balloons_ms" / "balloons_ms"):
        cube = open_cube(folder)
        np.testing.assert_array_equal(cube.read(), pixels)
        np.testing.assert_array_equal(cube.read(Window(2, 3, 4, 5), slice(3, 9, 2)), pixels[3:9:2, 2:6, 3:8])
        assert cube.meta.dtype == np.dtype(dtype)
        assert cube.meta.wavelengths == tuple(range(400, 701, 10))


def test_axes_told_of_a_folder_are_ignored_and_that_is_said(tmp_path):
    pixels = png_scene(tmp_path / "scene", bands=5)
    assert open_cube(tmp_path / "scene", axes="brc").meta.notes == open_cube(tmp_path / "scene").meta.notes
    cube = open_cube(tmp_path / "scene", axes="rcb")
    np.testing.assert_array_equal(cube.read(), pixels)
    assert cube.meta.notes[-1] == "`axes` rcb is ignored: each picture of a folder is a band"


def test_bands_are_sorted_by_their_number_and_others_ignored(tmp_path):
    pixels = png_scene(tmp_path / "scene", bands=12, name="b{}.png")
    (tmp_path / "scene" / "b5.png").unlink()
    (tmp_path / "scene" / "preview.png").write_bytes(imagecodecs.png_encode(np.zeros((2, 2, 3), "u1")))
    cube = open_cube(tmp_path / "scene")
    np.testing.assert_array_equal(cube.read(), np.delete(pixels, 4, axis=0))
    assert cube.meta.wavelengths is None
    assert cube.meta.band_names[-1] == "b12"
    assert "1 other PNGs" in cube.meta.notes[0]
    assert "such as 5" in cube.meta.notes[1]


def test_the_number_of_a_band_may_stand_anywhere_in_its_name(tmp_path):
    pixels = png_scene(tmp_path / "a", bands=12, name="band{:02d}_refl.png")
    np.testing.assert_array_equal(open_cube(tmp_path / "a").read(), pixels)
    pixels = png_scene(tmp_path / "b", bands=3, name="scene_{}00nm.png")
    cube = open_cube(tmp_path / "b")
    np.testing.assert_array_equal(cube.read(), pixels)
    assert (cube.meta.wavelengths, cube.meta.wavelength_units) == ((100, 200, 300), "Nanometers")
    assert cube.meta.notes == ()
    for name in ("scene1_{}nm.png", "2019_band{:02d}_refl.png", "s_{}.5nm.png"):
        folder = tmp_path / name[:6]
        pixels = png_scene(folder, bands=4, name=name)
        for picture in (1, 2):
            (folder / f"rgb{picture}.png").write_bytes(imagecodecs.png_encode(np.zeros((2, 2, 3), "u1")))
        np.testing.assert_array_equal(open_cube(folder).read(), pixels)
    png_scene(tmp_path / "c", bands=3, name="em5nm_{}.png")
    assert open_cube(tmp_path / "c").meta.wavelengths is None


def test_two_series_of_one_length_are_not_chosen_from(tmp_path):
    for name in ("a_{}.png", "b_{}.png"):
        png_scene(tmp_path / "scene", bands=3, name=name)
    assert "two series of 3 PNGs, with a_1.png and b_1.png" in refuses_in(tmp_path / "scene")


def test_colour_pngs_count_as_grey_only_if_their_channels_are_equal(tmp_path):
    pixels = png_scene(tmp_path / "scene", bands=3, name="b{}.png")
    for band in range(3):
        colours = np.repeat(pixels[band][..., None], 3, axis=-1)
        (tmp_path / "scene" / f"b{band + 1}.png").write_bytes(imagecodecs.png_encode(colours))
    np.testing.assert_array_equal(open_cube(tmp_path / "scene").read(), pixels)
    colours[0, 0, 1] += 1
    (tmp_path / "scene" / "b3.png").write_bytes(imagecodecs.png_encode(colours))
    assert "colour picture" in refuses_in(tmp_path / "scene")


def refuses_in(folder):
    with pytest.raises(FormatError) as error:
        open_cube(folder).read()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_several_scenes_are_named(tmp_path):
    png_scene(tmp_path / "cave" / "a", bands=2)
    png_scene(tmp_path / "cave" / "b", bands=2)
    assert "2 folders of PNGs (a, b" in refuses_in(tmp_path / "cave")


def test_what_systems_leave_beside_pictures_is_nothing(tmp_path):
    pixels = png_scene(tmp_path / "scene" / "scene", bands=3)
    (tmp_path / "scene" / "__MACOSX").mkdir()
    (tmp_path / "scene" / "Thumbs.db").write_text("")
    np.testing.assert_array_equal(open_cube(tmp_path / "scene").read(), pixels)


@pytest.mark.parametrize("other", ["a.tif", "notes.txt", "empty/"])
def test_pictures_below_a_folder_of_other_things_are_no_scene(other, tmp_path):
    pixels = png_scene(tmp_path / "mixed" / "ql", bands=3)
    (tmp_path / "mixed" / ".hidden").write_text("no matter")
    (tmp_path / "mixed" / "Thumbs.db").write_text("no matter")
    np.testing.assert_array_equal(open_cube(tmp_path / "mixed").read(), pixels)
    if other.endswith("/"):
        (tmp_path / "mixed" / other).mkdir()
    else:
        (tmp_path / "mixed" / other).write_text("something")
    assert "a folder, not a cube" in refuses_in(tmp_path / "mixed")
    np.testing.assert_array_equal(open_cube(tmp_path / "mixed" / "ql").read(), pixels)


@pytest.mark.parametrize(
    "kind", ["another size", "another depth", "text", "cut", "damaged", "huge", "palette", "twice"]
)
def test_a_damaged_or_lying_folder_ends_in_one_line(kind, tmp_path):
    png_scene(tmp_path / "scene", bands=4, name="b{}.png")
    file = tmp_path / "scene" / "b3.png"
    content = file.read_bytes()
    if kind == "another size":
        file.write_bytes(imagecodecs.png_encode(np.zeros((8, 8), "u2")))
    elif kind == "another depth":
        file.write_bytes(imagecodecs.png_encode(np.zeros((8, 9), "u1")))
    elif kind == "text":
        file.write_text("hello")
    elif kind == "cut":
        file.write_bytes(content[:60])
    elif kind == "damaged":
        file.write_bytes(content[:60] + b"\xff" * 40 + content[100:])
    elif kind in ("huge", "palette"):
        size = struct.pack(">II", 1 << 30, 1 << 30) if kind == "huge" else content[16:24]
        for other in (tmp_path / "scene").iterdir():
            colour = 3 if kind == "palette" else 0
            other.write_bytes(content[:16] + size + bytes([8, colour]) + content[26:])
    elif kind == "twice":
        (tmp_path / "scene" / "b03.png").write_bytes(content)
    tracemalloc.start()
    try:
        assert "scene" in refuses_in(tmp_path / "scene")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
