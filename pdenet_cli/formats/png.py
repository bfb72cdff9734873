"""A folder with one grey PNG per band, such as the CAVE scenes; read-only."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.common.limits import refuse_impossible_size, refuse_large_block
from pdenet_cli.formats.common.quiet import quiet_libraries
from pdenet_cli.formats.common.regular import opened
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.meta import CubeMeta

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by PNG's colour types, without palettes (3)
LARGEST_PICTURE = 1 << 27  # values; a picture can only be decoded as a whole
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SYSTEM_FILES = ("thumbs.db", "desktop.ini", "__macosx")  # left in folders and archives by operating systems


@dataclass(frozen=True)
class PngBands:
    """Pictures of one size as (bands, rows, columns), each a block that is decoded as a whole."""

    files: tuple[Path, ...]
    dtype: np.dtype[Any]
    size: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.files), *self.size

    @property
    def block(self) -> tuple[int, ...]:
        return 1, *self.size

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        chosen = range(len(self.files))[key[0]]
        parts = [self.band(place)[key[1], key[2]] for place in chosen]
        height, width = (len(range(size)[part]) for size, part in zip(self.size, key[1:], strict=True))
        return np.stack(parts) if parts else np.empty((0, height, width), self.dtype)

    def band(self, place: int) -> Pixels:
        """One whole band."""
        file = self.files[place]
        try:
            with opened(file) as stream, quiet_libraries():
                picture: Pixels = imagecodecs.png_decode(stream.read())
        except FormatError:
            raise
        except Exception as error:  # the codec raises its own kinds
            raise FormatError(f"{file}: a damaged PNG ({' '.join(str(error).split())}).") from error
        picture = _grey(file, picture)
        if picture.shape != self.size or picture.dtype != self.dtype:
            raise FormatError(f"{file}: decodes to {picture.shape} {picture.dtype}, not as its header says.")
        return picture


def _grey(file: Path, picture: Pixels) -> Pixels:
    """The one channel of a picture; colours that are all equal count as one, transparency is left out."""
    if picture.ndim == 2:
        return picture
    colours = picture[..., :3] if picture.shape[-1] >= 3 else picture[..., :1]
    if not (colours == colours[..., :1]).all():
        raise FormatError(f"{file}: a colour picture, not one band. Keep only one grey PNG per band there.")
    return np.ascontiguousarray(colours[..., 0])


def _recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and (bool(_pictures(path)) or bool(_scenes(path)))


def is_series(folder: Path) -> bool:
    """Whether a folder holds pictures that differ only in a number, as the bands of a scene do."""
    try:
        return len(_pictures(folder)) > 1 and len(_bands(folder)[0]) > 1
    except FormatError:
        return False


def _pictures(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() == ".png" and p.is_file())


def _scenes(folder: Path) -> list[Path]:
    """The folders of PNGs in a folder; empty if it holds anything else."""
    inside = [
        p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name.lower() not in SYSTEM_FILES
    ]
    return inside if all(p.is_dir() and _pictures(p) for p in inside) else []


def _open(path: Path, options: OpenOptions) -> Cube:
    folder = path
    if not _pictures(path):
        scenes = _scenes(path)
        if len(scenes) > 1:
            names = ", ".join(p.name for p in scenes[:8])
            raise FormatError(f"{path}: {len(scenes)} folders of PNGs ({names} ...). Name one of them.")
        folder = scenes[0]
    files, notes = _bands(folder)
    heads = [_head(file) for file in files]
    for file, head in zip(files, heads, strict=True):
        if head[:3] != heads[0][:3]:
            first, found = (f"{h[1]} x {h[0]} of {8 * h[2].itemsize} bits" for h in (heads[0], head))
            raise FormatError(f"{file}: {found}, but {files[0].name} is {first}. All bands must be alike.")
    rows, columns, dtype, channels = heads[0]
    array = PngBands(files, dtype, (rows, columns))
    if channels > 1:
        array.band(0)  # refuses a folder of colour pictures at once
    wavelengths = _wavelengths(files)
    if len(files) == 31 and all(re.search(r"_ms_\d\d$", file.stem) for file in files):
        wavelengths = tuple(float(nm) for nm in range(400, 701, 10))
        notes += ("wavelengths 400 to 700 nm, as the CAVE scenes have them",)
    meta = CubeMeta(
        bands=len(files),
        rows=rows,
        columns=columns,
        dtype=dtype,
        wavelengths=wavelengths,
        wavelength_units="Nanometers" if wavelengths else None,
        band_names=tuple(file.stem for file in files),
        notes=notes,
    )
    if options.axes not in (None, "brc"):
        meta = meta.noting(f"`axes` {options.axes} is ignored: each picture of a folder is a band")
    # Not the folder: other files in it, such as outputs, are not part of the scene.
    return Cube(path, meta, array, files=files)


def _bands(folder: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The PNGs of the longest series, whose names differ in one number, in the order of that number; and notes."""
    series: dict[tuple[str, str], list[tuple[float, Path]]] = defaultdict(list)
    for file in _pictures(folder):
        for number in NUMBER.finditer(file.stem):
            around = file.stem[: number.start()], file.stem[number.end() :]
            series[around].append((float(number[0]), file))
        if not NUMBER.search(file.stem):
            series[file.stem, ""].append((0.0, file))
    longest, *others = sorted(series, key=lambda around: (len(series[around]), not around[1]), reverse=True)
    chosen = sorted(series[longest])
    if others and len(chosen) > 1 and (len(series[others[0]]), not others[0][1]) == (len(chosen), not longest[1]):
        names = " and ".join(min(series[around])[1].name for around in (longest, others[0]))
        raise FormatError(f"{folder}: two series of {len(chosen)} PNGs, with {names}. Keep one of them there.")
    for (place, file), (next_place, next_file) in pairwise(chosen):
        if place == next_place:
            raise FormatError(f"{folder}: {file.name} and {next_file.name} have the same number.")
    files = tuple(file for _, file in chosen)
    notes: tuple[str, ...] = ()
    if ignored := len(_pictures(folder)) - len(files):
        notes += (f"{ignored} other PNGs in the folder are ignored",)
    first, last = int(chosen[0][0]), int(chosen[-1][0])
    numbers = {number for number, _ in chosen}
    gaps = [n for n in range(first, min(last, first + 100_000)) if n not in numbers]
    if gaps and _wavelengths(files) is None:
        notes += (f"{len(gaps)} numbers are missing between the first band and the last, such as {gaps[0]}",)
    return files, notes


