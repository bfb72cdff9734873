"""`pdenet evaluate ESTIMATE TRUTH`: scores that can be checked by hand, and files of every kind."""

import collections
import csv
import dataclasses
import itertools
import json

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.evaluation import view
from pdenet_cli.formats.hdf5.guard import GuardedArray
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.survey import Survey
from pdenet_cli.tools.evaluate import evaluate_files
from pdenet_cli.tools.truths import TruthSettings, refuse_to_replace
from tests import contests
from tests.contests import SIZE, contest, smooth
from tests.cubes import written

truth, contestants = contests.truth, contests.contestants


def test_two_files_of_different_formats_are_scored_by_the_truths_numbers(pdenet, truth, tmp_path):
    path, unit = truth
    guess = (unit + 0.02 * np.random.default_rng(1).standard_normal(unit.shape)).astype("<f4")
    written(tmp_path / "guess.tif", guess * 10000)
    ran = pdenet("evaluate", tmp_path / "guess.tif", path, "--json", "--csv", tmp_path / "scores.csv")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    values = told["scenes"][0]["systems"]["guess.tif"]["values"]
    clipped = guess.clip(0, 1).astype(np.float64), unit.clip(0, 1).astype(np.float64)
    psnr = [peak_signal_noise_ratio(t, g, data_range=1) for g, t in zip(*clipped, strict=True)]
    ssim = [structural_similarity(t, g, data_range=1, win_size=7) for g, t in zip(*clipped, strict=True)]
    assert values["MPSNR"] == pytest.approx(np.mean(psnr), abs=1e-4)  # the file's float32 numbers
    assert values["MSSIM"] == pytest.approx(np.mean(ssim), abs=1e-5)
    assert told["protocol"] == "pdenet"
    assert told["scenes"][0]["share_left_out"] == 0
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    per_band = [float(row["value"]) for row in rows if row["metric"] == "MPSNR" and row["band"]]
    assert per_band == pytest.approx(psnr, abs=1e-3)
    assert rows[-1]["wavelength_nm"] == "650.0"
    again = pdenet("evaluate", tmp_path / "guess.tif", path, "--csv", tmp_path / "scores.csv")
    assert again.returncode == 5
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (lambda unit: unit, {"reflectance_scale": 1.0}),
        (lambda unit: 100 * unit, {"reflectance_scale": 100.0}),
        (lambda unit: 10000 * unit, {"reflectance_scale": 0.5}),
        (lambda unit: (unit - 0.1) * 500, {"gains": (0.002,) * 5, "offsets": (0.1,) * 5}),
        (lambda unit: 10000 * unit, {}),
    ],
)
def test_an_estimate_is_scaled_as_its_own_header_says(truth, tmp_path, numbers, said):
    path, unit = truth
    guess = (unit + 0.02 * np.random.default_rng(1).standard_normal(unit.shape)).astype("<f4")
    written(tmp_path / "guess.hdr", np.asarray(numbers(guess), "<f4"), **said)
    values = (
        evaluate_files(tmp_path / "guess.hdr", path, None, TruthSettings()).scenes[0].systems["guess.hdr"].values
    )
    error = guess.clip(0, 1).astype(np.float64) - unit.clip(0, 1)
    assert values["RMSE"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    notes = evaluate_files(tmp_path / "guess.hdr", path, None, TruthSettings()).notes
    credible = said and said.get("reflectance_scale") != 0.5
    assert [note.split()[0] for note in notes] == ([] if credible else ["guess.hdr"])


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"gains": (1e-4,) * 5}, lambda unit: 10000 * unit),
        ({"reflectance_scale": 10000.0}, lambda unit: 10000 * unit),
        ({"gains": (0.002,) * 5, "offsets": (-0.1,) * 5}, lambda unit: 500 * (unit + 0.1)),
    ],
)
def test_physical_values_without_a_scale_are_told_from_stored_numbers(tmp_path, said, stored):
    unit = (np.rint(smooth(**SIZE) * 500) / 500).astype("<f4")  # numbers that all of them hold
    numbers = np.rint(stored(unit.astype(np.float64)))
    scaled = written(tmp_path / "scaled.hdr", numbers.astype("<i2"), **said)
    for name, values, note in (
        ("values.hdr", unit, "taken as physical values"),
        ("numbers.hdr", numbers.astype("<f4"), "read with the other cube's scaling"),
    ):
        plain = written(tmp_path / name, values)
        for pair in ((plain, scaled), (scaled, plain)):
            for settings in (TruthSettings(), TruthSettings(bands=slice(1, 4), nodata=numbers[0, 0, 0])):
                done = evaluate_files(*pair, None, settings)
                scores = done.scenes[0].systems[pair[0].name].values
                assert scores["RMSE"] < 1e-7
                assert scores["MPSNR"] >= 100
                assert [note in told and "meaningless" not in told for told in done.notes] == [True]


