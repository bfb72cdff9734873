"""Time left and progress: for people on a terminal, in a log, for programs; panels and examples of the help."""

import json
import re
import time
import tomllib

import numpy as np
import pytest
import typer

from pdenet_cli.cli import app, console
from pdenet_cli.cli.chapters import chapters
from pdenet_cli.cli.progress import Pace, Stages, clock_text
from pdenet_cli.cli.words import EXAMPLES, PANELS, SHORT
from tests.cubes import picture, written


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def seen(tiles, forecast, every=10.0):
    """(truth, estimate) of the time left of a run whose tiles take so many seconds, now and then."""
    clock = Clock()
    pace = Pace([1.0] * len(tiles), forecast, clock)
    pace.finished(0)
    ends, end = np.cumsum(tiles) + clock.now, sum(tiles) + clock.now
    pairs, fractions, done = [], [], 0
    while clock.now < end - every:
        clock.now += every
        while done < len(ends) and ends[done] <= clock.now:
            now, clock.now = clock.now, ends[done]
            done += 1
            pace.finished(done)
            clock.now = now
        pairs.append((end - clock.now, pace.left))
        fractions.append(pace.fraction)
    assert fractions == sorted(fractions)
    assert fractions[0] > 0
    assert fractions[-1] < 1
    return pairs


def test_time_left_is_near_the_truth_from_the_first_minute_on():
    rng = np.random.default_rng(0)
    tiles = rng.uniform(30, 45, 16)  # ten minutes
    for wrong in (0.7, 1.0, 1.4):  # a forecast that is off
        pairs = seen(tiles, wrong * tiles.sum())
        assert pairs[0][1] == pytest.approx(pairs[0][0], rel=0.5)
        for truth, left in pairs[5:-6]:
            assert left == pytest.approx(truth, rel=0.3)
    halved = seen(tiles, 0.3 * tiles.sum())  # even a third of the truth is found out
    assert all(left == pytest.approx(truth, rel=0.3) for truth, left in halved[8:-6])


def test_a_tile_that_takes_longer_than_forecast_makes_the_rest_longer_too():
    clock = Clock()
    pace = Pace([1.0] * 10, 10.0, clock)
    pace.finished(0)
    clock.now += 5
    assert pace.left > 40
    assert pace.fraction < 0.1


def test_work_that_was_done_before_says_nothing_of_the_pace():
    clock = Clock()
    pace = Pace([1.0, 1.0, 2.0, 4.0], None, clock)
    assert pace.left is None
    pace.finished(2)
    assert pace.fraction == 0.25
    assert pace.left is None
    clock.now += 20
    pace.finished(3)
    assert pace.left == pytest.approx(40)
    clock.now += 60
    pace.finished(4)
    assert (pace.left, pace.fraction) == (0, 1)


def test_stages_tell_the_time_left_of_all_of_them():
    clock = Clock()
    stages = Stages(4, clock)
    assert stages.left is None
    for name in ("a", "b"):
        for done in range(3):
            stages(name, done, 2)
            clock.now += 5
    assert stages.fraction == 0.5
    assert stages.left == pytest.approx(30)
    stages("b", 1, 2)  # again, as another way is tried
    assert stages.finished == 2


def test_a_clock_has_hours_only_where_it_needs_them():
    assert [clock_text(s) for s in (7, 750, 11_100)] == ["0:07", "12:30", "3:05:00"]


def test_programs_get_progress_notes_and_errors_as_lines_of_json(pdenet, models, tmp_path):
    scene = written(tmp_path / "scene.hdr", picture(3, 24, 24))
    asked = ("upscale", scene, "-o", tmp_path / "fine.hdr", "-m", models / "pdenet.safetensors", "-n", 2)
    ran = pdenet(*asked, "--tile", 12, "--progress", "json")
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    last = [event for event in events if event["event"] == "progress"][-1]
    assert (last["scene"], last["done"], last["total"], last["fraction"], last["left"]) == (
        "scene.hdr",
        4,
        4,
        1,
        0,
    )
    again = pdenet(*asked, "--progress", "json")
    assert again.returncode == 5
    error = json.loads(again.stderr.splitlines()[-1])
    assert error["event"] == "error"
    assert error["exit_code"] == 5
    assert "--overwrite" in error["text"]
    assert pdenet(*asked, "--progress", "often").returncode == 2
    assert console.progress_as == "auto"  # the next command in this process is not bound by it


