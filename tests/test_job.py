"""A scene made ready and sharpened: its forecast, what it rests on, its memory, its notes."""

import json
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch

from pdenet_cli import open_cube
from pdenet_cli.cli import progress
from pdenet_cli.cli.batch import Batch
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.job import Job, Settings
from tests.conftest import PEAK, on_linux
from tests.cubes import picture, written


def test_values_beyond_the_type_of_the_output_are_counted_and_told_of(pdenet, tmp_path):
    pixels = np.full((2, 12, 12), 32000, "<i2")
    pixels[:, 4:8, 4:8] = 3000  # bicubic overshoots beside it
    scene = written(tmp_path / "hot.tif", pixels)
    words = ("upscale", scene, "--model", "bicubic", "-o")
    ran = pdenet(*words, tmp_path / "fine.tif", "--json")
    exact = bicubic_up(torch.from_numpy(pixels.astype("f4")), 4).numpy()
    count = int((np.rint(exact) > 32767).sum())
    assert count > 9
    note = f"{count} values were beyond what int16 holds and clipped; pdenet upscale --dtype float32 keeps them."
    assert note in " ".join(ran.stderr.split())
    assert json.loads(ran.stdout)["notes"] == [note]
    assert "clipped" not in pdenet(*words, tmp_path / "wide.tif", "--dtype", "float32").stderr
    run = Job(scene, tmp_path / "part.tif", Posterior(bicubic_model(4), 1), Settings(tile=6)).run()
    next(run), next(run)
    run.close()
    told = pdenet(*words, tmp_path / "part.tif", "--tile", 6, "--resume")
    assert "At least " in told.stderr, told.stderr
    assert (tmp_path / "part.tif").read_bytes() == (tmp_path / "fine.tif").read_bytes()


def test_a_dry_run_tells_and_writes_nothing(pdenet, scene, models, tmp_path):
    before = sorted(tmp_path.iterdir())
    ran = pdenet("upscale", scene, "-o", tmp_path / "x.hdr", "--model", models / "pdenet.safetensors", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    for words in ("on disk", "memory", "tiles", "time"):
        assert words in ran.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_forecast_is_of_all_files_and_all_samples(scene, models, tmp_path, monkeypatch):
    monkeypatch.setattr(Posterior, "seconds_per_voxel", lambda self, low: 0.5)
    model = load_model(models / "pdenet.safetensors")
    jobs = (
        Job(scene, tmp_path / "fine.hdr", Posterior(model, samples), Settings(maps=("std",), tile=20))
        for samples in (2, 6)
    )
    few, many = (job.forecast() for job in jobs)
    assert (few.tiles, few.tile) == (4, 20)
    assert few.seconds >= 0.5 * 5 * 40 * 30 * 2  # and more, for tiles have margins
    assert many.seconds == pytest.approx(3 * few.seconds, rel=1e-3)  # maps are made once, however many samples
    assert set(few.outputs) == {"mean", "std_merged"}
    assert few.bytes_on_disk == 160 * 120 * (5 * 2 + 4)


def test_a_scene_is_read_and_cut_as_the_user_says(tmp_path):
    pixels = picture(3, 12, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mine"], file["other"] = pixels.transpose(1, 2, 0), pixels[:, :5]
    options = dict(variable="mine", axes="rcb", value_range=(0, 500), halo=5, tile=6)
    job = Job(tmp_path / "a.h5", tmp_path / "b.tif", Posterior(bicubic_model(2), 1), Settings(**options))
    list(job.run())
    told = json.loads((tmp_path / "b.tif.report.json").read_text())["job"]
    assert (told["radiometry"]["reason"], told["halo"]) == ("range given: 0 to 500", 5)
    with open_cube(tmp_path / "b.tif") as fine:
        assert fine.meta.shape() == (3, 24, 20)
        np.testing.assert_allclose(
            fine.read(), bicubic_up(torch.from_numpy(pixels * 1.0)[None], 2)[0].clip(0), atol=1
        )


def test_bad_bands_that_come_out_as_zeros_are_told_of(tmp_path):
    pixels = picture(3, 12, 10)
    job = dict(good_bands=(True, False, True))
    for nodata, told in ((None, True), (0.0, False)):
        path = written(tmp_path / f"{nodata}.hdr", pixels, nodata=nodata, **job)
        said = []
        work = Job(path, tmp_path / f"fine{nodata}.hdr", Posterior(bicubic_model(2), 1), Settings())
        list(work.run(said.append))
        assert any("1 bad band is written as 0" in text for text in said) == told
        assert (open_cube(tmp_path / f"fine{nodata}.hdr").read()[1] == 0).all()


def test_a_log_hears_how_far_a_run_is_and_of_which_scene_notes_are(scene, models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_EVERY", 0.001)
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 1)
    monkeypatch.setattr(Job, "_notes", lambda job: ("odd numbers",))
    pair = (scene, tmp_path / "fine.hdr")
    list(Batch(posterior, Settings(tile=20), [scene, scene], None).results([pair]))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scene.hdr: odd numbers"
    assert re.fullmatch(r"scene.hdr: \d of 4 tiles, .* gone(, about .* left)?", lines[-1])


def test_whole_numbers_need_no_nan(tmp_path):
    scene = written(tmp_path / "a.hdr", picture(2, 12, 12).astype("<f4"), nodata=float("nan"))
    list(Job(scene, tmp_path / "b.tif", Posterior(bicubic_model(2), 1), Settings(dtype="int16")).run())
    with open_cube(tmp_path / "b.tif") as fine:
        assert (fine.meta.dtype, fine.meta.nodata) == (np.int16, None)


def test_what_is_written_rests_on_all_of_the_scene(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.QUICK_VALUES", 500)
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 2 * 50)
    pixels = picture(2, 50, 50).astype("<f4") + 1
    pixels[0, 0, 0] = -70
    scene, posterior = written(tmp_path / "a.hdr", pixels), Posterior(bicubic_model(2), 1)
    shares = [
        Job(scene, tmp_path / "b.tif", posterior, Settings(forecast=forecast)).scene.reading.survey.looked_at < 1
        for forecast in (True, False)
    ]
    assert shares == [True, False]


@on_linux
def test_a_scene_stays_within_the_memory_it_is_given(models, tmp_path):
    pixels = np.random.default_rng(0).integers(100, 9000, (40, 200, 200), dtype="<u2")
    big = written(tmp_path / "big.hdr", pixels)
    script = PEAK + (
        "from pdenet_cli.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "print(peak() // 1024)\n"
    )
    used = {}
    for memory in ("100MB", "4GB"):
        words = ["upscale", big, "-o", tmp_path / f"{memory}.hdr", "--memory", memory]
        words += ["--model", models / "pdenet.safetensors", "--samples", 1]
        ran = subprocess.run(
            [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=True
        )
        used[memory] = int(ran.stdout.split()[-1])
    # Python, torch and their libraries take about 400 MB before any pixel is read.
    assert used["100MB"] < 700
    assert used["4GB"] > used["100MB"] + 300


def test_a_dry_run_tells_what_is_in_the_way(pdenet, make_cube, tmp_path):
    scene, _ = make_cube()
    (tmp_path / "fine.tif").write_text("mine")
    words = ("upscale", scene, "-o", tmp_path / "fine.tif", "--model", "bicubic", "--dry-run")
    ran = pdenet(*words)
    assert ran.returncode == 0, ran.stderr
    assert "need --overwrite" in ran.stdout
    assert "need --overwrite" not in pdenet(*words, "--overwrite").stdout
    assert json.loads(pdenet(*words, "--json").stdout)["in_the_way"] == [str(tmp_path / "fine.tif")]