def test_values_that_fit_neither_reading_are_told_of(tmp_path):
    unit = smooth(**SIZE)
    scaled = written(tmp_path / "scaled.hdr", (10000 * unit).astype("<i2"), gains=(1e-4,) * 5)
    for values in (100 * unit, -unit):
        (note,) = evaluate_files(written(tmp_path / "a.hdr", values), scaled, None, TruthSettings()).notes
        assert "a.hdr" in note
        assert "scores may be meaningless" in note
        (tmp_path / "a.hdr").unlink()
        (tmp_path / "a.img").unlink()


@pytest.mark.parametrize("protocol", ["pdenet", "sspsr"])
@pytest.mark.parametrize("shift", [0, -0.5])  # reflectance, or values around 0
def test_cubes_in_different_units_that_no_header_tells_get_a_note(tmp_path, protocol, shift):
    unit = smooth(**SIZE) + shift
    plain = written(tmp_path / "plain.hdr", unit.astype("<f4"))
    other = written(tmp_path / "other.hdr", np.rint(10000 * unit).astype("<i2"))
    twice = written(tmp_path / "twice.hdr", (2 * unit).astype("<f4"))
    settings = TruthSettings(protocol=protocol)
    (note,) = evaluate_files(other, plain, None, settings).notes
    if not shift:
        assert note == (
            "The values of other.hdr are on average 10,000 times as large as those of plain.hdr: "
            "are both in the same unit? The scores may be meaningless."
        )
        (note,) = evaluate_files(plain, other, None, settings).notes
        assert "values of other.hdr are on average" in note
    assert "scores may be meaningless" in note
    assert evaluate_files(twice, plain, None, settings).notes == ()


@pytest.mark.parametrize("estimate", [{}, {"gains": (1e-4,) * 5}, {"reflectance_scale": 10000.0}])
@pytest.mark.parametrize("truth", [{}, {"gains": (1e-4,) * 5}, {"reflectance_scale": 10000.0}])
def test_no_cube_is_surveyed_twice(tmp_path, monkeypatch, estimate, truth):
    numbers = (10000 * smooth(**SIZE)).astype("<f4")
    paths = written(tmp_path / "guess.hdr", numbers, **estimate), written(tmp_path / "truth.hdr", numbers, **truth)
    usual, seen = Survey.of, []
    monkeypatch.setattr(Survey, "of", lambda cube, *size: seen.append(cube.path.stem) or usual(cube, *size))
    evaluate_files(*paths, None, TruthSettings())
    assert seen.count("truth") == 1
    assert seen.count("guess") <= 1


def test_a_cube_beside_itself_is_scaled_alike_whatever_it_says(tmp_path):
    path = written(tmp_path / "a.hdr", (1000 * smooth(**SIZE)).astype("<f4"))
    same = evaluate_files(path, path, None, TruthSettings())
    assert (same.scenes[0].systems["a.hdr"].values["RMSE"], same.notes) == (0, ())


def test_no_error_at_all_is_not_an_unknown_score_in_json(pdenet, tmp_path):
    path = written(tmp_path / "a.hdr", smooth(3, 5, 20).astype("<f4"))  # too few rows for MSSIM
    ran = pdenet("evaluate", path, path, "--json")
    scores = json.loads(ran.stdout, parse_constant=pytest.fail)["mean"]["a.hdr"]
    assert (scores["PSNR"], scores["MPSNR"], scores["MSSIM"], scores["RMSE"]) == ("inf", "inf", None, 0)