def test_a_forecast_counts_tiles_as_the_run_does_and_times_maps_too(pdenet, models, tmp_path):
    scene = written(tmp_path / "scene.hdr", picture(3, 24, 24))
    asked = (
        scene,
        "-o",
        tmp_path / "fine",
        "-m",
        models / "pdenet.safetensors",
        "--tile",
        12,
        "-n",
        2,
        "--dry-run",
    )
    forecasts = [json.loads(pdenet(tool, *asked, "--json").stdout) for tool in ("upscale", "uncertainty")]
    for forecast in forecasts:
        assert forecast["tiles"] == 4
        assert forecast["spans"] == 1
        assert forecast["seconds"] > 0


def every_command():
    """The words and the command of every help."""
    top = typer.main.get_command(app)
    for name, command in top.commands.items():
        inner = getattr(command, "commands", None)
        yield from ([(f"{name} {n}", c) for n, c in inner.items()] if inner else [(name, command)])


def test_every_help_has_examples_that_begin_like_the_command_and_options_that_exist():
    for words, command in every_command():
        lines = EXAMPLES[words.split()[-1]]
        options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        assert command.epilog.startswith("Examples:")
        for line in lines:
            assert f"{line} ".startswith(f"pdenet {words} ")
            assert set(re.findall(r"(?<= )--?[a-z][\w-]*", line)) <= options


def test_panels_and_short_forms_name_options_that_exist():
    options = [param.opts for _, command in every_command() for param in command.params]
    known = {option for opts in options for option in opts}
    missing = {f"--{n}" for names in PANELS.values() for n in names.split()} - known
    assert missing <= {"--workers", "--cluster"}
    for long, short in SHORT.items():
        assert any({long, short} <= set(opts) for opts in options)
    for _, command in every_command():
        short = [option for param in command.params for option in param.opts if not option.startswith("--")]
        assert len(short) == len(set(short))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("scene.img", b"\1\2" * 500, r"its header scene\.hdr is missing"),
        ("scene", b"\1\2" * 500, r"its header scene\.hdr is missing"),
        ("scene.npy", b"\x93NUMPY\1\0", r"sharpen\(numpy.load"),
    ],
)
def test_what_is_missing_is_said_by_name(pdenet, tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    ran = pdenet("info", tmp_path / name)
    assert ran.returncode == 3
    assert re.search(says, ran.stderr)


def test_models_list_lists_models(pdenet):
    assert pdenet("models", "list").stdout == pdenet("models").stdout
    assert "general-x4" in json.loads(pdenet("models", "list", "--json").stdout)


def test_the_seconds_of_a_bar_pass_without_tiles(monkeypatch):
    monkeypatch.setattr("pdenet_cli.cli.progress.JSON_EVERY", 0.01)
    from pdenet_cli.cli.progress import shown_pace

    lines = []
    monkeypatch.setattr(console, "progress_as", "json")
    monkeypatch.setattr(console, "print_event", lambda event, **fields: lines.append(fields))
    pace = Pace([1.0, 1.0], 1.0)
    with shown_pace("scene", pace):
        pace.finished(0)
        time.sleep(0.2)
    assert lines[-1]["fraction"] > lines[0]["fraction"]


def test_a_wrong_name_of_a_variable_is_answered_with_those_there_are(pdenet, tmp_path):
    for name in ("cube.nc", "cube.mat", "cube.zarr"):
        ran = pdenet("info", written(tmp_path / name, picture(3, 8, 9), variable="hsi"), "--var", "radiance")
        assert ran.returncode == 3
        assert "'radiance'" in ran.stderr
        assert "hsi (" in ran.stderr


def test_help_shows_the_manual_and_a_wheel_has_every_chapter(pdenet):
    listed = pdenet("help").stdout
    for name, path in chapters().items():
        assert f"pdenet help {name}" in listed
        assert pdenet("help", name).stdout == path.read_text()
        project = path.parents[1] / "pyproject.toml"
        if project.is_file():
            packed = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
            assert packed["force-include"][f"examples/{name}.md"] == f"pdenet_cli/manual/{name}.md"
    assert {"formats", "uncertainty", "evaluation", "training", "qgis"} <= set(chapters())
    ran = pdenet("help", "poetry")
    assert ran.returncode == 2
    assert "formats" in ran.stderr
