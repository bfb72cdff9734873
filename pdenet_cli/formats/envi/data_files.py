"""Which two files are one ENVI cube: the header of some data, the data of a header.

Usual names are tried first, as a folder may have thousands of files; only if none is there, the folder is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pdenet_cli.errors import FormatError
from pdenet_cli.files import is_file
from pdenet_cli.formats.common.regular import opened

DATA_SUFFIXES = (".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", ".cube")
NOT_DATA = {".hdr", ".xml", ".txt", ".json", ".png", ".jpg", ".csv", ".sta", ".enp", ".partial", ".ovr", ".qml"}
NOT_DATA |= {".tif", ".tiff"}  # DESIS keeps an ENVI header beside its TIFF
HEAD_BYTES = 4096  # that tell what a header is


def is_header(head: bytes) -> bool:
    """Whether a file that begins like this is an ENVI header."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4].upper() == b"ENVI"


def is_esri_header(head: bytes) -> bool:
    """Whether a file that begins like this is a header of ESRI's BIL, BIP or BSQ: lines of a name and a value."""
    names = {line.split()[0].upper() for line in head.splitlines() if line.strip()}
    return {b"NROWS", b"NCOLS"} <= names and not names.isdisjoint((b"NBANDS", b"LAYOUT", b"NBITS", b"BYTEORDER"))


def header_beside(data: Path, fits: Callable[[bytes], bool] = is_header) -> Path | None:
    """The header of a data file: `scene.hdr` or `scene.img.hdr`, in any case, whose first bytes are as wanted."""
    wanted = {f"{data.stem}.hdr".lower(), f"{data.name}.hdr".lower()}
    usual = _first_header(_usual_headers(data), fits)
    return usual or _first_header(_listed(data, lambda name: name.lower() in wanted), fits)


def _usual_headers(data: Path) -> list[Path]:
    """The names that headers of a data file usually have, in the order in which they are looked for."""
    data = data.absolute()
    names = [sorted(stem + suffix for stem in (data.stem, data.name)) for suffix in (".hdr", ".HDR")]
    return [data.with_name(name) for pair in names for name in pair]


def _first_header(paths: Iterable[Path], fits: Callable[[bytes], bool]) -> Path | None:
    for path in paths:
        if is_file(path):
            with opened(path) as file:
                if fits(file.read(HEAD_BYTES)):
                    return path
    return None


def data_beside(header: Path) -> Path:
    """The data file of a header: its name without `.hdr`, or the same stem with another suffix."""
    stem = header.stem
    found = _claimed(header, _usual_data(header))
    found = found or _claimed(header, _listed(header, lambda name: name.startswith(stem)))
    if not found:
        raise FormatError(f"{header}: its data file ({stem}, {stem}.img, ...) is not beside it.")
    return found[0]


def _usual_data(header: Path) -> list[Path]:
    """The files beside a header that have names as its data usually has."""
    header = header.absolute()
    suffixes = ("", *DATA_SUFFIXES, *(suffix.upper() for suffix in DATA_SUFFIXES))
    return [path for suffix in suffixes if is_file(path := header.with_name(header.stem + suffix))]


def _claimed(header: Path, files: Iterable[Path]) -> list[Path]:
    """The files that may be the data of a header, the likeliest first."""
    stem = header.stem
    same = [p for p in files if p != header and stem in (p.name, p.stem)]
    found = [p for p in same if p.suffix.lower() not in NOT_DATA]
    order = {suffix: place for place, suffix in enumerate(("", *DATA_SUFFIXES))}
    # scene.img before scene.IMG, which on some systems is the same file.
    return sorted(
        found, key=lambda p: (p.name != stem, order.get(p.suffix.lower(), len(order)), p.name.swapcase())
    )


def _listed(path: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """The files beside `path` with names that are wanted; slow where a folder has thousands of files."""
    folder = path.absolute().parent
    return sorted(p for p in folder.iterdir() if wanted(p.name) and p.is_file()) if folder.is_dir() else []


def in_the_way(data: Path, header: Path) -> list[Path]:
    """Existing files that a reader would take for the data or the header of this new cube."""
    data, header = data.absolute(), header.absolute()
    claimed = _claimed(header, {*_usual_data(header), data})
    older, usual = claimed[: claimed.index(data)], _usual_headers(data)
    first = _first_header(usual, is_header)
    if first is not None and (header not in usual or usual.index(first) < usual.index(header)):
        older.append(first)
    return older
