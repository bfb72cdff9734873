"""Several scenes at once: one that fails, for whatever reason, does not stop the others."""

import json
import sys

import pytest

from pdenet_cli.cli import main
from pdenet_cli.scene.survey import Survey
from tests.cubes import picture, written


@pytest.fixture
def scenes(tmp_path):
    names = ("river", "swamp", "field")
    return [written(tmp_path / f"{name}.hdr", picture(4, 32, 32, seed)) for seed, name in enumerate(names)]


@pytest.fixture
def ran(monkeypatch, capsys, tmp_path, models):
    """Runs `pdenet` here, where a bug shows at the scene swamp; the exit code and what was printed."""
    usual = Survey.of.__func__

    def of(cls, cube, *args, **options):
        if cube.path.stem == "swamp":
            raise RuntimeError("a kernel\nis lost")
        return usual(cls, cube, *args, **options)

    def run(command, *given):
        model = ("--model", "bicubic")
        words = {
            "info": ("info", *given),
            "upscale": ("upscale", *given, "-o", tmp_path / "fine", *model),
            "evaluate": ("evaluate", *given, *model),
            "calibrate": ("calibrate", models / "pdenet.safetensors", *given, "-o", tmp_path / "m.safetensors"),
        }
        monkeypatch.setattr(sys, "argv", ["pdenet", *map(str, words[command])])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    monkeypatch.setattr(Survey, "of", classmethod(of))
    return run


@pytest.mark.parametrize("command", ["info", "upscale", "evaluate", "calibrate"])
def test_a_bug_at_one_scene_is_told_with_its_kind_and_the_others_are_done(ran, scenes, command):
    code, said = ran(command, *scenes)
    assert code == 7
    assert "RuntimeError: a kernel is lost" in " ".join(said.err.replace("│", " ").split())
    assert "swamp.hdr" in said.err
    assert "1 of 3" in said.err
    for name in ("river", "field"):
        assert name in said.out


@pytest.mark.parametrize("command", ["info", "upscale"])
def test_a_list_of_reports_has_an_entry_for_a_scene_that_failed(ran, scenes, command):
    code, said = ran(command, *scenes, "--json")
    assert code == 7
    told = json.loads(said.out)
    assert told[1] == {"path": str(scenes[1]), "error": "RuntimeError: a kernel is lost"}
    assert [("error" in entry) for entry in told] == [False, True, False]


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_one_report_of_all_scenes_names_those_that_failed(ran, scenes, command):
    code, said = ran(command, *scenes, "--json")
    assert code == 7
    assert [why for name, why in json.loads(said.out)["failed"].items() if "swamp" in name] == [
        "RuntimeError: a kernel is lost"
    ]


@pytest.mark.parametrize("command", ["info", "upscale", "evaluate", "calibrate"])
def test_a_bug_at_the_only_scene_is_not_hidden(ran, scenes, command):
    with pytest.raises(RuntimeError, match="a kernel"):
        ran(command, scenes[1])
