"""A part of a scene: read alone, it keeps its pixels, its bands and its place on the ground."""

import json

import numpy as np
import pytest

from pdenet_cli import open_cube
from pdenet_cli.errors import UsageError
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.window import Window
from tests.cubes import written

WINDOW = Window(5, 3, 20, 14)
WHERE = Georeference((500000.0, 30.0, 0.0, 4649000.0, 0.0, -30.0), "EPSG:32616")
SUFFIXES = ("hdr", "tif", "mat", "h5", "nc", "zarr")


@pytest.fixture
def make(tmp_path):
    def make(suffix="hdr", **meta):
        pixels = np.random.default_rng(0).integers(1, 9000, (7, 40, 30), dtype="<u2")
        path = written(tmp_path / f"scene.{suffix}", pixels, georeference=WHERE, **meta)
        return path, pixels

    return make


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_window_holds_its_pixels_and_lies_where_they_lie(make, suffix) -> None:
    path, pixels = make(suffix)
    with open_cube(path) as whole, open_cube(path, window=WINDOW) as part:
        rows, columns = WINDOW.slices
        assert part.meta.shape() == (7, 20, 14)
        np.testing.assert_array_equal(part.read(), pixels[:, rows, columns])
        np.testing.assert_array_equal(part.read(Window(2, 1, 4, 6), [5, 0]), pixels[[5, 0], 7:11, 4:10])
        np.testing.assert_array_equal(part.thinned(3), pixels[:, rows, columns][:, ::3, ::3])
        np.testing.assert_array_equal(part.with_bands("1,4:6").read(), pixels[[1, 4, 5], rows, columns])
        chosen = whole.with_bands("1,4:6").windowed(WINDOW)
        np.testing.assert_array_equal(chosen.read(), pixels[[1, 4, 5], rows, columns])
        assert chosen.band_numbers == (1, 4, 5)
        np.testing.assert_array_equal(part.windowed(Window(1, 2, 3, 4)).read(), pixels[:, 6:9, 5:9])
        assert part.meta.georeference.ground(0, 0) == whole.meta.georeference.ground(3, 5)
        assert part.meta.georeference.ground(2.5, 1) == whole.meta.georeference.ground(5.5, 6)


def test_words_points_and_polynomials_in_pixels_move_along() -> None:
    points = (GroundPoint(0.5, 0.5, 10.0, 50.0), GroundPoint(20.5, 8.5, 11.0, 49.0))
    rpc = {"LINE_OFF": "100", "LINE_SCALE": "9", "SAMP_OFF": "50.5", "SAMP_SCALE": "7"}
    words = {
        "x start": "11",
        "y start": "1",
        "pixel size": "{2, 2, units=Meters}",
        "geo points": "{4, 6, 50.0, 10.0}",
        "sensor type": "Unknown",
    }
    meta = CubeMeta(7, 40, 30, "<u2", georeference=Georeference(points=points, rpc=rpc), extra=words)
    cut = meta.windowed(WINDOW)
    assert [(p.column, p.row, p.x) for p in cut.georeference.points] == [(-2.5, -4.5, 10.0), (17.5, 3.5, 11.0)]
    assert cut.georeference.rpc == rpc | {"LINE_OFF": "95.0", "SAMP_OFF": "47.5"}
    moved = {"x start": "14", "y start": "6", "pixel size": "{2, 2, units=Meters}", "geo points": "{1, 1, 50, 10}"}
    assert {name: cut.extra[name] for name in moved} | {"geo points": "{1, 1, 50, 10}"} == moved
    assert cut.extra["geo points"].startswith("{1, 1, 50")
    assert cut.extra["sensor type"] == "Unknown"


@pytest.mark.parametrize("place", [(-1, 0, 4, 4), (0, 0, 41, 4), (0, 28, 4, 4), (0, 0, 0, 4)])
def test_a_window_beyond_the_scene_is_refused(make, place) -> None:
    path, _ = make()
    with pytest.raises(
        UsageError, match=r"`window`.*the scene has 40 rows and 30 columns.*ROW COLUMN ROWS COLUMNS"
    ):
        open_cube(path, window=Window(*place))


def test_a_window_is_sharpened_as_its_cut_out_scene_is(make, pdenet, tmp_path) -> None:
    path, _ = make()
    words = ("--model", "bicubic", "--range", 0, 9000)
    ran = pdenet("upscale", path, "-o", tmp_path / "part_x4.tif", "--window", 5, 3, 20, 14, *words)
    assert ran.returncode == 0, ran.stderr
    with open_cube(path, window=WINDOW) as part:
        alone = written(tmp_path / "alone.hdr", part.read(), georeference=part.meta.georeference)
    assert pdenet("upscale", alone, "-o", tmp_path / "alone_x4.tif", *words).returncode == 0
    with open_cube(tmp_path / "part_x4.tif") as part, open_cube(tmp_path / "alone_x4.tif") as whole:
        np.testing.assert_array_equal(part.read(), whole.read())
        assert part.meta.georeference.transform == (500090.0, 7.5, 0.0, 4648850.0, 0.0, -7.5)
        assert whole.meta.georeference.transform == part.meta.georeference.transform
    report = json.loads((tmp_path / "part_x4.tif.report.json").read_text())
    assert report["job"]["window"] == {"row": 5, "column": 3, "rows": 20, "columns": 14}


