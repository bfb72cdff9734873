"""Files that are never half-written: locks and names."""

import sys

import pytest

from pdenet_cli import files
from pdenet_cli.errors import OutputError


def test_a_name_too_long_for_the_disk_is_one_line_and_stops_no_other(pdenet, make_cube, tmp_path):
    long, _ = make_cube(f"{'l' * 240}.hdr")
    short, _ = make_cube("short.hdr")
    ran = pdenet("uncertainty", long, short, "-o", tmp_path / "maps", "--samples", 2, "--map", "std")
    assert ran.returncode == 7, ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "maps" / "short_std_merged.hdr").exists()
    page = tmp_path / f"{'p' * 300}.html"
    ran = pdenet("evaluate", short, short, "--html", page)
    assert ran.returncode == 5, ran.stderr
    assert "File name too long" in " ".join(ran.stderr.split())


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of this kind there")
def test_a_lock_that_was_taken_away_after_it_was_opened_is_none(tmp_path, monkeypatch):
    lock = tmp_path / ".lock"
    really, taken = files.fcntl.flock, []

    def late(file, how):
        if not taken:  # the run before ends between the opening and the locking
            taken.append(lock.unlink())
        really(file, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    with files.locked(lock):
        assert lock.exists()
        with pytest.raises(OutputError, match="another run"), files.locked(lock):
            pass
    assert not lock.exists()
