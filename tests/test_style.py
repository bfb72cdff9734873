"""Styles for QGIS beside rasters: which bands and colours, and that QGIS itself obeys them."""

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pdenet_cli.pages.style import colour_style, map_style
from pdenet_cli.scene.picture import rgb_bands
from tests.cubes import in_memory, written

PYTHON = "/usr/bin/python3"  # Debian's, for which its QGIS is made

OPEN_IN_QGIS = """
import json, os, sys
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from qgis.core import QgsApplication, QgsRasterLayer
application = QgsApplication([], False)
application.initQgis()
layer = QgsRasterLayer(sys.argv[1], "cube")
renderer = layer.renderer()
told = {"valid": layer.isValid(), "type": renderer.type(), "bands": renderer.usesBands()}
if renderer.type() == "multibandcolor":
    red = renderer.redContrastEnhancement()
    told["range"] = [red.minimumValue(), red.maximumValue()]
elif renderer.type() == "singlebandpseudocolor":
    told["range"] = [renderer.classificationMin(), renderer.classificationMax()]
    items = renderer.shader().rasterShaderFunction().colorRampItemList()
    told["colours"] = [items[0].color.name(), items[-1].color.name()]
print(json.dumps(told))
"""


@cache
def has_qgis():
    if not Path(PYTHON).exists():
        return False
    return subprocess.run([PYTHON, "-c", "import qgis.core"], capture_output=True).returncode == 0


def opened_in_qgis(raster):
    if not has_qgis():
        pytest.skip("no QGIS here; Debian: apt-get install python3-qgis qgis-providers")
    ran = subprocess.run([PYTHON, "-c", OPEN_IN_QGIS, raster], capture_output=True, text=True, timeout=120)
    return json.loads(ran.stdout.splitlines()[-1])


def renderer(text):
    return ElementTree.fromstring(text.partition("\n")[2]).find("pipe/rasterrenderer")


WAVES = tuple(np.linspace(430, 900, 12).tolist())


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(100, 4000, (12, 20, 30)).astype("<u2")


def test_true_colours_are_the_bands_of_red_green_and_blue_light(pixels):
    cube = in_memory(pixels, wavelengths=WAVES, wavelength_units="nm")
    found = renderer(colour_style(cube))
    bands = [int(found.get(f"{colour}Band")) - 1 for colour in ("red", "green", "blue")]
    assert tuple(bands) == rgb_bands(cube.meta)
    for name, band in zip(("red", "green", "blue"), bands, strict=True):
        ends = [float(found.find(f"{name}ContrastEnhancement/{end}Value").text) for end in ("min", "max")]
        assert ends == pytest.approx(np.percentile(pixels[band], [2, 98]), rel=1e-6)


def test_the_ramp_of_a_map_begins_at_nothing_and_counts_are_grey(pixels):
    merged = pixels[:1] / np.float32(1000)
    for counts in (False, True):
        found = renderer(map_style(in_memory(merged), counts=counts))
        items = found.findall("rastershader/colorrampshader/item")
        values = [float(item.get("value")) for item in items]
        assert values[0] == 0
        assert values[-1] == pytest.approx(np.percentile(merged, 99.5), rel=1e-6)
        assert values == sorted(values)
        grey = [len({item.get("color")[i : i + 2] for i in (1, 3, 5)}) == 1 for item in items]
        assert all(grey) == counts


@pytest.mark.parametrize("empty", [np.nan, 0.0])
def test_an_empty_raster_has_a_style_too(empty):
    cube = in_memory(np.full((1, 4, 5), empty, "<f4"))
    assert renderer(map_style(cube)).get("classificationMax") == "1"
    assert renderer(colour_style(cube)).get("type") == "singlebandgray"


def test_every_output_that_qgis_opens_has_a_style_unless_none_is_wanted(bicubic, tmp_path):
    for name, styled in (("fine.hdr", True), ("fine.tif", True), ("fine.mat", False)):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        assert bicubic(folder / name)[0] == 0
        assert (folder / "fine.qml").exists() == styled
        (folder / "bare").mkdir()
        assert bicubic(folder / "bare" / name, "--no-style")[0] == 0
        assert not list((folder / "bare").glob("*.qml"))


def test_a_style_of_somebody_else_is_not_replaced_unasked(bicubic, tmp_path):
    (tmp_path / "fine.qml").write_text("mine")
    assert bicubic(tmp_path / "fine.hdr")[0] == 0
    assert (tmp_path / "fine.qml").read_text() == "mine"
    assert bicubic(tmp_path / "fine.hdr", "--overwrite")[0] == 0
    assert (tmp_path / "fine.qml").read_text() != "mine"


@pytest.mark.parametrize("suffix", ["hdr", "tif"])
def test_qgis_opens_a_cube_in_true_colour_and_a_map_in_a_ramp(pixels, tmp_path, suffix):
    for name, values, style in (
        ("cube", pixels, colour_style),
        ("error", pixels[:1] * np.float32(0.1), map_style),
    ):
        waves = dict(wavelengths=WAVES, wavelength_units="nm") if name == "cube" else {}
        path = written(tmp_path / f"{name}.{suffix}", values, **waves)
        (tmp_path / f"{name}.qml").write_text(style(in_memory(values, **waves)))
        raster = path.with_suffix(".img") if suffix == "hdr" else path
        found = opened_in_qgis(raster)
        assert found["valid"]
        if name == "cube":
            wanted = rgb_bands(in_memory(values, **waves).meta)
            assert (found["type"], found["bands"]) == ("multibandcolor", [band + 1 for band in wanted])
            assert found["range"] == pytest.approx(np.percentile(pixels[wanted[0]], [2, 98]))
        else:
            assert (found["type"], found["bands"]) == ("singlebandpseudocolor", [1])
            assert found["range"] == pytest.approx([0, np.percentile(values, 99.5)], rel=1e-6)
            assert found["colours"] == ["#00224e", "#fee838"]