def test_an_estimate_may_have_another_variable_than_the_truth(truth, tmp_path):
    _, unit = truth
    three, four = (np.ascontiguousarray(unit.transpose(1, 2, 0)[:, :, :bands]) for bands in (3, 4))
    savemat(tmp_path / "guess.mat", {"mine": four})
    savemat(tmp_path / "truth.mat", {"hsi": four, "other": three})
    same = evaluate_files(tmp_path / "guess.mat", tmp_path / "truth.mat", None, TruthSettings(variable="hsi"))
    assert same.scenes[0].systems["guess.mat"].values["RMSE"] == 0
    with pytest.raises(FormatError, match=r"truth\.mat: no variable"):
        evaluate_files(tmp_path / "truth.mat", tmp_path / "guess.mat", None, TruthSettings(variable="mine"))


def test_cubes_are_read_and_compared_as_the_user_says(truth, tmp_path):
    _, unit = truth
    for name, more in (("a.h5", 0), ("b.h5", 0.01)):
        mine = unit + np.float32(more)
        mine[:, :5] = -7
        with h5py.File(tmp_path / name, "w") as file:
            file["mine"], file["other"] = mine.transpose(1, 2, 0), unit[:, :9]
    rmse = {}
    for high in (1, 2):
        settings = TruthSettings(variable="mine", axes="rcb", value_range=(0, high), bands=slice(1, 4), nodata=-7)
        done = evaluate_files(tmp_path / "b.h5", tmp_path / "a.h5", None, settings)
        rmse[high] = done.scenes[0].systems["b.h5"].values["RMSE"]
        assert (done.scenes[0].rows, done.scenes[0].columns, len(done.scenes[0].bands)) == (50, 41, 3)
        assert done.scenes[0].share_left_out == pytest.approx(5 / 50)
        told = done.to_dict()
        assert (told["range"], told["nodata"]) == ([0, high], -7)
        assert told["scenes"][0]["chosen_bands"] == [[1, 4]]
        assert (told["variable"], told["axes"]) == ("mine", "rcb")
    assert rmse[1] == pytest.approx(2 * rmse[2], rel=0.01)


def test_wavelengths_are_those_of_the_bands_that_are_compared(truth, tmp_path):
    _, unit = truth
    waves = (450.0, 500.0, 550.0, 600.0, 650.0)
    told = dict(wavelengths=waves, wavelength_units="nm", good_bands=(False, True, True, False, True))
    path = written(tmp_path / "a.hdr", unit, **told)
    assert evaluate_files(path, path, None, TruthSettings()).scenes[0].wavelengths == (500, 550, 650)


@pytest.mark.parametrize(("shift", "said"), [(4, False), (6, True)])
def test_bands_that_are_not_the_same_are_told_of(tmp_path, shift, said):
    centres = np.arange(400.0, 450, 10)
    pixels = smooth(**SIZE)
    paths = [
        written(tmp_path / name, pixels, wavelengths=tuple(centres + more), wavelength_units="nm")
        for name, more in (("a.hdr", 0), ("b.hdr", shift))
    ]
    notes = evaluate_files(*paths, None, TruthSettings()).notes
    assert any("wavelengths" in note and f"{shift} nm" in note for note in notes) == said


UTM = "EPSG:32616"

GRID = (5e5, 30.0, 0.0, 4e6, 0.0, -30.0)


