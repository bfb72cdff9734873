"""Bands by number and by wavelength: what --bands means, and that only these are read, seen and written."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import Cube, CubeMeta, Posterior, Window, load_model, open_cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import OutputError, UsageError
from pdenet_cli.evaluation.trial import make_coarse
from pdenet_cli.scene import sliceable
from pdenet_cli.scene.bands import band_choice, band_numbers, runs
from pdenet_cli.tools.describe import describe
from pdenet_cli.tools.job import Job, Settings
from pdenet_cli.tools.truths import TruthSettings, open_truth, truth_view
from pdenet_cli.training.data import Scene
from tests.cubes import picture, written

WAVES = (400.0, 410.0, 420.0, 500.0, 510.0, float("nan"), 1600.0, 1500.0)  # a gap, an unknown one, a disorder


@pytest.mark.parametrize(
    ("text", "bands"),
    [
        ("2:4", (2, 3)),
        (":2,6:", (0, 1, 6, 7)),
        (" 5 , 1:3", (1, 2, 5)),
        ("0:3,2,1:4", (0, 1, 2, 3)),
        ("410nm:500nm", (1, 2, 3)),
        ("0.41um:.5 µm", (1, 2, 3)),
        ("410NM:0.5μm", (1, 2, 3)),
        (":410nm,1.5um:", (0, 1, 6, 7)),
        ("414nm", (1,)),
        ("460nm", (2,)),
        ("1.45um,7", (7,)),
        ("5,500nm:", (3, 4, 5, 6, 7)),
    ],
)
def test_bands_are_chosen_by_number_and_by_wavelength_each_once_in_their_order(text, bands):
    assert band_numbers(text, len(WAVES), WAVES) == bands
    assert band_numbers(band_choice(text), len(WAVES), WAVES) == bands


@pytest.mark.parametrize(
    ("text", "waves", "says"),
    [
        ("9", WAVES, "Bands 9: the cube has only 8 bands, 0 to 7"),
        ("0:2,4:9", WAVES, "Bands 4:9: the cube has only 8"),
        ("3:3", WAVES, "select nothing"),
        ("5:2", WAVES, "reversed"),
        ("500nm:410nm", WAVES, "reversed"),
        ("0.5um:410nm", WAVES, "reversed"),
        ("430nm:490nm", WAVES, "no band there; it has 400 to 1600 nm"),
        ("0:2,2um", WAVES, "Bands 2um: the cube has no band there"),
        ("200nm", WAVES, "no band there"),
        ("660nm", (650.0,), "no band there"),
        ("410nm", None, "no wavelengths in a unit of length. Choose bands by number"),
        ("410nm", (float("nan"),) * 8, "no wavelengths"),
        ("3:500nm", WAVES, "a band number and a wavelength"),
        ("", WAVES, "not a range of bands"),
        ("1,,2", WAVES, "not a range of bands"),
        ("1:2:3", WAVES, "not a range of bands"),
        ("1.5", WAVES, "not a range of bands"),
        ("-1", WAVES, "not a range of bands"),
        ("5cm", WAVES, "not a range of bands"),
        ("9" * 5000, WAVES, "not a range of bands"),
    ],
)
def test_a_choice_that_a_cube_cannot_give_is_refused_in_a_line(text, waves, says):
    with pytest.raises(UsageError) as error:
        band_numbers(text, 8, waves)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("unit", "size"),
    [("Micrometers", 1e-3), ("nm", 1.0), (None, 1e-3), ("Angstroms", 10.0), ("m", 1e-9), ("Millimeters", 1e-6)],
)
def test_wavelengths_mean_the_same_in_every_unit(unit, size):
    waves = tuple(float(np.float32(nm * size)) for nm in (450, 650, 900, 1500))
    meta = CubeMeta(4, 2, 2, np.dtype("u2"), wavelengths=waves, wavelength_units=unit)
    assert meta.chosen("450nm:900nm") == (0, 1, 2)
    assert meta.chosen("0.9um:1.5um,450nm") == (0, 2, 3)


def test_wavenumbers_are_no_wavelengths():
    meta = CubeMeta(2, 2, 2, np.dtype("u2"), wavelengths=(450.0, 500.0), wavelength_units="cm-1")
    with pytest.raises(UsageError, match="no wavelengths in a unit of length"):
        meta.chosen("450nm")


def test_reports_tell_ranges():
    assert runs((4, 5, 6)) == [[4, 7]]
    assert runs((0, 1, 7)) == [[0, 2], [7, 8]]


@pytest.mark.parametrize("at_once", [0, sliceable.READ_AT_ONCE])
@pytest.mark.parametrize("suffix", [".hdr", ".tif", ".h5", ".zarr", ".mat"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.sets(st.integers(0, 7), min_size=1),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    part=st.slices(8),
    step=st.integers(1, 3),
)
def test_chosen_bands_are_read_as_a_cube_of_them_alone(
    tmp_path_factory, monkeypatch, at_once, suffix, chosen, interleave, part, step
):
    monkeypatch.setattr(sliceable, "READ_AT_ONCE", at_once)
    pixels = np.random.default_rng(0).integers(1, 999, (8, 9, 7)).astype(">u2")
    path = written(tmp_path_factory.mktemp("cube") / f"a{suffix}", pixels, interleave=interleave)
    kept = pixels[sorted(chosen)]
    with open_cube(path) as whole:
        some = whole.with_bands(",".join(map(str, chosen)))
        np.testing.assert_array_equal(some.read(), kept)
        np.testing.assert_array_equal(some.read(Window(2, 1, 5, 4), part), kept[part, 2:7, 1:5])
        np.testing.assert_array_equal(some.thinned(step), kept[:, ::step, ::step])
        np.testing.assert_array_equal(some.with_bands(slice(0, 1)).read(), kept[:1])
        mixed = [*sorted(chosen, reverse=True), min(chosen)]
        np.testing.assert_array_equal(whole.read(Window(2, 1, 5, 4), mixed), pixels[mixed, 2:7, 1:5])
        np.testing.assert_array_equal(whole.thinned(step, bands=mixed), pixels[mixed, ::step, ::step])
        places = [sorted(chosen).index(band) for band in mixed]
        np.testing.assert_array_equal(some.read(bands=places), pixels[mixed])


class Counted:
    """An array that remembers which bands were read from it."""

    def __init__(self, shape, axis, block=None):
        self.shape, self.axis, self.seen = shape, axis, []
        if block is not None:
            self.block = block

    def __getitem__(self, key):
        self.seen.append(key[self.axis])
        return np.zeros([len(range(size)[part]) for size, part in zip(self.shape, key, strict=True)], np.uint8)


@pytest.mark.parametrize(
    ("axes", "block", "runs"),
    [
        ("brc", None, [(2, 3), (50, 52), (99, 100)]),  # whole bands lie between
        ("rcb", None, [(2, 100)]),  # the spectrum of a pixel is read at once
        ("brc", (1, 8, 300), [(2, 3), (50, 52), (99, 100)]),
        ("brc", (30, 8, 300), [(2, 52), (99, 100)]),  # only of bands 60 to 89 nothing is wanted
        ("brc", (100, 8, 8), [(2, 100)]),
    ],
)
def test_of_some_bands_no_others_are_read_unless_that_costs_nothing(axes, block, runs):
    meta = CubeMeta(100, 300, 300, np.dtype("u1"))
    array = Counted(meta.shape(axes), axes.index("b"), block)
    whole = Cube(Path("a"), meta, array, axes)
    for read in (
        lambda: whole.read(Window(0, 0, 280, 300), [50, 2, 51, 99]),
        whole.with_bands("2,50:52,99").read,
        lambda: whole.thinned(2, bands=[2, 50, 51, 99]),
    ):
        array.seen.clear()
        assert read().shape[0] == 4
        assert [(part.start, part.stop) for part in array.seen] == runs
    array.seen.clear()
    whole.read(Window(0, 0, 2, 2), [2, 50, 51, 99])
    assert len(array.seen) == (1 if block is None else len(runs))  # a small window is read in one go


FULL = dict(
    wavelengths=tuple(450.0 + 50 * i for i in range(8)),
    wavelength_units="Nanometers",
    fwhm=tuple(10.0 + i for i in range(8)),
    good_bands=(True,) * 6 + (False, True),
    band_names=tuple("abcdefgh"),
    gains=tuple(1e-4 * (1 + i) for i in range(8)),
    offsets=tuple(-0.001 * i for i in range(8)),
    default_bands=(4, 1, 0),
    nodata=0.0,
    extra={"dark": "{0, 1, 2, 3, 4, 5, 6, 7}"},
)
LIST, KEPT = "450nm:500nm,4,0.7um:", (0, 1, 4, 5, 6, 7)


@pytest.fixture
def full(tmp_path):
    """A scene with all that a header can say of its bands, and one of the chosen bands alone."""
    pixels = picture(8, 24, 20)
    path = written(tmp_path / "full.hdr", pixels, **FULL)
    meta = CubeMeta(8, 24, 20, pixels.dtype, **FULL).with_bands(LIST)
    few = {name: getattr(meta, name) for name in FULL}
    return path, written(tmp_path / "few.hdr", pixels[list(KEPT)], **few)


def test_what_is_said_of_chosen_bands_is_theirs(full):
    path, few = full
    with open_cube(path) as whole, open_cube(few) as alone:
        some = whole.with_bands(LIST)
        for name in FULL:
            assert getattr(some.meta, name) == getattr(alone.meta, name), name
        assert some.meta.fwhm == (10, 11, 14, 15, 16, 17)
        assert some.meta.default_bands == (2, 1, 0)
        assert whole.with_bands("1:").meta.default_bands is None


def test_a_list_of_bands_is_sharpened_as_a_scene_of_them_alone(pdenet, full, models, tmp_path):
    path, few = full
    words = ("--model", models / "calibrated.safetensors", "--samples", 2, "--with-uncertainty", "--per-band")
    assert pdenet("upscale", path, "-o", tmp_path / "a.hdr", *words, "--bands", LIST).returncode == 0
    assert pdenet("upscale", few, "-o", tmp_path / "b.hdr", *words).returncode == 0
    for name in ("", "_std", "_interval_low"):
        with open_cube(tmp_path / f"a{name}.hdr") as some, open_cube(tmp_path / f"b{name}.hdr") as alone:
            assert repr(some.meta) == repr(alone.meta)  # NaN is not equal to itself
            np.testing.assert_array_equal(some.read(), alone.read())
    report = json.loads((tmp_path / "a.hdr.report.json").read_text())
    assert report["job"]["bands"] == [[0, 2], [4, 8]]
    ran = pdenet("upscale", path, "-o", tmp_path / "c.hdr", *words, "--bands", "2um:")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)


def test_an_interrupted_run_goes_on_only_with_the_same_bands(full, models, tmp_path):
    model = load_model(models / "pdenet.safetensors")

    def run(bands, **more):
        chosen = Settings(bands=bands, tile=8, **more)
        return Job(full[0], tmp_path / "fine.tif", Posterior(model, 2), chosen).run()

    begun = run(LIST)
    next(begun)
    next(begun)
    begun.close()
    with pytest.raises(OutputError, match="differs in bands"):
        list(run("450nm:500nm", resume=True))
    steps = list(run("0:2,4:8", resume=True))  # the same bands in other words
    assert steps[0][0] == 1
    with open_cube(tmp_path / "fine.tif") as fine:
        assert fine.meta.bands == 6


def test_truths_are_compared_and_learned_from_in_the_chosen_bands(full):
    path, few = full
    asked = TruthSettings(bands=LIST)
    lows = []
    for name, wish in ((path, asked), (few, TruthSettings())):
        with open_truth(name, wish) as truth:
            view = truth_view(truth, 2, wish, multiple=2, count=None)
            lows.append(make_coarse(view, Degradation(2), 0, None, alone=False).cube.read())
    np.testing.assert_array_equal(*lows)
    with open_cube(path) as whole, open_cube(few) as alone:
        some, own = Scene.read(whole, chosen=LIST), Scene.read(alone)
        assert some.facts["bands"] == [[0, 2], [4, 8]]
        np.testing.assert_array_equal(some.pixels, own.pixels)
        assert replace(some.radiometry, reason="") == replace(own.radiometry, reason="")


def test_the_commands_that_compare_and_describe_take_lists(pdenet, full, models, tmp_path):
    path, few = full
    ran = pdenet("evaluate", "--model", "bicubic", path, "--bands", LIST, "--json")
    alone = pdenet("evaluate", "--model", "bicubic", few, "--json")
    told, own = json.loads(ran.stdout), json.loads(alone.stdout)
    assert told["scenes"][0]["systems"]["bicubic"]["values"] == own["scenes"][0]["systems"]["bicubic"]["values"]
    assert told["scenes"][0]["wavelengths"] == [450, 500, 650, 700, 800]
    assert told["scenes"][0]["chosen_bands"] == [[0, 2], [4, 8]]
    assert told["scenes"][0]["bands"] == [0, 1, 4, 5, 7]  # in the file; 6 is a bad one
    assert (own["scenes"][0]["chosen_bands"], own["scenes"][0]["bands"]) == (None, [0, 1, 2, 3, 5])
    for choice in ("2:5", "550nm:650nm", "2,3,4"):
        scene = json.loads(pdenet("evaluate", path, path, "--bands", choice, "--json").stdout)["scenes"][0]
        assert (scene["chosen_bands"], scene["bands"]) == ([[2, 5]], [2, 3, 4])
    words = ("--bands", "4:", "--csv", tmp_path / "s.csv", "--html", tmp_path / "s.html")
    assert pdenet("evaluate", path, path, *words).returncode == 0
    rows = list(csv.DictReader((tmp_path / "s.csv").open()))
    assert {row["band"]: row["wavelength_nm"] for row in rows if row["band"]} == {
        "4": "650.0",
        "5": "700.0",
        "7": "800.0",
    }
    assert "Colours (bands 7, 5, 5," in (tmp_path / "s.html").read_text()
    made = ("-o", tmp_path / "m.safetensors", "--samples", 2, "--bands", LIST)
    assert pdenet("calibrate", models / "pdenet.safetensors", path, *made).returncode == 0
    facts = json.loads(pdenet("info", path, "--bands", LIST, "--json").stdout)
    assert facts["wavelengths"] == [450, 500, 650, 700, 750, 800]
    assert describe(path, bands="500nm").meta.band_names == ("b",)
