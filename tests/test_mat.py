"""MATLAB files against SciPy and h5py, and against files that lie."""

import contextlib
import dataclasses
import struct
import tracemalloc
import zlib

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError, ResourceError
from pdenet_cli.formats import mat
from pdenet_cli.formats.common import limits
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from tests.stores import check_interrupted, full, make, numbers, shapes, write

DTYPES = ["i1", "u1", "<i2", ">u2", "<i4", "<u4", "<i8", "<u8", "<f4", ">f4", "<f8", ">f8"]
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def version_7_3(path, **arrays):
    """A file as MATLAB writes v7.3, of arrays whose axes are reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = values
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")


def copy(cube, path):
    with create_cube(path, cube.meta) as output:
        output.write(cube.meta.window, cube.read())


@relaxed
@given(shape=shapes, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 9))
def test_scipy_reads_what_we_write(shape, dtype, seed, tmp_path):
    pixels = numbers(shape, dtype, seed)
    write(tmp_path / "a.mat", pixels, variable="hsi", wavelengths=tuple(range(shape[0])), nodata=-1.0)
    found = scipy.io.loadmat(tmp_path / "a.mat")
    np.testing.assert_array_equal(found["hsi"].transpose(2, 0, 1), pixels)
    assert found["hsi"].dtype.newbyteorder("=") == pixels.dtype.newbyteorder("=")
    assert found["wavelength"].ravel().tolist() == list(range(shape[0]))
    assert found["nodata"].item() == -1


@relaxed
@given(shape=shapes, dtype=st.sampled_from(DTYPES), packed=st.booleans(), seed=st.integers(0, 9))
def test_what_scipy_writes_is_read_whole_and_by_windows(shape, dtype, packed, seed, tmp_path):
    pixels = numbers(shape, np.dtype(dtype).newbyteorder("="), seed)
    other = dict(lat=51.5, note="a text", mask=np.ones((3, 4), bool))
    scipy.io.savemat(tmp_path / "a.mat", {**other, "x": pixels.transpose(1, 2, 0)}, do_compression=packed)
    # MATLAB has no third axis of length one, and SciPy keeps it: both ways must open.
    cube = open_cube(tmp_path / "a.mat", variable="x")
    np.testing.assert_array_equal(cube.read(), pixels)
    window = Window(shape[1] // 2, shape[2] // 3, 1, 1)
    np.testing.assert_array_equal(cube.read(window), pixels[(slice(None), *window.slices)])
    assert cube.meta.extra["note"] == "a text"


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_every_word_about_a_cube_survives(version, tmp_path, monkeypatch):
    if version == "v7.3":
        monkeypatch.setattr(mat, "LARGEST_V5", 0)
    meta = write(tmp_path / "a.mat", numbers((4, 5, 6), "<i2"), **full())
    found = open_cube(tmp_path / "a.mat").meta
    assert dataclasses.replace(found, notes=()) == meta


@pytest.mark.parametrize("version", ["v5", "v7.3"])
@pytest.mark.parametrize(
    "place",
    [Georeference(points=(GroundPoint(0.5, 1.5, 10.0, 20.0, 3.0),)), Georeference(rpc={"LINE_OFF": "1"})],
)
def test_a_place_without_a_coordinate_system_survives(place, version, tmp_path, monkeypatch):
    if version == "v7.3":
        monkeypatch.setattr(mat, "LARGEST_V5", 0)
    write(tmp_path / "a.mat", numbers((4, 5, 6)), georeference=place)
    assert open_cube(tmp_path / "a.mat").meta.georeference == place


def test_points_of_somebody_else_are_no_points_on_the_ground(tmp_path):
    foreign = dict(cube=numbers((5, 6, 4)), points=np.arange(10.0), anchor=[1.0, 2.0], native="{}")
    scipy.io.savemat(tmp_path / "a.mat", foreign)
    meta = open_cube(tmp_path / "a.mat").meta
    assert meta.georeference == Georeference()
    assert meta.extra["points"] == list(range(10))
    scipy.io.savemat(tmp_path / "b.mat", foreign | dict(GeoTransform="5 1 0 7 0 -1"))
    assert len(open_cube(tmp_path / "b.mat").meta.georeference.points) == 2


@pytest.mark.parametrize("bands", [np.arange(400.0, 440, 10), np.arange(0.4, 0.44, 0.01)])
@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_bands_that_are_wavelengths_are_taken_for_them(version, bands, tmp_path):
    """As in the data sets ICVL, whose files have an RGB picture too, and ARAD."""
    rad, rgb = numbers((5, 6, 4), "<f8"), numbers((5, 6, 3), "u1")
    if version == "v5":
        scipy.io.savemat(tmp_path / "a.mat", dict(bands=bands, rad=rad, rgb=rgb))
    else:
        version_7_3(tmp_path / "a.mat", bands=bands[:, None], rad=rad.T, rgb=rgb.T)
    meta = open_cube(tmp_path / "a.mat").meta
    assert meta.variable == "rad"
    assert meta.wavelengths == tuple(bands)
    assert "bands" not in meta.extra
    assert "bands read as the wavelengths of the bands" in meta.notes


@pytest.mark.parametrize(
    ("bands", "kept"),
    [(4.0, None), ([1.0, 2, 3, 4], [1.0, 2, 3, 4]), ([500.0, 400, 300, 200],) * 2, ([400.0, 500, 600], None)],
)
def test_bands_that_are_no_wavelengths_are_not_taken_for_them(bands, kept, tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", dict(bands=bands, cube=numbers((5, 6, 4))))
    meta = open_cube(tmp_path / "a.mat").meta
    assert meta.wavelengths is None
    assert meta.extra.get("bands") == kept


@pytest.mark.parametrize(
    ("axes", "told"), [("brc", False), ("rbc", False), ("rcb", False), ("brc", True), ("crb", True)]
)
@pytest.mark.parametrize("name", ["wl", "Wavelengths", "bands", "wavelength"])
@pytest.mark.parametrize("largest", [10**9, 0], ids=["v5", "v7.3"])
def test_an_output_has_the_axes_and_the_names_of_its_scene(largest, name, axes, told, tmp_path, monkeypatch):
    monkeypatch.setattr(mat, "LARGEST_V5", largest)
    pixels, waves = numbers((4, 5, 6)), [] if told else [400.5, 500.0, 600.0, 700.0]
    turned = pixels.transpose(["brc".index(axis) for axis in axes])
    scipy.io.savemat(tmp_path / "a.mat", {"hsi": turned} | ({} if told else {name: waves}))
    with open_cube(tmp_path / "a.mat", axes=axes if told else None) as cube:
        copy(cube, tmp_path / "b.mat")
    again = open_cube(tmp_path / "b.mat")  # what had to be told of the scene is known of its output
    np.testing.assert_array_equal(again.read(), pixels)
    assert list(again.meta.wavelengths or ()) == waves
    assert not again.meta.extra
    if largest:
        found = scipy.io.loadmat(tmp_path / "b.mat")
        np.testing.assert_array_equal(found["hsi"], turned)
        assert found.get(name, np.zeros(0)).ravel().tolist() == waves
        assert ("wavelength" in found) == (name == "wavelength" and not told)


def test_one_band_of_a_scene_with_bands_first_is_a_matrix_to_matlab(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", dict(hsi=numbers((4, 5, 6)), bands=[400.0, 500, 600, 700]))
    with open_cube(tmp_path / "a.mat") as cube:
        copy(cube.with_bands(slice(1, 2)), tmp_path / "b.mat")
    found = scipy.io.loadmat(tmp_path / "b.mat")
    assert found["hsi"].shape == (5, 6, 1)
    assert found["wavelength"].item() == 500  # a single number called bands would be their count
    assert open_cube(tmp_path / "b.mat").meta.wavelengths == (500,)


def test_what_was_in_a_struct_has_its_own_name_in_the_output_and_that_is_said(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"S": dict(data=numbers((5, 6, 4)), wl=[400.0, 500, 600, 700])})
    with open_cube(tmp_path / "a.mat") as cube:
        copy(cube, tmp_path / "b.mat")
    assert cube.meta.notes == ("S.data is in a struct: a MAT output has it as data",)
    assert {"data", "wl"} <= set(scipy.io.loadmat(tmp_path / "b.mat"))
    assert open_cube(tmp_path / "b.mat").meta.notes == ()


@pytest.mark.parametrize("name", ["wavelength", "wl", "fwhm", "bbl", "nodata", "crs", "axes", "metadata"])
def test_a_cube_may_have_the_name_of_what_is_said_of_it(name, tmp_path):
    fields = full() | dict(variable=name, interleave="bip", native={"MATLAB axes": "brc"})
    meta = write(tmp_path / "a.mat", numbers((4, 5, 6), "<i2"), **fields)
    found = open_cube(tmp_path / "a.mat").meta
    called = name if name == "wl" else "cube"
    assert dataclasses.replace(found, notes=()) == dataclasses.replace(meta, variable=called)


@pytest.mark.parametrize("shape", [(1, 1, 4), (5, 6, 4)])
@pytest.mark.parametrize("name", ["wavelength", "bbl", "x"])
def test_a_cube_is_not_what_is_said_of_it(name, shape, tmp_path):
    cube = np.ones(shape, "u1")
    scipy.io.savemat(tmp_path / "a.mat", {name: cube, "wls": [400.0, 500, 600, 700]})
    meta = open_cube(tmp_path / "a.mat").meta
    assert (meta.wavelengths, meta.good_bands, dict(meta.extra)) == ((400, 500, 600, 700), None, {})
    with open_cube(tmp_path / "a.mat") as scene:
        copy(scene, tmp_path / "b.mat")
    again = open_cube(tmp_path / "b.mat").meta
    assert (again.wavelengths, again.variable) == (meta.wavelengths, name)


def test_what_outputs_do_not_keep_is_named(tmp_path):
    cell = np.empty((1, 2), object)
    cell[:] = [["a", "b"]]
    kept = dict(cube=numbers((5, 6, 4)), wl=np.arange(4.0), nRow=5, sensor="mine", info=dict(fwhm=[9.0] * 4))
    scipy.io.savemat(tmp_path / "a.mat", kept)
    said = open_cube(tmp_path / "a.mat").meta.notes
    left = dict(map=numbers((5, 6), "u1"), c=cell, info=dict(kept["info"], day=3), long=np.arange(5000.0), z=[1j])
    scipy.io.savemat(tmp_path / "a.mat", kept | left | dict(rgb=numbers((5, 6, 3))))
    note = "outputs do not keep other variables: info.day, map, c, a cell array, long and 1 more"
    assert "keep" not in " ".join(said)
    assert open_cube(tmp_path / "a.mat").meta.notes[-1] == note
    assert "rgb" in open_cube(tmp_path / "a.mat").meta.notes[0]
    with open_cube(tmp_path / "a.mat") as cube:
        copy(cube, tmp_path / "b.mat")
    assert open_cube(tmp_path / "b.mat").meta.notes == ()


def test_what_matlab_keeps_of_objects_is_no_variable(tmp_path):
    (tmp_path / "a.mat").write_bytes(HEADER + matrix() + matrix(name=b"", dims=(1, 120)))
    meta = open_cube(tmp_path / "a.mat").meta
    assert not meta.extra
    assert "keep" not in " ".join(meta.notes)


@pytest.mark.parametrize("metadata", ["sensor = mine", "mine", 5.0, [1.0, 2.0]])
def test_metadata_of_somebody_else_is_kept_like_any_other_variable(metadata, tmp_path):
    about = dict(metadata=metadata, title="as if written by pdenet")
    scipy.io.savemat(tmp_path / "a.mat", dict(about, cube=numbers((5, 6, 4))))
    with open_cube(tmp_path / "a.mat") as cube:
        copy(cube, tmp_path / "b.mat")
        assert dict(cube.meta.extra) == dict(open_cube(tmp_path / "b.mat").meta.extra) == about


@pytest.mark.parametrize("axes", ["xyz", "brcb", 7.0, [1.0, 2.0, 3.0]])
def test_damaged_axes_are_ignored_and_that_is_said(axes, tmp_path):
    ours = b"MATLAB 5.0 MAT-file, written by pdenet".ljust(124)
    scipy.io.savemat(tmp_path / "a.mat", dict(axes=axes, cube=numbers((5, 6, 4))))
    (tmp_path / "a.mat").write_bytes(ours + (tmp_path / "a.mat").read_bytes()[124:])
    meta = open_cube(tmp_path / "a.mat").meta
    assert meta.shape() == (4, 5, 6)
    assert meta.notes[0] == f"axes ignored: '{axes}' is not an order of b, r and c"


def test_a_list_called_nodata_is_not_a_nodata_value(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"cube": numbers((5, 6, 4)), "nodata": np.array([17, 18, 200, 3001])})
    with open_cube(tmp_path / "a.mat") as cube:
        assert cube.meta.nodata is None


def test_version_7_3_is_what_matlab_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(mat, "LARGEST_V5", 0)
    pixels = numbers((4, 5, 6), "<f4")
    write(tmp_path / "a.mat", pixels, variable="hsi", wavelengths=(1.0, 2.0, 3.0, 4.0), wavelength_units="µm")
    head = (tmp_path / "a.mat").read_bytes()[:128]
    assert head.startswith(b"MATLAB 7.3 MAT-file")
    assert head[124:] == b"\x00\x02IM"
    with h5py.File(tmp_path / "a.mat") as file:
        np.testing.assert_array_equal(file["hsi"][()].transpose(0, 2, 1), pixels)
        assert file["hsi"].attrs["MATLAB_class"] == b"single"
        assert file["wavelength"].shape == (4, 1)
        assert file["wavelength_units"].attrs["MATLAB_class"] == b"char"
    cube = open_cube(tmp_path / "a.mat")
    np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 4)), pixels[:, 1:4, 2:6])
    with pytest.raises(NotImplementedError):
        scipy.io.loadmat(tmp_path / "a.mat")


@pytest.mark.parametrize("largest", [0, 1 << 30])
def test_an_interrupted_output_keeps_its_pixels(largest, tmp_path, monkeypatch):
    monkeypatch.setattr(mat, "LARGEST_V5", largest)
    pixels = numbers((4, 5, 7), "u1")
    check_interrupted(mat.FORMAT, tmp_path / "part", pixels, CubeMeta(*pixels.shape, pixels.dtype, **full()))


def test_a_struct_is_looked_into(tmp_path):
    pixels = numbers((3, 5, 6))
    hsi = dict(Data=pixels.transpose(1, 2, 0), info=dict(wavelength=[400, 500, 600], fwhm=[9, 8, 7]))
    for packed in (True, False):
        scipy.io.savemat(tmp_path / "a.mat", {"hsi": hsi}, do_compression=packed)
        for variable in (None, "hsi.Data"):
            cube = open_cube(tmp_path / "a.mat", variable=variable)
            np.testing.assert_array_equal(cube.read(), pixels)
            assert cube.meta.variable == "hsi.Data"
            assert cube.meta.wavelengths == (400, 500, 600)
            assert cube.meta.fwhm == (9, 8, 7)


def test_a_struct_of_version_7_3_is_looked_into(tmp_path):
    pixels = numbers((3, 5, 6))
    waves = np.array([[400.0], [500.0], [600.0]])
    inside = {"hsi/Data": pixels.transpose(0, 2, 1), "hsi/wl": waves, "#refs#/a": np.zeros((2, 3, 4))}
    version_7_3(tmp_path / "a.mat", **inside)
    cube = open_cube(tmp_path / "a.mat")
    np.testing.assert_array_equal(cube.read(), pixels)
    assert cube.meta.variable == "hsi.Data"
    assert cube.meta.wavelengths == (400, 500, 600)


def test_a_version_7_3_file_shows_no_other_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret" * 100)
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file.create_dataset("a.b", (5, 6, 7), "u1", external=[(str(tmp_path / "secret"), 0, 210)])
        file["a/b"] = numbers((5, 6, 7))  # the honest one that the other hides behind
    with (tmp_path / "a.mat").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    with pytest.raises(FormatError, match="another file"):
        open_cube(tmp_path / "a.mat", variable="a.b")


@pytest.mark.parametrize("packed", [True, False])
def test_variables_that_are_no_arrays_of_numbers_are_named(packed, tmp_path):
    cell = np.empty((1, 2), object)
    cell[:] = [[numbers((3, 4)), "text"]]
    structs = np.array([[(1.0,), (2.0,)]], [("a", object)])
    others = dict(c=cell, s=scipy.sparse.csc_matrix(np.eye(3)), t=structs)
    scipy.io.savemat(tmp_path / "a.mat", others, do_compression=packed)
    with pytest.raises(FormatError, match=r"It has c, a cell array, s, a sparse matrix, t, a struct array\."):
        open_cube(tmp_path / "a.mat")
    scipy.io.savemat(tmp_path / "b.mat", others | dict(x=numbers((4, 5, 6))), do_compression=packed)
    np.testing.assert_array_equal(open_cube(tmp_path / "b.mat").read(), numbers((4, 5, 6)).transpose(2, 0, 1))


@pytest.mark.parametrize("asked", [None, "x"])
@pytest.mark.parametrize("name", ["v5.mat", "v7.3.mat", "a.h5", "a.zarr"])
def test_complex_numbers_are_called_that_with_what_to_do(name, asked, tmp_path):
    x, labels, path = numbers((4, 5, 6)) + 1j, numbers((4, 5)), tmp_path / name
    if name == "v5.mat":
        scipy.io.savemat(path, dict(x=x, labels=labels))
    elif name == "v7.3.mat":
        halves = np.stack([x.real, x.imag], -1).view([("real", "f8"), ("imag", "f8")])[..., 0]
        version_7_3(path, x=halves.T, labels=labels.T)
    elif name == "a.h5":
        make(path, x=x, labels=labels)
    else:
        group = pytest.importorskip("zarr").open_group(path, mode="w")
        group["x"], group["labels"] = x, labels
    says = r"x \(4, 5, 6\) complex.* Complex numbers are not read: first save abs\(X\), or real\(X\) "
    with pytest.raises(FormatError, match=says):
        open_cube(path, variable=asked)


@pytest.mark.parametrize("name", ["v5.mat", "v7.3.mat"])
def test_half_of_a_complex_list_is_not_taken_for_it(name, tmp_path):
    wl, cube = np.arange(4) + 400j, numbers((5, 6, 4))
    if name == "v5.mat":
        scipy.io.savemat(tmp_path / name, dict(cube=cube, wl=wl))
    else:
        version_7_3(tmp_path / name, cube=cube.T, wl=wl[:, None])
    assert open_cube(tmp_path / name).meta.wavelengths is None


def test_several_cubes_are_listed_and_one_is_chosen_by_name(tmp_path):
    cubes = dict(hsi=numbers((40, 50, 12)), cal=numbers((40, 50, 3), "f8"))
    scipy.io.savemat(tmp_path / "cube.mat", cubes)
    with pytest.raises(FormatError) as error:
        open_cube(tmp_path / "cube.mat")
    found = "2 three-dimensional variables: hsi (40, 50, 12) uint16, cal (40, 50, 3) float64"
    assert str(error.value) == f"{tmp_path / 'cube.mat'}: {found}. Choose one with `variable`."
    assert open_cube(tmp_path / "cube.mat", variable="cal").meta.shape() == (3, 40, 50)
    with pytest.raises(FormatError, match=r"no variable 'hs'\. It has hsi"):
        open_cube(tmp_path / "cube.mat", variable="hs")


def test_wavelengths_decide_which_variable_and_which_axis(tmp_path):
    contents = dict(I=numbers((12, 40, 50)), rgb=numbers((40, 50, 3)), wl=np.arange(12.0), bbl=[1] * 11 + [0])
    scipy.io.savemat(tmp_path / "a.mat", contents)
    cube = open_cube(tmp_path / "a.mat")
    assert cube.meta.shape() == (12, 40, 50)
    np.testing.assert_array_equal(cube.read(), contents["I"])
    assert cube.meta.good_bands == (True,) * 11 + (False,)
    assert "rgb" in " ".join(cube.meta.notes)
    assert "bands x rows x columns" in " ".join(cube.meta.notes)


def test_axes_follow_matlabs_custom_unless_told_otherwise(tmp_path):
    pixels = numbers((4, 5, 6))
    scipy.io.savemat(tmp_path / "a.mat", dict(x=pixels))
    cube = open_cube(tmp_path / "a.mat")
    assert cube.meta.shape() == (6, 4, 5)
    assert "rows x columns x bands" in " ".join(cube.meta.notes)
    np.testing.assert_array_equal(open_cube(tmp_path / "a.mat", axes="brc").read(), pixels)
    np.testing.assert_array_equal(open_cube(tmp_path / "a.mat", axes="crb").read(), pixels.transpose(2, 1, 0))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["v5", "v5 packed", "v7.3"])
def test_a_matrix_of_spectra_is_folded_by_its_rows_and_columns(version, turned, tmp_path):
    pixels = numbers((4, 5, 6))
    matrix = pixels.transpose(0, 2, 1).reshape(4, 30)  # pixels run down the columns
    matrix = matrix.T if turned else matrix
    if version == "v7.3":
        version_7_3(tmp_path / "a.mat", Y=matrix.T, nRow=[[5.0]], nCol=[[6.0]])
    else:
        contents = dict(Y=matrix, nRow=5, nCol=6, nBand=4)
        scipy.io.savemat(tmp_path / "a.mat", contents, do_compression="packed" in version)
    cube = open_cube(tmp_path / "a.mat")
    np.testing.assert_array_equal(cube.read(), pixels)
    np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2), slice(1, 3)), pixels[1:3, 1:4, 2:4])
    assert "5 rows x 6 columns" in " ".join(cube.meta.notes)
    assert not {"nRow", "nCol", "nBand"} & set(cube.meta.extra)


def test_who_has_a_matrix_is_told_what_is_read(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", dict(X=numbers((30, 4)), wl=np.arange(4.0)))
    says = r"X \(30, 4\) uint16, wl .*rows x columns x bands.*pixels x bands.*as nRow and nCol.*`variable`, as one"
    with pytest.raises(FormatError, match=says):
        open_cube(tmp_path / "a.mat")


def test_a_matrix_asked_for_is_one_band(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", dict(x=numbers((4, 5, 6)), map=numbers((4, 5))))
    np.testing.assert_array_equal(open_cube(tmp_path / "a.mat", variable="map").read()[0], numbers((4, 5)))


def test_types_that_matlab_lacks_are_refused(tmp_path):
    with pytest.raises(OutputError, match="float16"):
        write(tmp_path / "a.mat", numbers((2, 3, 4), "f2"))


def element(kind, content, count=None):
    count = len(content) if count is None else count
    return struct.pack("<II", kind, count) + content + bytes(-len(content) % 8)


def matrix(name=b"x", kind=9, dims=(4, 5, 6), data=None, count=None, flags=0, stored=2):
    inner = element(6, struct.pack("<II", kind | flags, 0)) + element(5, np.array(dims, "<i4").tobytes())
    inner += element(1, name) + element(stored, bytes(120) if data is None else data, count)
    return element(14, inner)


def packed(content):
    squeezed = zlib.compress(content)
    return struct.pack("<II", 15, len(squeezed)) + squeezed


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
EIGHT_TERABYTES = (20000, 20000, 20000)
STRUCT = element(6, struct.pack("<II", 2, 0))

HOSTILE = {
    "only a header": HEADER,
    "no variable is a cube": HEADER + matrix(dims=(120, 1)),
    "text only": HEADER + matrix(kind=4, dims=(4, 5, 6)),
    "complex numbers": HEADER + matrix(flags=0x800),
    "cut in a tag": (HEADER + matrix())[:132],
    "cut in the numbers": (HEADER + matrix())[:-9],
    "cut in the header": HEADER[:-2],
    "eight terabytes in a kilobyte": HEADER + matrix(dims=EIGHT_TERABYTES),
    "eight terabytes, packed": HEADER + packed(matrix(dims=EIGHT_TERABYTES)),
    "more numbers than the size says": HEADER + matrix(dims=(4, 5, 5)),
    "numbers that run past their element": HEADER + matrix(dims=(4, 5, 600), count=12000),
    "a negative size": HEADER + matrix(dims=(4, -5, 6)),
    "an empty cube": HEADER + matrix(dims=(4, 0, 6), data=b""),
    "four gigabytes claimed in a packed variable": HEADER
    + packed(struct.pack("<II", 14, 0xFFFFFFF8) + matrix()[8:]),
    "a packed variable that ends early": HEADER + packed(matrix(dims=(4, 5, 600), count=12000)),
    "damaged packing": HEADER + struct.pack("<II", 15, 80) + b"\x78\x9c" + b"\xaa" * 78,
    "a name of four gigabytes": HEADER
    + element(14, element(6, struct.pack("<II", 9, 0)) + struct.pack("<II", 5, 0xFFFFFFF0) + bytes(64)),
    "a struct of a billion fields": HEADER
    + element(
        14, STRUCT + element(5, np.array([1 << 15, 1 << 15], "<i4").tobytes()) + element(1, b"s") + bytes(64)
    ),
    "a struct whose field runs out of it": HEADER
    + element(
        14,
        STRUCT
        + element(5, np.array([1, 1], "<i4").tobytes())
        + element(1, b"s")
        + element(5, struct.pack("<i", 8))
        + element(1, b"field\0\0\0")
        + struct.pack("<II", 14, 1 << 30),
    ),
    "a struct in a struct in a struct without end": HEADER + b"\x0e\0\0\0\x40\0\0\0" * 8,
    "a cell array that says it is logical": HEADER + matrix(kind=1, flags=0x200),
    "a struct with a complex sparse matrix that has no imaginary part": HEADER
    + element(
        14,
        STRUCT
        + element(5, np.array([1, 1], "<i4").tobytes())
        + element(1, b"s")
        + element(5, struct.pack("<i", 8))
        + element(1, b"field\0\0\0")
        + element(
            14,
            element(6, struct.pack("<II", 5 | 0x800, 1))
            + element(5, np.array([1, 1], "<i4").tobytes())
            + element(1, b"")
            + element(5, struct.pack("<i", 0))
            + element(5, struct.pack("<ii", 0, 1))
            + element(9, bytes(8)),
        )
        + element(14, b""),
    ),
    "an unknown type of numbers": HEADER + matrix(stored=99),
}


def test_big_endian_files_are_read(tmp_path):
    pixels = numbers((4, 5, 6), ">u2")
    inner = b"".join(
        struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)
        for kind, content in (
            (6, struct.pack(">II", 11, 0)),
            (5, np.array([5, 6, 4], ">i4").tobytes()),
            (1, b"hsi"),
            (4, pixels.transpose(1, 2, 0).tobytes(order="F")),
        )
    )
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    (tmp_path / "a.mat").write_bytes(head + struct.pack(">II", 14, len(inner)) + inner)
    with open_cube(tmp_path / "a.mat") as cube:
        assert (cube.meta.variable, cube.meta.dtype) == ("hsi", np.dtype(">u2"))
        np.testing.assert_array_equal(cube.read(), pixels)


def test_zeros_after_the_last_variable_are_no_variable(tmp_path):
    (tmp_path / "a.mat").write_bytes(HEADER + matrix() + bytes(24))
    assert open_cube(tmp_path / "a.mat").read().sum() == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_or_lying_file_ends_in_one_line(name, tmp_path):
    (tmp_path / "a.mat").write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as error:
            open_cube(tmp_path / "a.mat").read()
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert "a.mat" in str(error.value)


@pytest.mark.parametrize("packing", [True, False])
def test_a_file_cut_anywhere_never_ends_in_a_traceback(packing, tmp_path):
    contents = dict(wl=np.arange(6.0), s=dict(x=numbers((4, 5, 6))))
    scipy.io.savemat(tmp_path / "a.mat", contents, do_compression=packing)
    whole = (tmp_path / "a.mat").read_bytes()
    for length in range(1, len(whole) - 8, 7):
        (tmp_path / "b.mat").write_bytes(whole[:length])
        with pytest.raises(FormatError):
            open_cube(tmp_path / "b.mat").read()


@relaxed
@given(place=st.integers(128, 700), value=st.integers(0, 255))
def test_a_changed_byte_gives_numbers_or_one_line(place, value, tmp_path):
    whole = bytearray(
        HEADER + matrix(name=b"wl", dims=(1, 6), kind=6, stored=9, data=bytes(48)) + matrix() + matrix()
    )
    whole[min(place, len(whole) - 1)] = value
    (tmp_path / "a.mat").write_bytes(whole)
    with contextlib.suppress(FormatError):
        assert open_cube(tmp_path / "a.mat", variable="x").read().size > 0


def test_a_bomb_that_does_not_fit_into_memory_is_refused_before_it_is_inflated(tmp_path, monkeypatch):
    (tmp_path / "a.mat").write_bytes(HEADER + packed(matrix(dims=(400, 500, 600), data=bytes(120_000_000))))
    assert (tmp_path / "a.mat").stat().st_size < 200_000
    assert open_cube(tmp_path / "a.mat").read(Window(0, 0, 1, 1)).sum() == 0
    monkeypatch.setattr(limits, "free_memory", lambda: 200_000_000)
    with pytest.raises(ResourceError, match=r"120,000,000 bytes with 200,000,000 free"):
        open_cube(tmp_path / "a.mat")


def test_version_4_and_renamed_text_are_named(tmp_path):
    scipy.io.savemat(tmp_path / "old.mat", dict(x=numbers((4, 5))), format="4")
    with pytest.raises(FormatError, match="MAT v4"):
        open_cube(tmp_path / "old.mat")
    (tmp_path / "text.mat").write_text("hello " * 100)
    with pytest.raises(FormatError, match="not a cube"):
        open_cube(tmp_path / "text.mat")


def test_real_files_open_or_say_why_not(data):
    files = sorted(data.rglob("*.mat"))
    assert files
    for path in files:
        if path.name == "muffle_dataset_130_90.mat":
            with pytest.raises(FormatError, match=r"3 three-dimensional variables: .*Choose one with `variable`"):
                open_cube(path)
            assert open_cube(path, variable="Y").meta.shape() == (64, 90, 90)
            continue
        with open_cube(path) as cube:
            found = cube.read(Window(3, 4, 5, 6))
            assert found.shape == (cube.meta.bands, 5, 6)
            if not h5py.is_hdf5(path):
                theirs = scipy.io.loadmat(path)[cube.meta.variable]
                if theirs.ndim == 2:
                    theirs = theirs.T.reshape(cube.meta.columns, cube.meta.rows, -1).transpose(1, 0, 2)
                np.testing.assert_array_equal(found, theirs[3:8, 4:10].transpose(2, 0, 1))


def test_real_wavelengths_and_bad_bands_are_found(data):
    meta = open_cube(data / "trial/salton_sea/salton_sea_roi.mat").meta
    assert meta.variable == "I"
    assert meta.good_bands.count(False) == 20
    assert 365 < meta.wavelengths_nm[0] < 367
    for path in (data / "trial/wavelengths").glob("*.mat"):
        assert 360 < open_cube(path).meta.wavelengths_nm[0] < 370


def test_fields_of_other_formats_are_readable_lines(tmp_path):
    extra = {"sensor type": "AVIRIS", "sun azimuth": "141.5", "lines of text": "one\ntwo", "levels": [1.0, 2.0]}
    write(tmp_path / "a.mat", numbers((4, 5, 6)), extra=extra)
    lines = [line.rstrip() for line in scipy.io.loadmat(tmp_path / "a.mat")["metadata"]]
    assert lines[0] == "sensor type = AVIRIS"
    assert dict(open_cube(tmp_path / "a.mat").meta.extra) == extra