@pytest.mark.parametrize(
    ("transform", "crs", "said"),
    [
        (GRID, UTM, ""),
        ((5e5 + 2, *GRID[1:]), UTM, ""),
        ((5e5 + 9, *GRID[1:]), UTM, "are up to 0.3 pixels apart on the ground"),
        ((*GRID[:3], 4e6 - 60, *GRID[4:]), UTM, "are up to 2 pixels apart on the ground"),
        ((5e5, 30.3, 0.0, 4e6, 0.0, -30.0), UTM, "are up to 0.406 pixels apart on the ground"),  # at the far end
        (GRID, "EPSG:32617", "different coordinate systems, EPSG:32616 and EPSG:32617"),
        (GRID, 'PROJCS["WGS 84 / UTM zone 16N"]', ""),
        ((-87.0, 3e-4, 0.0, 36.1, 0.0, -3e-4), 'GEOGCS["WGS 84"]', "do not cover the same ground"),
        (None, None, ""),
    ],
)
def test_cubes_of_other_places_are_told_of(tmp_path, transform, crs, said):
    places = Georeference(GRID, UTM), Georeference(transform, crs)
    paths = [
        written(tmp_path / name, smooth(**SIZE).astype("<f4"), georeference=place)
        for name, place in zip(("a.tif", "b.tif"), places, strict=True)
    ]
    notes = [note for note in evaluate_files(*paths, None, TruthSettings()).notes if "The two" in note]
    assert [said in note for note in notes] == ([True] if said else [])


def test_turned_grids_are_compared_in_their_own_pixels():
    turned = Georeference((0.0, 0.0, 2.0, 0.0, 4.0, 0.0))  # columns go up by 4, rows right by 2
    moved = dataclasses.replace(turned, transform=(1.0, 0.0, 2.0, 1.0, 4.0, 0.0))
    assert turned.max_corner_offset(moved, 7, 9) == pytest.approx(0.5)
    flat = Georeference((0.0,) * 6)
    assert flat.max_corner_offset(turned, 7, 9) == turned.max_corner_offset(Georeference(), 7, 9) == 0


def test_a_truth_with_holes_that_nobody_declared_is_told_of(contestants, tmp_path):
    pixels = smooth(**SIZE).astype("f4")
    pixels[:, :8] = -9999
    path = written(tmp_path / "a.hdr", pixels)
    notes = contest(contestants, ("plain",)).run([path]).notes
    assert ["a.hdr" in note for note in notes if "`nodata` -9999" in note] == [True]
    assert any("`nodata` -9999" in note for note in evaluate_files(path, path, None, TruthSettings()).notes)


def test_cubes_of_different_shapes_are_refused_in_a_line(truth, tmp_path):
    path, unit = truth
    other = written(tmp_path / "small.hdr", unit[:, :-1])
    with pytest.raises(UsageError, match=r"5 x 49 x 41 and .* 5 x 50 x 41 .*same shape"):
        evaluate_files(other, path, None, TruthSettings())


def test_nodata_and_bad_bands_are_left_out_and_their_share_is_told(tmp_path):
    unit = smooth(**SIZE).astype("<f4")
    guess = (unit + 0.01).astype("<f4")
    hidden = unit.copy()
    hidden[:, :10] = -9
    hidden[3] = np.random.default_rng(0).random(hidden.shape[1:])
    guess[:, 40:] = np.nan
    good = (True, True, True, False, True)
    scene = written(tmp_path / "truth.hdr", hidden, nodata=-9.0, good_bands=good)
    result = evaluate_files(written(tmp_path / "guess.hdr", guess), scene, None, TruthSettings()).scenes[0]
    assert result.bands == (0, 1, 2, 4)
    assert result.bands_left_out == 1
    assert result.share_left_out == pytest.approx(1 - 4 / 5 * 30 / 50)
    expected = np.sqrt(np.mean((guess.clip(0, 1) - unit)[[0, 1, 2, 4], 10:40].astype(np.float64) ** 2))
    assert result.systems["guess.hdr"].values["RMSE"] == pytest.approx(expected, abs=1e-6)
    assert np.isfinite(result.systems["guess.hdr"].values["MSSIM"])


