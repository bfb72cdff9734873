"""The plugin for QGIS: its runner alone, and the provider in a QGIS without a window where there is one."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pdenet_cli
from tests.cubes import picture, written
from tests.test_style import PYTHON, has_qgis

PLUGINS = Path(pdenet_cli.__file__).parents[1] / "examples" / "qgis"
pytestmark = pytest.mark.skipif(not PLUGINS.is_dir(), reason="an installed package has no examples")

IN_QGIS = """
import json, sys
sys.path[:0] = ["/usr/share/qgis/python/plugins", sys.argv[1]]
from qgis.core import QgsApplication, QgsProcessingFeedback, QgsRasterLayer
application = QgsApplication([], False)
application.initQgis()
from processing.core.Processing import Processing
Processing.initialize()
import processing, pdenet
plugin = pdenet.classFactory(None)
plugin.initProcessing()
feedback, shares = QgsProcessingFeedback(), []
feedback.progressChanged.connect(shares.append)
asked = {"INPUT": sys.argv[2], "SCALE": 0, "SAMPLES": 1, "OUTPUT": sys.argv[3], "OPTIONS": sys.argv[4]}
made = processing.run("pdenet:upscale", asked, feedback=feedback)
layer = QgsRasterLayer(made["OUTPUT"], "fine")
said = {"columns": layer.width(), "renderer": layer.renderer().type(), "bands": layer.renderer().usesBands()}
print(json.dumps(said | {"progress": max(shares)}))
"""


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("runner", PLUGINS / "pdenet" / "runner.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def command(tmp_path):
    """The path of a program that is pdenet in this environment, as a user would set it."""
    program = tmp_path / "pdenet program"
    root = Path(pdenet_cli.__file__).parents[1]
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m pdenet_cli "$@"\n')
    program.chmod(0o755)
    return str(program)


def left_running(text):
    """The processes whose command line contains a text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [number for number in found if number != os.getpid()]


def test_the_runner_passes_progress_on_and_errors_in_the_words_of_pdenet(runner, command, models, tmp_path):
    scene = written(tmp_path / "scene.hdr", picture(3, 24, 24))
    arguments = ["upscale", str(scene), "-o", str(tmp_path / "fine.tif"), "-m", str(models / "pdenet.safetensors")]
    shares, here = [], threading.get_ident()

    def progress(share, text):
        assert threading.get_ident() == here
        assert text.startswith("scene.hdr: ")
        shares.append(share)

    assert not runner.run(command, arguments, progress, lambda text: None, lambda: False)
    assert shares[-1] == 1
    assert (tmp_path / "fine.tif").exists()
    with pytest.raises(runner.RunError, match=r"fine\.tif exists"):
        runner.run(command, arguments, progress, lambda text: None, lambda: False)
    with pytest.raises(runner.RunError, match="Set the path of pdenet"):
        runner.run(str(tmp_path / "nothing"), arguments, progress, lambda text: None, lambda: False)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_a_cancelled_run_leaves_no_process_and_no_output(runner, command, models, tmp_path):
    scene = written(tmp_path / "scene.hdr", picture(3, 200, 200))
    arguments = ["upscale", str(scene), "-o", str(tmp_path / "fine.tif"), "-m", str(models / "pdenet.safetensors")]
    begun, running = [], []

    def cancelled():
        if begun and not running:
            running.extend(left_running(str(tmp_path)))
        return bool(begun)

    assert runner.run(
        command, [*arguments, "-n", "99"], lambda share, text: begun.append(share), lambda text: None, cancelled
    )
    assert running
    for _ in range(50):
        if not left_running(str(tmp_path)):
            break
        time.sleep(0.1)
    assert not left_running(str(tmp_path))
    assert not (tmp_path / "fine.tif").exists()


def test_the_provider_runs_in_qgis_and_its_result_opens_in_true_colour(command, models, tmp_path):
    if not has_qgis():
        pytest.skip("no QGIS here; Debian: apt-get install python3-qgis qgis-providers")
    waves = dict(wavelengths=(450.0, 550.0, 650.0, 850.0), wavelength_units="nm")
    scene = written(tmp_path / "scene.tif", picture(4, 24, 20), **waves)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"QT_QPA_PLATFORM": "offscreen", "HOME": str(tmp_path), "PDENET_COMMAND": command}
    asked = [PLUGINS, scene, tmp_path / "fine.tif", f"--model '{models / 'pdenet.safetensors'}' --scale 4"]
    ran = subprocess.run(
        [PYTHON, "-c", IN_QGIS, *map(str, asked)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said == {"columns": 80, "renderer": "multibandcolor", "bands": [3, 2, 1], "progress": 100}
