"""`pdenet evaluate --model`: models beside bicubic on truths made coarse, as a table, a page and JSON."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.io import imread
from skimage.metrics import peak_signal_noise_ratio

from pdenet_cli import Radiometry, Survey, open_cube
from pdenet_cli.cli.console import out
from pdenet_cli.cli.evaluate import _gain
from pdenet_cli.degradation import Degradation, bicubic_down, bicubic_up
from pdenet_cli.errors import FormatError, ModelError, OutputError, UsageError
from pdenet_cli.evaluation import study, trial, view
from pdenet_cli.evaluation.metrics import PROTOCOLS
from pdenet_cli.models.model import Model, load_model, save_model
from pdenet_cli.models.networks.pdenet import PDENet, TemplateNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.pages.chances import plot_chances
from pdenet_cli.pages.evaluation import evaluation_page
from pdenet_cli.tools import truths
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.calibrate import calibrate
from pdenet_cli.tools.truths import Truth, TruthSettings, truth_view
from pdenet_cli.training.data import sha256_of
from tests import contests
from tests.contests import CONFIG, SIZE, contest, smooth
from tests.cubes import written
from tests.html import check_page

truth, contestants = contests.truth, contests.contestants


# Models.


def test_models_stand_beside_bicubic_on_the_truth_made_coarse(truth, contestants):
    path, unit = truth
    evaluation = contest(contestants, ("chance", "plain")).run([path])
    assert tuple(evaluation.scenes[0].systems) == ("bicubic", "chance", "plain")
    cropped = torch.from_numpy(unit[:, :48, :40])
    low = bicubic_down(cropped, 4)
    with torch.no_grad():
        torch.manual_seed(0)
        chance, plain = PDENet(CONFIG), TemplateNet(CONFIG)
        draw = chance.draw(torch.Generator().manual_seed(3), 2)
        estimates = {
            "bicubic": bicubic_up(low, 4),
            "chance": torch.stack([chance(low[None], draw[i])[0] for i in range(2)]).mean(0),
            "plain": plain(low[None])[0],
        }
    for name, estimate in estimates.items():
        pairs = zip(cropped.double().numpy(), estimate.clamp(0, 1).double().numpy(), strict=True)
        psnr = np.mean([peak_signal_noise_ratio(t, e, data_range=1) for t, e in pairs])
        assert evaluation.scenes[0].systems[name].values["MPSNR"] == pytest.approx(psnr, abs=1e-4), name


def test_small_memory_gives_the_same_scores(contestants, tmp_path):
    path = written(tmp_path / "large.hdr", smooth(3, 160, 120).astype("<f4"))
    tiles = []
    whole = contest(contestants).run([path])
    tiled = contest(contestants, memory=4_000_000).run(
        [path], lambda text, done, total: tiles.append((text, total))
    )
    assert max(total for _, total in tiles) > 1
    assert tiled.means()["chance"] == pytest.approx(whole.means()["chance"], rel=1e-5)


def test_a_truth_is_made_coarse_in_the_memory_that_is_given(truth, contestants, tmp_path, monkeypatch):
    path, _ = truth
    read, planes = view.View.read, []

    def counted(self, window, some=None):
        if some is not None:
            planes.append(len(some))
        return read(self, window, some)

    monkeypatch.setattr(view.View, "read", counted)
    monkeypatch.setattr(trial, "BYTES_PER_VALUE", 1000)  # or a scene this small would need many more bands
    plane = 1000 * 48 * 40
    scores = []
    for memory, wanted in ((None, [5]), (2.5 * plane, [2, 2, 1]), (0.5 * plane, [1] * 5)):
        scores.append(contest(contestants, (), memory=memory and int(memory)).run([path]).means()["bicubic"])
        assert planes == wanted
        planes.clear()
    assert scores[0] == scores[1] == scores[2]
    calibrate(
        contestants["chance"], [path], tmp_path / "m.safetensors", TruthSettings(memory=2 * plane), samples=2
    )
    assert planes[1:4] == [2, 2, 1]  # after the look at how sharp the scene is


def test_the_held_out_part_alone_is_scored_as_if_it_were_a_scene_of_its_own(truth, contestants, tmp_path):
    path, unit = truth
    part = contest(contestants, part="lower-right-alone").run([path]).scenes[0]
    assert (part.row, part.column, part.rows, part.columns) == (25, 21, 24, 20)
    alone = written(tmp_path / "part.hdr", unit[:, 25:49, 21:41])
    again = contest(contestants).run([alone]).scenes[0]
    for name, scores in part.systems.items():
        assert scores.values == pytest.approx(again.systems[name].values, rel=1e-4), name


@pytest.mark.parametrize("memory", [None, 3_000_000])
def test_the_held_out_part_is_sharpened_as_in_its_scene(truth, contestants, memory):
    path, unit = truth
    scores = contest(contestants, part="lower-right", memory=memory).run([path]).scenes[0].systems
    scene = torch.from_numpy(unit[:, 1:49, 1:41])  # the pixels of the coarse grid on which the part lies
    low = bicubic_down(scene, 4)
    with torch.no_grad():
        torch.manual_seed(0)
        network = PDENet(CONFIG)
        draw = network.draw(torch.Generator().manual_seed(3), 2)
        estimates = {
            "bicubic": bicubic_up(low, 4),
            "chance": torch.stack([network(low[None], draw[i])[0] for i in range(2)]).mean(0),
        }
    target = unit[:, 25:49, 21:41].astype(np.float64)
    for name, estimate in estimates.items():
        own = estimate.clamp(0, 1).double().numpy()[:, 24:48, 20:40]
        psnr = np.mean([peak_signal_noise_ratio(t, e, data_range=1) for t, e in zip(target, own, strict=True)])
        assert scores[name].values["MPSNR"] == pytest.approx(psnr, abs=1e-4), name


def test_the_models_own_degradation_makes_the_input(truth, contestants, tmp_path):
    path, _ = truth
    spec = ModelSpec(
        "template", dataclasses.asdict(CONFIG), 4, {"scale": 4, "kernel": "gaussian", "fwhm": 1.5}, "test"
    )
    save_model(tmp_path / "soft.safetensors", Model(spec, TemplateNet(CONFIG)))
    soft = contest(contestants | {"soft": str(tmp_path / "soft.safetensors")}, ("soft",)).run([path])
    sharp = contest(contestants).run([path])
    assert soft.job["degradation"]["fwhm"] == 1.5
    assert soft.means()["bicubic"]["MPSNR"] != pytest.approx(sharp.means()["bicubic"]["MPSNR"], abs=0.1)
    with pytest.raises(UsageError, match=r"separately, or set `kernel` and `noise` for both"):
        contest(contestants | {"soft": str(tmp_path / "soft.safetensors")}, ("chance", "soft"))
    both = contest(
        contestants | {"soft": str(tmp_path / "soft.safetensors")}, ("chance", "soft"), kernel="bicubic"
    )
    assert both.degradation == Degradation(4)
    same = contest(contestants | {"soft": str(tmp_path / "soft.safetensors")}, ("soft",), kernel="gaussian")
    assert same.degradation.fwhm == 1.5


def test_every_scene_has_its_own_noise_which_follows_the_seed_and_not_the_memory(tmp_path):
    noises = []
    for scene, seed, memory in ((0, 0, None), (0, 0, 1), (0, 1, None), (1, 0, None)):
        path = written(tmp_path / f"{len(noises)}.hdr", smooth(**SIZE, seed=scene).astype("<f4"))
        with open_cube(path) as cube:
            whole = view.View.whole(cube)
            clean, noisy = (
                trial.make_coarse(whole, Degradation(4, noise=n), seed, memory).cube.read() for n in (0.0, 0.1)
            )
        noises.append((noisy - clean).ravel())
    np.testing.assert_array_equal(noises[0], noises[1])
    assert np.std(noises[0]) == pytest.approx(0.1, rel=0.1)
    for other in noises[2:]:
        assert abs(np.corrcoef(noises[0], other)[0, 1]) < 0.2


def test_another_lens_and_noise_than_the_models_own_are_asked_for(truth, contestants):
    path, pixels = truth
    asked = contest(contestants, fwhm=1.5, noise=0.02).run([path])
    assert asked.job["degradation"] == {"scale": 4, "kernel": "gaussian", "fwhm": 1.5, "noise": 0.02}
    assert asked.problem == "x4 gaussian of fwhm 1.5, noise 0.02"
    assert (
        list(asked.notes)
        == asked.to_dict()["notes"]
        == ["chance was trained for x4 bicubic, not the degradation of this run."]
    )
    assert asked.notes[0] in evaluation_page(asked)
    high = torch.from_numpy(pixels[:, :48, :40])
    expected = {}
    for noise in (0.0, 0.02):
        low = Degradation(4, "gaussian", 1.5, noise)(high, torch.Generator().manual_seed(3))
        error = (bicubic_up(low, 4).clamp(0, 1) - high).double().square().mean((1, 2))
        expected[noise] = float(-10 * error.log10().mean())
    assert expected[0.0] > expected[0.02] + 0.5  # dB
    assert asked.means()["bicubic"]["MPSNR"] == pytest.approx(expected[0.02], abs=0.2)
    assert contest(contestants, fwhm=1.5).run([path]).means()["bicubic"]["MPSNR"] == pytest.approx(
        expected[0.0], abs=1e-3
    )
    assert contest(contestants, noise=0.02).degradation == Degradation(4, noise=0.02)
    usual = contest(contestants).run([path])
    assert usual.problem == "x4 bicubic"
    assert not usual.notes


def test_more_draws_are_studied_in_disjoint_sets_from_one_run(truth, contestants):
    path, _ = truth
    evaluation = contest(contestants, ("chance", "plain"), samples=(1, 2, 3)).run([path])
    assert set(evaluation.studies) == {"chance"}  # the other has no chance
    found = evaluation.studies["chance"]
    assert [(s.samples, len(s.sets)) for s in found.sampled] == [(1, 9), (2, 4), (3, 3)]
    first = found.sampled[-1].sets[0]
    assert first["MPSNR"] == pytest.approx(evaluation.means()["chance"]["MPSNR"], rel=1e-9)
    alone = contest(contestants, samples=(2,)).run([path]).means()["chance"]
    assert found.sampled[1].sets[0]["SAM"] == pytest.approx(alone["SAM"], rel=1e-6)
    assert found.sampled[0].std("MPSNR") > 0
    with torch.no_grad():
        torch.manual_seed(0)
        low = bicubic_down(torch.from_numpy(truth[1][:, :48, :40]), 4)
        certain = PDENet(CONFIG)(low[None])[0].clamp(0, 1).double().numpy()
    pairs = zip(truth[1][:, :48, :40].astype(np.float64), certain, strict=True)
    psnr = np.mean([peak_signal_noise_ratio(t, e, data_range=1) for t, e in pairs])
    assert found.certain["MPSNR"] == pytest.approx(psnr, abs=1e-4)


def test_a_dead_band_leaves_scores_and_gains_finite(contestants, tmp_path):
    pixels = smooth(**SIZE).astype("<f4")
    pixels[2] = 0
    pixels[4] = 0.3  # which a degradation does not give back to the last bit
    path = written(tmp_path / "dead.hdr", pixels)
    told = contest(contestants).run([path]).to_dict()
    assert all(np.isfinite(values["MPSNR"]) for values in told["mean"].values())
    # As in the scene that is sharpened, no model sees such bands; and what shows nothing is no success.
    alive = contest(contestants).run([written(tmp_path / "alive.hdr", pixels[[0, 1, 3]])])
    assert told["mean"] == alive.to_dict()["mean"]
    assert told["scenes"][0]["bands_left_out"] == 2


def test_a_scene_too_small_for_a_metric_does_not_take_it_from_the_others(pdenet, truth, contestants, tmp_path):
    small = written(tmp_path / "small.hdr", smooth(3, 4, 4).astype("<f4"))
    plain = written(tmp_path / "plain.hdr", np.full((3, 8, 8), 0.5, "<f4"))
    many, alone = (contest(contestants).run([truth[0], *more]) for more in ([small], []))
    assert many.partly == {"MSSIM": 1, "UIQI": 1}
    for system in alone.means():
        assert many.means()[system]["MSSIM"] == pytest.approx(alone.means()[system]["MSSIM"])
    plainer = contest(contestants).run([truth[0], plain])
    assert plainer.partly["MPSNR"] == plainer.partly["CC"] == 1  # bicubic makes no error there
    assert plainer.means()["chance"]["MPSNR"] == pytest.approx(alone.means()["chance"]["MPSNR"])
    ran = pdenet("evaluate", "--model", contestants["chance"], "--samples", 2, truth[0], small)
    assert "Means over fewer than 2 scenes: MSSIM over 1" in ran.stdout


def test_an_output_in_a_folder_that_is_no_scene_is_no_matter(pdenet, truth, contestants, tmp_path):
    (tmp_path / "folder").mkdir()
    csv = tmp_path / "folder" / "o.csv"
    ran = pdenet("evaluate", "--model", "bicubic", truth[0], tmp_path / "folder", "--csv", csv)
    assert ran.returncode == 7, ran.stderr  # the folder is no cube; the scene is scored
    assert csv.exists()


def test_bicubic_alone_is_scored_at_any_scale(pdenet, truth):
    ran = pdenet("evaluate", "--model", "bicubic", "--scale", 3, "--json", truth[0])
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["scale"] == 3


def test_the_json_holds_scores_pixels_draws_and_what_failed(truth, contestants, tmp_path):
    (tmp_path / "broken.tif").write_text("no picture")
    asked = contest(contestants, ("chance",), samples=(1, 2), look=True, pixels=((3, 4),))
    evaluation = asked.run([truth[0], tmp_path / "broken.tif"])
    told = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert told["scenes"][0]["pixels"] == [{"row": 3, "column": 4, "why": "chosen"}]
    assert [(row["samples"], row["sets"]) for row in told["sampling"]["chance"]["draws"]] == [(1, 6), (2, 3)]
    study = evaluation.studies["chance"].sampled[0]
    assert told["sampling"]["chance"]["draws"][0]["SAM"] == {"mean": study.mean("SAM"), "std": study.std("SAM")}
    assert list(told["failed"]) == ["broken.tif"]
    assert told["metrics"]["SAM"]["better"] == "lower"
    assert told["mean"]["chance"] == told["scenes"][0]["systems"]["chance"]["values"]


def test_a_network_without_chance_gives_as_many_samples_as_were_asked_for(truth, contestants):
    listed, alone = (contest(contestants, ("plain",), n, ensemble="flips").run([truth[0]]) for n in ((1, 2), (2,)))
    assert listed.means()["plain"] == alone.means()["plain"]


def test_a_study_in_tiles_is_the_study_of_the_whole(contestants, tmp_path):
    path = written(tmp_path / "large.hdr", smooth(3, 160, 120).astype("<f4"))
    whole, tiled = (
        contest(contestants, samples=(1, 2), memory=memory).run([path]) for memory in (None, 6_000_000)
    )
    pairs = zip(whole.studies["chance"].sampled, tiled.studies["chance"].sampled, strict=True)
    for one, other in pairs:
        for metric in study.METRICS:
            assert other.mean(metric) == pytest.approx(one.mean(metric), rel=1e-5)


def test_what_is_written_again_in_smaller_windows_counts_once(truth, tmp_path):
    path, unit = truth
    empty = PROTOCOLS["pdenet"].tally(4, study.METRICS)
    with open_cube(path) as cube:
        target = view.View(cube, Radiometry.of(cube.meta, Survey.of(cube)), tuple(range(5)), cube.meta.window)
        guess = unit * np.float32(0.9)
        once, again = (study.score_sinks(target, empty, [(1, 0)])[1, 0] for _ in range(2))
        once.write(target.scene, guess)
        again.write(target.scene, np.zeros_like(guess))
        for window in target.scene.blocks(30, 41):
            again.write(window, guess[(slice(None), *window.slices)])
        assert again.scores() == pytest.approx(once.scores(), rel=1e-9)


def test_sets_of_draws_share_none():
    for samples in ((1, 2, 5, 10, 20), (3, 7), (4,)):
        sets: dict[int, list[int]] = {}
        for count, start in study.draw_sets(samples, study.draws_needed(samples)):
            sets.setdefault(count, []).extend(range(start, start + count))
        assert sorted(sets) == sorted(samples)
        for draws in sets.values():
            assert len(draws) == len(set(draws))
            assert max(draws) < study.draws_needed(samples)


@pytest.mark.parametrize(
    ("names", "settings", "error", "says"),
    [
        (("chance", "double"), {}, UsageError, "separately"),
        (("chance", "chance"), {}, UsageError, "twice"),
        (("chance",), {"protocol": "mine"}, UsageError, "choose pdenet or paper or mcnet or sspsr"),
        (("chance",), {"part": "middle"}, UsageError, "lower-right"),
        (("chance",), {"bands": slice(7, 9)}, UsageError, "Bands"),
        (("chance",), {"look": True, "pixels": ((48, 0),)}, UsageError, "rows 0 to 47"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(truth, contestants, names, settings, error, says):
    with pytest.raises(error, match=says):
        contest(contestants, names, **settings).run([truth[0]])


def test_a_scene_too_small_or_without_a_good_band_is_refused(contestants, tmp_path):
    small = written(tmp_path / "small.hdr", smooth(3, 3, 9).astype("<f4"))
    with pytest.raises(UsageError, match="too few"):
        contest(contestants).run([small])
    with pytest.raises(UsageError, match="too few for a lower-right part"):
        contest(contestants, part="lower-right").run(
            [written(tmp_path / "s.hdr", smooth(3, 30, 30).astype("<f4"))]
        )
    bad = written(tmp_path / "bad.hdr", smooth(3, 30, 30).astype("<f4"), good_bands=(False,) * 3)
    with pytest.raises(FormatError, match="every band"):
        contest(contestants).run([bad])


# The command.


def test_the_command_prints_a_table_and_writes_a_page(pdenet, truth, contestants, tmp_path):
    path, _ = truth
    other = written(tmp_path / "other.tif", (smooth(seed=2, **SIZE) * 255).astype("u1"))
    (tmp_path / "broken.tif").write_text("no picture")
    page = tmp_path / "page.html"
    chosen = (
        "--model",
        contestants["chance"],
        "--model",
        contestants["plain"],
        "--samples",
        "1,2",
        "--html",
        page,
    )
    ran = pdenet("evaluate", *chosen, "--pixel", 3, 4, "--pixel", 30, 20, path, other, tmp_path / "broken.tif")
    assert ran.returncode == 7, ran.stderr
    assert "broken.tif" in ran.stderr
    assert "Traceback" not in ran.stderr
    for words in (
        "mean of 2 scenes",
        "scene.hdr",
        "other.tif",
        "bicubic",
        "gain",
        "more draws",
        "every mask at 1",
    ):
        assert words in ran.stdout
    text = page.read_text()
    assert "row 30, column 20" in text
    assert check_page(text)["images"] == 2 * (5 + 3 + 1)  # the degraded input is among the pictures


@pytest.mark.parametrize(
    ("name", "head", "rise", "fall"),
    [
        ("MPSNR", "dB ↑", "+0.500", "!-0.500"),
        ("SAM", "° ↓", "!+0.500", "-0.500"),
        ("CC", "↑", "+0.5000", "!-0.5000"),
    ],
)
def test_a_loss_is_marked_whichever_way_is_better(name, head, rise, fall):
    metric = next(metric for metric in PROTOCOLS["pdenet"].metrics(4) if metric.name == name)
    assert metric.direction == head
    assert [_gain(metric, value, 1.0) for value in (1.5, 0.5)] == [rise, fall]
    assert "!" not in _gain(metric, 1.0, 1.0) + _gain(metric, np.nan, 1.0)


def test_the_table_says_what_its_mark_means(pdenet, truth, contestants):
    ran = pdenet("evaluate", "--model", contestants["plain"], truth[0])
    assert re.search(r"gain +!-\d", ran.stdout)
    assert "gain: over bicubic, ! where worse" in ran.stdout


def test_the_help_names_every_metric(pdenet):
    said = pdenet("evaluate", "--help").stdout.replace(",", " ").split()
    assert not {metric.name for metric in PROTOCOLS["pdenet"].metrics(4)} - {*said}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [80, 100])
def test_every_metric_is_printed_except_on_a_narrow_terminal(pdenet, truth, monkeypatch, terminal, width):
    monkeypatch.setattr(out, "_force_terminal", terminal)
    monkeypatch.setattr(out, "_width", width)
    said = pdenet("evaluate", "--model", "bicubic", "--protocol", "mcnet", truth[0]).stdout
    left_out = {"UIQI"} if terminal and width == 80 else set()
    assert {metric.name for metric in PROTOCOLS["mcnet"].metrics(4) if metric.name not in said} == left_out
    assert "…" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--samples", "none"], 2, "--samples"),
        (["--pixel", "3", "4"], 2, "--html"),
        (["--pixel", "a", "4", "--html", "x.html"], 2, "--pixel a 4"),
        (["--pixel", "3", "--html", "x.html"], 2, "pdenet: --pixel 3 --html: not a row and a column"),
        (["--pixel", "--html", "x.html"], 2, "pdenet: --pixel --html x.html: not a row and a column"),
        (["--html", "x.html", "--pixel", "3"], 2, "pdenet: --pixel 3: not a row and a column"),
        (["--html", "x.html", "--pixel", "-3", "4"], 2, "pdenet: --pixel -3 4: not a row and a column"),
        (["--scale", "8"], 2, "x4"),
        (["--threads", "0"], 2, "--threads 0"),
        (["--model", "nowhere"], 4, "nowhere"),
        (["--kernel", "lanczos"], 2, "bicubic"),
        (["--kernel", "gaussian"], 2, "fwhm"),
        (["--noise", "-1"], 2, "noise"),
    ],
)
def test_wrong_words_end_in_a_line(pdenet, truth, contestants, tmp_path, arguments, code, says):
    ran = pdenet("evaluate", "--model", contestants["chance"], truth[0], *arguments, cwd=tmp_path)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_all_scenes_fail_no_others_are_spoken_of(pdenet, contestants, tmp_path):
    broken = [tmp_path / "a.tif", tmp_path / "b.tif"]
    for path in broken:
        path.write_text("no picture")
    ran = pdenet("evaluate", "--model", contestants["chance"], *broken)
    assert ran.returncode == 7, ran.stderr
    assert "2 of 2 scenes failed." in ran.stderr
    assert "others" not in ran.stderr


def test_models_and_scenes_of_one_name_are_told_apart(contestants, truth, tmp_path):
    other = tmp_path / "chance.safetensors"
    other.write_bytes(Path(contestants["chance"]).read_bytes())
    both = contest(contestants | {"other": str(other)}, ("chance", "other"))
    assert list(both.posteriors) == ["bicubic", "chance", str(other)]
    again = written(tmp_path / "scene.hdr", smooth(seed=1, **SIZE).astype("<f4"))
    scenes = contest(contestants, ()).run([truth[0], again]).scenes
    assert [scene.name for scene in scenes] == [str(truth[0]), str(again)]


def test_only_the_scene_that_a_model_has_learned_from_is_known_again_and_not_its_held_out_part(truth, contestants):
    path, _ = truth
    with open_cube(path) as cube:
        fact = {"shape": list(cube.meta.shape()), "sha256": sha256_of(cube)}
    spec = ModelSpec("template", dataclasses.asdict(CONFIG), 4, {}, "test", data=(fact,))
    other = dataclasses.replace(spec, data=({**fact, "sha256": "another"},))
    assert Truth(path, TruthSettings()).trained_on([other, spec]) == [False, True]
    assert Truth(path, TruthSettings(bands=slice(0, 2))).trained_on([spec]) == [True]
    assert Truth(path, TruthSettings(part="lower-right")).trained_on([spec]) == [False]
    smaller = dataclasses.replace(spec, data=({**fact, "shape": [1, 2, 3]},))
    assert Truth(path, TruthSettings()).trained_on([smaller, dataclasses.replace(spec, data=())]) == [False, False]


@pytest.mark.parametrize(("scale", "learned"), [(4, False), (5, False), (8, True), (None, True), ("8", True)])
def test_a_part_that_an_ancestor_did_not_hold_out_is_known_again(tmp_path, scale, learned):
    path = written(tmp_path / "a.hdr", smooth(2, 40, 44).astype("<f4"))
    with open_cube(path) as cube:  # x5 needs 40 pixels on a side to hold out a quarter, x8 needs 64
        fact = {"shape": list(cube.meta.shape()), "sha256": sha256_of(cube)}
    spec = ModelSpec("template", dataclasses.asdict(CONFIG), 4, {}, "test", data=(fact,))
    heir = dataclasses.replace(spec, began_with=spec.history() | {"scale": scale})
    for part in ("lower-right", "lower-right-alone"):
        assert Truth(path, TruthSettings(part=part)).trained_on([spec, heir]) == [False, learned]
    assert Truth(path, TruthSettings()).trained_on([spec, heir]) == [True, True]


def test_a_scene_is_hashed_once_for_all_models_and_only_if_one_of_them_knows_its_size(
    truth, contestants, tmp_path, monkeypatch
):
    hashed = []
    monkeypatch.setattr(truths, "sha256_of", lambda cube: hashed.append(cube.path) or "own")
    contest(contestants, ("chance", "plain")).run([truth[0]])
    assert not hashed
    told, data = [], ({"shape": [5, 50, 41], "sha256": "own"},)
    for name in ("chance", "plain"):
        model = load_model(contestants[name])
        told.append(str(tmp_path / f"{name}.safetensors"))
        save_model(Path(told[-1]), dataclasses.replace(model, spec=dataclasses.replace(model.spec, data=data)))
    notes = Benchmark(told, (1,), 0, "cpu", TruthSettings()).run([truth[0]]).notes
    assert len(hashed) == 1
    assert [note.split()[1] for note in notes if "trained on" in note] == ["chance", "plain"]


@pytest.mark.parametrize(("scale", "part"), [(2, (27, 23, 26, 22)), (3, (27, 23, 27, 21)), (4, (27, 23, 24, 20))])
def test_the_held_out_part_is_whole_pixels_of_the_coarse_grid(tmp_path, scale, part):
    with open_cube(written(tmp_path / "a.hdr", smooth(2, 54, 45).astype("<f4"))) as cube:
        seen = truth_view(cube, scale, TruthSettings(part="lower-right"), multiple=scale, count=None).part
    assert (seen.row, seen.column, seen.rows, seen.columns) == part


def test_a_scene_counts_once(contestants, truth):
    with pytest.raises(UsageError, match="twice in the means"):
        contest(contestants).run([truth[0], truth[0]])


# What a model has learned.


def test_learned_probabilities_are_drawn(pdenet, contestants, tmp_path):
    picture = tmp_path / "chances.png"
    ran = pdenet("models", "show", contestants["chance"], "--plot", picture)
    assert ran.returncode == 0, ran.stderr
    assert imread(picture).shape[1] > 500
    with pytest.raises(OutputError, match="`overwrite`"):
        plot_chances(contestants["chance"], picture)
    with pytest.raises(ModelError, match="no masks"):
        plot_chances(contestants["plain"], tmp_path / "none.png")
    with pytest.raises(UsageError, match=r"ends in \.png"):
        plot_chances(contestants["chance"], tmp_path / "chances.jpg")


# Real scenes.


def test_bicubic_on_a_real_scene_is_what_training_measures(data, contestants):
    from pdenet_cli.training.data import Scene
    from pdenet_cli.training.validation import held_out_parts

    path = data / "train" / "aviris" / "abu-beach-3.mat"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    scene = contest(contestants, ("double",), part="lower-right-alone", bands=slice(0, 16)).run([path]).scenes[0]
    with open_cube(path) as cube:
        (part,) = held_out_parts([Scene.read(cube.with_bands(slice(0, 16)))], Degradation(2), 0)
    values = scene.systems["bicubic"].values
    assert part.high.shape[2:] == (scene.rows, scene.columns)
    assert values["MPSNR"] == pytest.approx(part.bicubic["psnr"], abs=1e-3)
    assert values["SAM"] == pytest.approx(part.bicubic["sam"], abs=1e-3)
    assert set(values) == {metric.name for metric in PROTOCOLS["pdenet"].metrics(2)}


def test_models_of_one_name_are_all_scored_and_one_file_only_once(contestants, tmp_path):
    twin = tmp_path / Path(contestants["chance"]).name
    shutil.copy(contestants["chance"], twin)
    there = Benchmark([str(contestants["chance"]), str(twin)], (1,), 0, "cpu", TruthSettings()).posteriors
    assert len(there) == 3  # bicubic is there too
    link = tmp_path / "other.safetensors"
    link.symlink_to(twin)
    with pytest.raises(UsageError, match="given twice"):
        Benchmark([str(twin), str(link)], (1,), 0, "cpu", TruthSettings())