@pytest.mark.parametrize(("filling", "nodata"), [(0, None), (np.nan, None), (-9, -9.0)])
def test_bands_that_an_estimate_marks_bad_are_left_out_with_a_note(tmp_path, filling, nodata):
    unit = smooth(**SIZE).astype("<f4")
    guess = unit + np.float32(0.01)
    guess[[1, 3]] = filling
    good = (True, False, True, False, True)
    scene = written(tmp_path / "truth.hdr", unit, good_bands=(True, True, True, False, True))
    estimate = written(tmp_path / "guess.hdr", guess, nodata=nodata, good_bands=good)
    done = evaluate_files(estimate, scene, None, TruthSettings(look=True))
    (result,) = done.scenes
    assert (result.bands, result.bands_left_out, result.share_left_out) == ((0, 2, 4), 2, pytest.approx(2 / 5))
    assert result.systems["guess.hdr"].values["RMSE"] == pytest.approx(0.01, rel=0.01)
    assert done.notes == ("guess.hdr: 1 band that it marks bad is left out of the scores.",)
    bad = written(tmp_path / "bad.hdr", guess, good_bands=(False, False, False, True, False))
    with pytest.raises(UsageError, match="nothing to compare; every band"):
        evaluate_files(bad, scene, None, TruthSettings())


def test_an_estimate_has_holes_of_its_own(tmp_path):
    unit = smooth(**SIZE).astype("<f4")
    guess = unit + np.float32(0.01)
    guess[:, :10] = -5
    paths = written(tmp_path / "guess.hdr", guess, nodata=-5.0), written(tmp_path / "truth.hdr", unit, nodata=-7.0)
    result = evaluate_files(*paths, None, TruthSettings()).scenes[0]
    assert result.share_left_out == pytest.approx(10 / 50)
    assert result.systems["guess.hdr"].values["RMSE"] <= 0.0101


def test_nothing_in_common_is_an_error(tmp_path):
    unit = smooth(3, 20, 20).astype("<f4")
    nothing = written(tmp_path / "nothing.hdr", np.full_like(unit, np.nan))
    with pytest.raises(UsageError, match="nothing to compare"):
        evaluate_files(nothing, written(tmp_path / "truth.hdr", unit), None, TruthSettings())


def test_blocks_of_any_size_give_the_same_scores(truth, tmp_path, monkeypatch):
    path, unit = truth
    guess = written(tmp_path / "guess.hdr", (unit * 9000).astype("<f4"))
    whole = evaluate_files(guess, path, None, TruthSettings(look=True)).scenes[0]
    monkeypatch.setattr(
        view.View, "blocks", lambda self, multiple=1: self.scene.blocks(7 * multiple, 11 * multiple)
    )
    cut = evaluate_files(guess, path, None, TruthSettings(look=True)).scenes[0]
    assert cut.systems["guess.hdr"].values == pytest.approx(whole.systems["guess.hdr"].values, rel=1e-9)
    np.testing.assert_array_equal(cut.look.errors["guess.hdr"], whole.look.errors["guess.hdr"])


@pytest.mark.parametrize("chunks", [(1, 150, 140), (4, 16, 16), (2, 1, 140)])
@pytest.mark.parametrize("part", ["whole", "lower-right"])
def test_a_compressed_truth_is_decoded_once_for_its_scores_and_once_for_its_pictures(
    tmp_path, monkeypatch, chunks, part
):
    unit = smooth(4, 150, 140).astype("<f4")
    guess = written(tmp_path / "guess.hdr", (unit * 0.9).astype("<f4"))
    plain = written(tmp_path / "plain.hdr", unit)
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file.create_dataset("cube", data=unit, chunks=chunks, compression="gzip")
    monkeypatch.setattr(view, "BLOCK_VALUES", 1)  # blocks of 64 x 64 pixels
    monkeypatch.setattr("pdenet_cli.evaluation.look.LONGEST_SIDE", 60)
    settings = TruthSettings(look=True, part=part, axes="brc")
    expected = evaluate_files(guess, plain, None, settings).scenes[0]
    read, decoded = GuardedArray.__getitem__, []

    def counted(array, key):
        ends = zip(key, array.shape, chunks, strict=True)
        touched = [range(s.indices(size)[0] // chunk, -(-s.indices(size)[1] // chunk)) for s, size, chunk in ends]
        decoded.extend(itertools.product(*touched))
        return read(array, key)

    monkeypatch.setattr(GuardedArray, "__getitem__", counted)
    for strip in (view.STRIP_BYTES, 4 * 140 * 4 * 100):  # all rows, or 100 of them
        decoded.clear()
        monkeypatch.setattr(view, "STRIP_BYTES", strip)
        found = evaluate_files(guess, tmp_path / "packed.h5", None, settings).scenes[0]
        assert found.systems["guess.hdr"].values == expected.systems["guess.hdr"].values
        np.testing.assert_array_equal(found.look.errors["guess.hdr"], expected.look.errors["guess.hdr"])
        np.testing.assert_array_equal(found.look.spectra["truth"], expected.look.spectra["truth"])
        often = max(collections.Counter(decoded).values())
        assert often <= 3 if strip > 1e6 else often <= 9  # once by the survey, and in parts for single spectra


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (1, 1, 5)])
def test_the_smallest_cubes_are_scored(pdenet, tmp_path, shape):
    paths = [
        written(tmp_path / name, np.full(shape, number, "<f4"), georeference=Georeference(GRID, UTM))
        for name, number in (("guess.hdr", 1), ("truth.hdr", 2))
    ]
    ran = pdenet("evaluate", *paths, "--html", tmp_path / "page.html")
    assert ran.returncode == 0, ran.stderr
    assert "0.50000" in ran.stdout  # RMSE, where 0..1 is 0..2


