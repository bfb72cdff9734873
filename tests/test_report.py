"""What a report says of inputs and versions."""

import os
import sys
import tomllib

import pytest

from pdenet_cli import __version__, report
from tests.conftest import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
def test_a_folder_has_a_hash_whatever_its_files_are_called(tmp_path):
    (tmp_path / "scene").mkdir()
    (tmp_path / "scene" / os.fsdecode(b"\xe9")).write_text("a")
    assert len(report.hashes([tmp_path / "scene"])["scene"]) == 64


def test_a_checkout_that_nobody_has_installed_knows_its_version(monkeypatch):
    monkeypatch.setattr(report, "version", {"torch": "2.6"}.__getitem__)
    assert report.versions("torch") | {"python": ""} == {"python": "", "pdenet": __version__, "torch": "2.6"}
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