def test_every_command_that_reads_cubes_takes_a_window(make, pdenet, tmp_path) -> None:
    path, _ = make()
    part = ("--window", 0, 2, 24, 28)
    described = json.loads(pdenet("info", path, *part, "--json").stdout)
    assert (described["rows"], described["columns"]) == (24, 28)
    scores = json.loads(pdenet("evaluate", "--model", "bicubic", path, *part, "--json").stdout)
    assert (scores["scenes"][0]["rows"], scores["scenes"][0]["columns"]) == (24, 28)
    # The estimate of the window alone, and that of the whole scene, are compared with the same pixels.
    with open_cube(path, window=Window(0, 2, 24, 28)) as cut:
        alone = written(tmp_path / "alone.hdr", cut.read())
    for estimate in (alone, path):
        scores = json.loads(pdenet("evaluate", estimate, path, *part, "--json").stdout)
        assert scores["scenes"][0]["systems"][estimate.name]["values"]["RMSE"] == 0
    refused = pdenet("info", path, "--window", 0, 2, 24, 29)
    assert refused.returncode == UsageError.exit_code
    assert "--window 0 2 24 29: the scene has 40 rows and 30 columns" in " ".join(refused.stderr.split())


def test_a_range_may_be_that_of_the_type_or_the_largest_number_of_the_whole_scene(make, pdenet) -> None:
    path, pixels = make("mat")
    pixels[2, 0, 0] = 12345  # outside the window
    path.unlink()
    written(path, pixels)
    part = ("--window", 5, 3, 20, 14)

    def said(*words):
        ran = pdenet("info", path, *words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)["radiometry"]

    assert said("--range", "dtype")["gain"] == [1 / 65535]
    assert said("--range", "max", *part)["gain"] == said("--range", "max")["gain"] == [1 / 12345]
    chosen = said("--range", "max", *part, "--bands", "3:")["gain"]
    assert chosen == [1 / pixels[3:].max()]
    assert said("--range", 100, 300)["gain"] == said("--range", "100,300")["gain"] == [1 / 200]
    assert said("--range", "-1e2", 300)["gain"] == [1 / 400]
    for words, meaning in (
        (("--range", "most"), "neither two numbers nor a known name"),
        (("--range", 5, "--json"), "--range 5 --json: not two numbers"),
    ):
        refused = pdenet("info", path, *words)
        assert refused.returncode == UsageError.exit_code
        assert meaning in " ".join(refused.stderr.split())


def test_numbers_of_a_float_type_have_no_natural_range(tmp_path, pdenet) -> None:
    path = written(tmp_path / "scene.hdr", np.ones((3, 9, 9), "<f4"))
    refused = pdenet("info", path, "--range", "dtype")
    assert refused.returncode == UsageError.exit_code
    assert "--range dtype: float32 numbers have no natural largest one. Use --range max" in " ".join(
        refused.stderr.split()
    )


def test_lists_of_files_stand_for_the_files(pdenet, tmp_path, make) -> None:
    path, pixels = make()
    other = written(tmp_path / "other scene.hdr", pixels)
    (tmp_path / "list.txt").write_text(f"# two cubes\n{path}\n\n  {other}\n")
    described = json.loads(pdenet("info", f"@{tmp_path / 'list.txt'}", "--json").stdout)
    assert [one["path"] for one in described] == [str(path), str(other)]
    for text, said in (("# nothing\n", "an empty list"), (None, "not a list of files")):
        if text is not None:
            (tmp_path / "bad.txt").write_text(text)
        refused = pdenet("info", f"@{tmp_path / ('bad.txt' if text else 'absent.txt')}")
        assert refused.returncode == UsageError.exit_code
        assert said in " ".join(refused.stderr.split())


def test_an_option_before_a_list_counts_for_every_line(tmp_path) -> None:
    from pdenet_cli.cli.words import expanded_lists

    (tmp_path / "list.txt").write_text("a.mat\nb.mat\n")
    words = ["train", f"@{tmp_path}/list.txt", "--validate", f"@{tmp_path}/list.txt", "-o", "m"]
    assert list(expanded_lists(words)) == [
        "train",
        "a.mat",
        "b.mat",
        *["--validate", "a.mat", "--validate", "b.mat"],
        "-o",
        "m",
    ]
    words = ["train", f"--validate=@{tmp_path}/list.txt", "@"]
    assert list(expanded_lists(words)) == ["train", "--validate=a.mat", "--validate=b.mat", "@"]