@pytest.mark.parametrize(("protocol", "told"), [("pdenet", "clipped to 0..1"), ("sspsr", "not clipped")])
def test_whether_values_were_clipped_is_told(pdenet, truth, tmp_path, protocol, told):
    ran = pdenet("evaluate", truth[0], truth[0], "--protocol", protocol, "--html", tmp_path / "page.html")
    said = f"protocol {protocol} (values {told})"
    assert said in ran.stdout
    assert said in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_ergas_knows_the_scale(truth, tmp_path):
    path, unit = truth
    guess = written(tmp_path / "guess.hdr", (unit * 9000).astype("<f4"))
    two, four = (
        evaluate_files(guess, path, s, TruthSettings()).scenes[0].systems["guess.hdr"].values for s in (2, 4)
    )
    assert two["ERGAS"] == pytest.approx(2 * four["ERGAS"])


def test_one_cube_without_a_model_is_not_enough(pdenet, truth):
    ran = pdenet("evaluate", truth[0])
    assert ran.returncode == 2
    assert "ESTIMATE and TRUTH" in ran.stderr


@pytest.mark.parametrize("option", ["--html", "--csv"])
def test_a_cube_is_never_replaced_by_its_own_scores(pdenet, truth, tmp_path, option):
    path, _ = truth
    before = path.with_suffix(".img").read_bytes()
    ran = pdenet("evaluate", path, path, option, path.with_suffix(".img"), "--overwrite")
    assert ran.returncode == 5
    assert "is the scene itself" in ran.stderr
    assert path.with_suffix(".img").read_bytes() == before


def test_two_outputs_of_one_name_are_refused(pdenet, truth, tmp_path):
    ran = pdenet("evaluate", truth[0], truth[0], "--html", tmp_path / "z", "--csv", tmp_path / "z")
    assert ran.returncode == 2
    assert "the same name" in ran.stderr


def test_no_output_replaces_what_lies_beside_a_scene_or_another_output(tmp_path):
    path = written(tmp_path / "a.tif", smooth(3, 12, 12).astype("<f4"))
    lines = "ENVI\nsamples = 12\nlines = 12\nbands = 3\ndata type = 4\n"
    path.with_suffix(".hdr").write_text(lines + "wavelength = {500, 501, 502}\n")
    for output in (path, path.with_suffix(".hdr")):
        with pytest.raises(OutputError, match="is the scene itself"):
            refuse_to_replace([output], [path], TruthSettings())
    (tmp_path / "deeper").mkdir()
    with pytest.raises(UsageError, match="the same name"):
        refuse_to_replace([tmp_path / "b.csv", tmp_path / "deeper" / ".." / "b.csv"], [path], TruthSettings())
    refuse_to_replace([tmp_path / "b.csv", tmp_path / "b.html"], [path], TruthSettings())