def _wavelengths(files: Sequence[Path]) -> tuple[float, ...] | None:
    """The wavelengths in names such as scene_400nm."""
    found = [re.search(r"(\d+(?:\.\d+)?)[ _-]?nm(?![a-z])", file.stem, re.IGNORECASE) for file in files]
    wavelengths = [float(match[1]) for match in found if match]
    return tuple(wavelengths) if len(set(wavelengths)) == len(files) else None


def _head(file: Path) -> tuple[int, int, np.dtype[Any], int]:
    """Rows, columns, type and channels from the PNG's first bytes, if the file can hold that much."""
    with opened(file) as stream:
        head = stream.read(33)
    if head[:8] != SIGNATURE or len(head) < 33 or head[12:16] != b"IHDR":
        raise FormatError(f"{file}: named like a PNG, but it is not one.")
    columns, rows, bits, colour = struct.unpack(">IIBB", head[16:26])
    if colour not in CHANNELS or bits not in (1, 2, 4, 8, 16) or not rows or not columns:
        raise FormatError(f"{file}: a PNG with {bits} bits of colour type {colour} is not a band.")
    dtype = np.dtype("u2" if bits == 16 else "u1")
    nbytes = dtype.itemsize * CHANNELS[colour]
    held = file.stat().st_size
    refuse_impossible_size(file, "the picture", (rows, columns), max(1, nbytes * min(bits, 8) // 8), held)
    if rows * columns > LARGEST_PICTURE:
        raise FormatError(
            f"{file}: {rows} x {columns} pixels are too many for a PNG. Convert the bands to a TIFF."
        )
    refuse_large_block(file, "the picture", rows * columns * nbytes, held)
    return rows, columns, dtype, CHANNELS[colour]


FORMAT = Format(name="PNG folder", suffixes=(), recognises=_recognises, open=_open, fragile=lambda head: True)
