"""`pdenet info` and --help as a user meets them."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import typer
from imagecodecs import imread

from pdenet_cli import Survey
from pdenet_cli.cli import _memory_hint, app
from pdenet_cli.cli.console import size_text
from pdenet_cli.cli.info import _georeference
from pdenet_cli.errors import OutputError, UsageError
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.tools import describe as tools_describe
from pdenet_cli.tools.describe import describe
from tests.conftest import ROOT
from tests.cubes import picture, written


def test_a_name_is_printed_as_it_is(pdenet, tmp_path):
    scene = written(tmp_path / "s:b:[b]q.hdr", np.arange(27, dtype="<u2").reshape(3, 3, 3))
    assert "s:b:[b]q.hdr" in pdenet("info", scene).stdout


@pytest.mark.parametrize(
    ("constant", "good", "said"),
    [
        ((True, True, True), None, "5 to 5"),
        ((True, False, False), None, "0 to 8 in the bands that vary"),
        ((False, False, False), (True, True, False), "0 to 8 in the bands that are not bad"),
        ((True, True, True), (True, True, False), "5 to 5 in the bands that are not bad"),
        ((True, False, False), (True, True, False), "0 to 8 in the bands that vary and are not bad"),
    ],
)
def test_the_range_of_values_is_told_with_the_bands_it_is_of(pdenet, tmp_path, constant, good, said):
    planes = [np.full((3, 3), 5) if same else np.arange(9).reshape(3, 3) for same in constant]
    scene = written(tmp_path / "a.hdr", np.stack(planes).astype("<u2"), good_bands=good)
    (line,) = (line for line in pdenet("info", scene).stdout.splitlines() if line.startswith(" values"))
    assert line.split(maxsplit=1)[1].strip() == said


EXAMPLE = ROOT / "examples" / "indian_pines.hdr"


def test_a_quicklook_never_replaces_the_scene(pdenet, make_cube):
    path, _ = make_cube()
    before = path.with_suffix(".img").read_bytes()
    ran = pdenet("info", path, "--quicklook", path.with_suffix(".img"), "--overwrite")
    assert ran.returncode != 0
    assert "is the scene itself" in ran.stderr
    assert path.with_suffix(".img").read_bytes() == before


def test_the_example_is_described(pdenet):
    ran = pdenet("info", EXAMPLE)
    assert ran.returncode == 0, ran.stderr
    for words in ("200 bands, 72 rows, 72 columns", "uint16 BIL", "400.02 to 2498.96 Nanometers", "288 x 288"):
        assert words in ran.stdout
    assert ran.stdout.count("33.2 MB") == 1  # of the x4 output


def test_json_holds_the_same_facts(pdenet):
    facts = json.loads(pdenet("info", EXAMPLE, "--json").stdout)
    assert (facts["bands"], facts["rows"], facts["columns"]) == (200, 72, 72)
    assert len(facts["wavelengths"]) == 200
    assert facts["survey"]["maximum"] == 8783
    assert facts["x4"]["bytes_on_disk"] == 200 * 288 * 288 * 2


def test_what_is_not_a_number_is_null_in_json(pdenet, tmp_path):
    pixels = np.ones((2, 3, 4), "<f4")
    pixels[1] = np.nan
    path = written(tmp_path / "scene.hdr", pixels, nodata=np.nan)
    facts = json.loads(pdenet("info", path, "--json").stdout, parse_constant=pytest.fail)
    assert facts["nodata"] is None
    assert facts["survey"]["means"] == [1, None]


@pytest.mark.parametrize(
    ("crs", "name"),
    [("EPSG:32633", "EPSG:32633"), ('PROJCS["Mine",GEOGCS["x"]]', "Mine"), (None, "no coordinate")],
)
def test_a_coordinate_system_is_named_plainly(crs, name):
    where = Georeference(transform=(5e5, 30.0, 0.0, 4e6, 0.0, -30.0), crs=crs)
    assert _georeference(where).startswith(name)


def test_a_coordinate_system_is_named_even_where_no_grid_is():
    assert _georeference(Georeference(crs="EPSG:32633")) == "EPSG:32633, but no grid"
    assert _georeference(Georeference()) == "none"


def test_a_quick_look_is_a_picture_and_is_not_overwritten(pdenet, tmp_path):
    picture = tmp_path / "look.png"
    assert pdenet("info", EXAMPLE, "--quicklook", picture).returncode == 0
    pixels = imread(picture)
    assert pixels.shape == (72, 72, 3)
    assert pixels.std() > 20
    again = pdenet("info", EXAMPLE, "--quicklook", picture)
    assert again.returncode == 5
    assert "exists" in again.stderr


def test_a_picture_has_the_suffix_of_what_it_is(make_cube, tmp_path):
    path, _ = make_cube()
    describe(path, quicklook_path=tmp_path / "look.PNG")
    assert imread(tmp_path / "look.PNG").shape == (9, 7, 3)
    for name in ("look.jpg", "look", "look.tif"):
        with pytest.raises(UsageError, match=r"ends in \.png"):
            describe(path, quicklook_path=tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_picture_is_made_only_for_who_sees_it(make_cube, tmp_path, monkeypatch):
    path, _ = make_cube()
    assert describe(path, thumbnail=True).thumbnail.shape[2] == 3
    monkeypatch.setattr(tools_describe, "quicklook", pytest.fail)
    assert describe(path).thumbnail is None


def test_a_picture_that_exists_is_refused_before_the_scene_is_looked_at(make_cube, tmp_path, monkeypatch):
    path, _ = make_cube()
    (tmp_path / "look.png").write_text("mine")
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(Survey, "of", pytest.fail)
    for name, says in (("look.png", "exists"), ("folder.png", "is a folder"), ("none/look.png", "not a folder")):
        with pytest.raises(OutputError, match=says):
            describe(path, quicklook_path=tmp_path / name)
    assert (tmp_path / "look.png").read_text() == "mine"


LIBRARIES = {"torch", "numpy", "h5py", "tifffile", "scipy", "pyproj", "spectral", "zarr"}


@pytest.mark.parametrize(
    ("arguments", "spared"),
    [
        (["--help"], LIBRARIES),
        (["--version"], LIBRARIES),
        (["upscale", "--help"], LIBRARIES),
        (["info", "--help"], LIBRARIES),
        (["info", str(EXAMPLE)], {"torch"}),
    ],
)
def test_help_waits_for_no_library_of_numbers_or_formats_and_info_not_for_torch(arguments, spared):
    script = (
        "import sys\n"
        "from pdenet_cli.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert not spared & set(ran.stderr.split())


def commands():
    return typer.main.get_command(app).commands


def test_help_names_every_network_that_can_be_trained_and_every_size():
    from pdenet_cli.models.networks import NETWORKS

    told = {option.name: option.help for option in commands()["train"].params}
    assert told["network"] == f"{', '.join(name for name in NETWORKS if name != 'bicubic')}."
    for size in {size for network in NETWORKS.values() for size in network.configs}:
        assert size in told["config"]


def test_help_is_not_ragged_on_a_narrow_terminal():
    for command in commands().values():
        _, *paragraphs = (command.help or "").split("\n\n")  # the first is wrapped anew
        assert all(len(line) <= 78 for text in paragraphs for line in text.splitlines()), command.name


@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("upscale", "Use fewer --bands or a smaller --memory or --tile, or close other programs."),
        ("calibrate", "Use fewer --bands or a smaller --memory, or close other programs."),
        ("train", "Use fewer --bands or a smaller --batch, or close other programs."),
        ("info", "Close other programs."),
    ],
)
def test_who_runs_out_of_memory_reads_the_options_of_the_command(monkeypatch, command, way):
    monkeypatch.setattr("sys.argv", ["pdenet", command, "a.hdr"])
    assert _memory_hint() == way


def test_a_bad_file_is_one_line_and_exit_code_3(pdenet_process, tmp_path):
    (tmp_path / "fake.tif").write_text("this is not a picture")
    ran = pdenet_process("info", tmp_path / "fake.tif")
    assert ran.returncode == 3
    assert ran.stderr.count("\n") == 1
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("words", [("info", EXAMPLE, "--json"), ("info", "gone.hdr"), ("info", "--range")])
def test_a_command_tells_these_tests_in_their_process_what_it_tells_in_its_own(pdenet, pdenet_process, words):
    here, there = pdenet(*words), pdenet_process(*words)
    assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
    assert here.stderr == there.stderr.replace("python -m pdenet_cli", "pdenet")
    assert "Traceback" not in here.stderr


def test_a_bug_or_a_warning_in_a_command_is_seen_by_these_tests(pdenet, monkeypatch):
    def faulty(*_, **__):
        warnings.warn("odd numbers", RuntimeWarning, stacklevel=1)
        raise ZeroDivisionError

    monkeypatch.setattr(Survey, "of", faulty)
    ran = pdenet("info", EXAMPLE)
    assert ran.returncode == 1
    assert "RuntimeWarning: odd numbers" in ran.stderr
    assert "ZeroDivisionError" in ran.stderr


def test_one_bad_file_among_several_does_not_hide_the_others(pdenet, tmp_path):
    ran = pdenet("info", tmp_path / "gone.hdr", EXAMPLE)
    assert ran.returncode == 7
    assert "200 bands" in ran.stdout
    assert "gone.hdr" in ran.stderr


def test_usage_errors_exit_with_2(pdenet):
    assert pdenet("info").returncode == 2
    assert pdenet("info", EXAMPLE, "--range", "5").returncode == 2
    assert pdenet("unknown").returncode == 2


@pytest.mark.parametrize(("fill", "dtype"), [(-3.4028234663852886e38, "f4"), (-(2**31), "i4")])
def test_a_number_that_is_advised_is_found(pdenet, tmp_path, fill, dtype):
    pixels = (100 * picture(3, 20, 20)).astype(dtype)
    pixels[:, :4] = fill
    scene = written(tmp_path / "a.hdr", pixels)
    (note,) = json.loads(pdenet("info", scene, "--json").stdout)["survey"]["notes"]
    told = json.loads(pdenet("info", scene, "--json", "--nodata", note.split()[-1]).stdout)
    assert told["survey"]["nodata_share"] == 0.2


@pytest.mark.parametrize(("count", "text"), [(999, "999 bytes"), (999_700, "1 MB"), (1_550_000, "1.55 MB")])
def test_sizes_are_said_in_three_digits(count, text):
    assert size_text(count) == text


@pytest.mark.parametrize(("fill", "said"), [(-9999, True), (-5, False)])
def test_holes_that_nobody_declared_are_told_of(pdenet, tmp_path, fill, said):
    pixels = picture(3, 20, 20).astype("f4")
    pixels[:, :4] = fill
    scene = written(tmp_path / "a.hdr", pixels)
    assert (f"--nodata {fill}" in pdenet("info", scene).stdout) == said
    told = json.loads(pdenet("info", scene, "--json", "--nodata", fill).stdout)
    assert (told["nodata"], told["survey"]["nodata_share"], told["survey"]["notes"]) == (fill, 0.2, [])
    assert told["survey"]["minimum"] >= 0


def test_nodata_that_no_number_of_the_file_can_be_is_not_heeded(pdenet, tmp_path):
    scene = written(tmp_path / "a.hdr", np.ones((1, 4, 4), "u2"), nodata=7.0)
    for number in ("-9999", "0.5", "nan"):
        told = json.loads(pdenet("info", scene, "--nodata", number, "--json").stdout)
        assert (told["nodata"], ["uint16" in note for note in told["notes"]]) == (7, [True])
    assert json.loads(pdenet("info", scene, "--nodata", "0", "--json").stdout)["nodata"] == 0


def test_a_given_range_is_used_and_stated(pdenet):
    assert "range given: 1000 to 9000" in pdenet("info", EXAMPLE, "--range", 1000, 9000).stdout


def test_every_real_file_opens_or_ends_in_one_line(data):
    from pdenet_cli import Survey, open_cube
    from pdenet_cli.errors import FormatError

    opened, refused = [], []
    for path in sorted(p for p in data.rglob("*") if p.is_file() and p.suffix != ".md"):
        try:
            with open_cube(path) as cube:
                found = Survey.of(cube)
            assert np.isfinite(found.maximum)
            opened.append(path.name)
        except FormatError as error:
            refused.append(str(error))
    assert len(opened) > len(refused)
    assert not [line for line in refused if "\n" in line]
