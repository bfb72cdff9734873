"""Libraries compiled on first use and kept in the user's cache: only those that are whole and the user's own."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pdenet_cli.files import sync, sync_entries

FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-pthread")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
LARGEST = 16 << 20  # bytes; it has some 60,000
SUM_BYTES = hashlib.sha256().digest_size


def compiled(name: str, headers: Sequence[Path], sources: Sequence[Path]) -> Path:
    """The library of these sources, named by a hash of all it depends on: sources, compiler and CPU.

    OSError where it cannot be built, or a file of others is in its place.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    macros = _call(compiler, *FLAGS, "-E", "-dM", "-x", "c", os.devnull)
    content = b"".join(path.read_bytes() for path in (*headers, *sources))
    library = _cache_folder() / f"{name}-{hashlib.sha256(content + macros).hexdigest()[:16]}.so"
    if not is_sound(library):
        # Built beside and renamed, on disk before that, so that no process loads a part of it.
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            beside = Path(folder) / library.name
            _call(compiler, *FLAGS, *map(str, sources), "-o", str(beside))
            seal(beside)
            beside.replace(library)
            sync_entries(library.parent)
    return library


def seal(library: Path) -> None:
    """Write a library's checksum behind it, where the loader does not look, and wait until it is on disk."""
    content = library.read_bytes()
    library.write_bytes(content + hashlib.sha256(content).digest())
    sync(library)


def is_sound(library: Path) -> bool:
    """Whether a library is as `seal` left it; one that was cut would kill the process as it is used.

    PermissionError where another user owns it or may write it, or a link stands there.
    """
    try:
        about = library.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & OTHERS_WRITE:
        raise PermissionError(f"{library} is a link, or others own it or may write it: code that is not loaded.")
    if not SUM_BYTES < about.st_size <= LARGEST:
        return False
    content = library.read_bytes()
    return hashlib.sha256(content[:-SUM_BYTES]).digest() == content[-SUM_BYTES:]


def _call(*command: str) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120)
    return done.stdout


def cache_folder() -> Path:
    """Where libraries are kept: PDENET_CACHE_DIR, or the user's cache."""
    if wanted := os.environ.get("PDENET_CACHE_DIR"):
        return Path(wanted).expanduser().absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "pdenet"


def _cache_folder() -> Path:
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about, link = folder.stat(), folder.lstat()
    foreign = {about.st_uid, link.st_uid} != {os.getuid()}  # a link of one's own, to one's own folder, is usual
    if foreign or about.st_mode & OTHERS_WRITE:
        raise PermissionError(f"{folder} belongs to others or can be written by them, who could leave code there.")
    return folder
