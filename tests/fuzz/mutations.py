"""How files are damaged, and how they are made to lie; every choice comes from one seeded generator."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from tests.fuzz.seeds import header_of

NUMBERS = (0, 1, 2, 3, 7, 8, 16, 127, 255, 256, 4095, 65535, 65536, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
WORDS = (
    "0", "1", "-1", "3", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "99999999999999999999", "", "x", "{",
    "NaN", "null", "true", "[]", "{}", "0x10", "1,5", "½", "\0", "../../etc/passwd", "/dev/zero", "%s", "9" * 400,
    "a" * 3000, "<!ENTITY a 'b'>", "float64", ">c16", "O", "V99999999", "zlib", "pickle", "u2", "-0", "2147483648",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, 1.5, -0.0, 1e308, "", "x", "NaN", [], [0], [0, 0, 0],
    [1, 2, 3], [-1, 5, 5], [2**40, 2**40, 2**40], {}, {"id": "zlib"}, {"name": "gzip"}, {"id": "zlib", "level": 9},
    ["a", "b", "c"], [[1, 2], [3]], {"a": {"b": {}}}, "f4", "|O", "float32", "bytes", "x" * 5000,
)  # fmt: skip
TEXTS = {".hdr", ".json", ".xml", ".tfw", ".zattrs", ".zarray", ".zgroup", ".zmetadata", ".qml", ".journal"}
LARGEST_GROWTH = 1 << 16


def mutate(folder: Path, kind: str, chance: Random) -> str:
    """Damage the files of a scene in one way or a few; what was done, in words."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        files = _files(folder, kind)
        if not files:
            break
        file = chance.choice(files)
        choices = _choices(kind, file)
        mutation = chance.choices(list(choices), weights=list(choices.values()))[0]
        with contextlib.suppress(Exception):  # what was damaged before may be beyond a lie
            done.append(f"{mutation.__name__} {file.relative_to(folder)} {mutation(file, chance) or ''}"[:300])
    return "; ".join(done)


def _files(folder: Path, kind: str) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if kind == "journal":
        found = [path for path in found if path.name.startswith(".") or ".partial" in str(path)]
        journals = [path for path in found if path.suffix == ".journal"]
        return found + journals * max(1, len(found) // 2)
    heads = [path for path in found if _is_text(path)]
    return found + heads * 2 + [path for path in found if path.suffix in (".tif", ".TIF", ".h5", ".nc")] * 4


def _is_text(file: Path) -> bool:
    return file.suffix.lower() in TEXTS or file.name in TEXTS


def _choices(kind: str, file: Path) -> dict[Callable[[Path, Random], str | None], int]:
    choices: dict[Callable[[Path, Random], str | None], int] = {
        flip: 6, overwrite: 3, cut: 2, grow: 1, move: 2, number: 6, replace: 1,
    }  # fmt: skip
    if _is_text(file):
        choices |= {word: 12, line: 6}
    if file.name in (".zarray", ".zattrs", ".zmetadata", "zarr.json"):
        choices |= {lie_in_json: 25}
    if kind in ("hdf5", "netcdf", "mat73"):
        choices |= {lie_in_hdf5: 10}
    if kind == "weights":
        choices |= {lie_in_weights: 25}
    if file.suffix.lower() in (".tif", ".tiff"):
        choices |= {lie_in_tags: 20}
    return choices


def _place(content: bytes, chance: Random) -> int:
    """A place in a file, more often where its head is or its end."""
    size = max(1, len(content))
    return chance.choice(
        (chance.randrange(size), chance.randrange(min(size, 600)), max(0, size - 1 - chance.randrange(300)))
    )


def flip(file: Path, chance: Random) -> str:
    content = bytearray(file.read_bytes())
    places = [_place(content, chance) for _ in range(chance.choice((1, 1, 2, 8)))] if content else []
    for place in places:
        content[place] ^= 1 << chance.randrange(8)
    file.write_bytes(content)
    return str(places)


def overwrite(file: Path, chance: Random) -> str:
    content = bytearray(file.read_bytes())
    place, count = _place(content, chance), chance.choice((1, 4, 16, 200))
    content[place : place + count] = chance.choice((bytes(count), b"\xff" * count, chance.randbytes(count)))
    file.write_bytes(content)
    return f"{place} {count}"


def number(file: Path, chance: Random) -> str:
    """An integer of the file becomes another one."""
    content = bytearray(file.read_bytes())
    size = chance.choice((1, 2, 4, 8))
    place = _place(content, chance) // chance.choice((1, 2, 4)) * chance.choice((1, 2, 4))
    value = chance.choice(NUMBERS) & (1 << 8 * size) - 1
    content[place : place + size] = value.to_bytes(size, chance.choice(("little", "big")))
    file.write_bytes(content)
    return f"{place} {value}"


def cut(file: Path, chance: Random) -> str:
    size = file.stat().st_size
    left = chance.choice((0, 1, size // 2, max(0, size - 1), chance.randrange(max(1, size))))
    os.truncate(file, left)
    return str(left)


def grow(file: Path, chance: Random) -> None:
    content = file.read_bytes()
    with file.open("ab") as stream:
        stream.write(chance.choice((b"\0" * 7, content[-500:], chance.randbytes(300), bytes(LARGEST_GROWTH))))


def move(file: Path, chance: Random) -> None:
    """A part of the file is copied to another place."""
    content = bytearray(file.read_bytes())
    source, target, count = (_place(content, chance), _place(content, chance), chance.choice((4, 8, 12, 64, 500)))
    content[target : target + count] = content[source : source + count]
    file.write_bytes(content)


def replace(file: Path, chance: Random) -> str:
    """The file becomes something else than a file, or is gone."""
    kind = chance.choice(("nothing", "pipe", "folder", "link", "link in a circle", "device"))
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "link":
        file.symlink_to("/proc/self/environ")
    elif kind == "link in a circle":
        file.symlink_to(file.name)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    return kind


def word(file: Path, chance: Random) -> str:
    """A word or a number of a text becomes another one."""
    text = file.read_bytes().decode("latin-1")
    found = list(re.finditer(r"[\w.+-]+", text))
    if not found:
        return "nothing"
    old, new = chance.choice(found), chance.choice((*WORDS, chance.choice(found)[0]))
    file.write_bytes(
        (text[: old.start()] + new + text[old.end() :]).encode("utf-8" if not new.isascii() else "latin-1")
    )
    return f"{old[0][:30]} -> {new[:30]}"


def line(file: Path, chance: Random) -> str:
    """A line of a text is lost, doubled, exchanged with another, or becomes very long."""
    lines = file.read_bytes().split(b"\n")
    place, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.choice(("lost", "doubled", "exchanged", "long", "brackets"))
    if what == "lost":
        del lines[place]
    elif what == "doubled":
        lines.insert(other, lines[place])
    elif what == "exchanged":
        lines[place], lines[other] = lines[other], lines[place]
    elif what == "long":
        lines[place] += b"1.5, " * 20_000
    else:
        lines[place] = b"[" * 20_000
    file.write_bytes(b"\n".join(lines))
    return what


def _exchange(told: Any, chance: Random) -> str:
    """One value somewhere in a JSON object becomes another, or is lost."""
    place, path = told, []
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        path.append(str(key))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.3:
            value = chance.choice(VALUES)
            if chance.random() < 0.1:
                del place[key]
            else:
                place[key] = value
            return f"{'.'.join(path)} = {str(value)[:40]}"
        place = place[key]
    return "nothing"


def lie_in_json(file: Path, chance: Random) -> str:
    told = json.loads(file.read_bytes())
    what = _exchange(told, chance)
    file.write_text(json.dumps(told))
    return what


def lie_in_weights(file: Path, chance: Random) -> str:
    """The header says something else, or the weights are impossible."""
    header, numbers = header_of(file.read_bytes())
    which = chance.random()
    if which < 0.6:
        spec = json.loads(header["__metadata__"]["pdenet"])
        what = _exchange(spec["config"] if chance.random() < 0.6 else spec, chance)
        header["__metadata__"]["pdenet"] = json.dumps(spec)
    elif which < 0.75:
        what = _exchange(header, chance)
    else:
        value = chance.choice((float("nan"), float("inf"), 3e38, -3e38, 1e-42, 0.0, 1e5))
        values = np.frombuffer(numbers, "<f4").copy()
        values[chance.randrange(len(values)) if chance.random() < 0.5 else slice(None)] = value
        numbers, what = values.tobytes(), str(value)
    raw = json.dumps(header).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + numbers)
    return what


def lie_in_hdf5(file: Path, chance: Random) -> str:
    """An attribute or a small dataset has another type, shape or value."""
    values = (
        "text", b"bytes", 5, -1.5, float("nan"), np.zeros(3), np.zeros((2, 3)), np.arange(8), [1e308] * 8, ["a"],
        h5py.Empty("f4"), np.zeros(8, [("a", "f4"), ("b", "i2")]), np.array([], "f4"), "x" * 60_000, 2**62,
    )  # fmt: skip
    try:
        with h5py.File(file, "r+") as opened:
            names: list[str] = []
            opened.visit(names.append)
            thing = opened[chance.choice(names)]
            value = chance.choice(values)
            if isinstance(thing, h5py.Dataset) and thing.size < 100 and chance.random() < 0.4:
                del opened[thing.name]
                opened[thing.name if thing.name else "x"] = value
                return f"{thing} {str(value)[:30]}"
            known = sorted(
                {*thing.attrs, "DIMENSION_LIST", "DIMENSION_LABELS", "_FillValue", "scale_factor", "units"}
            )
            name = chance.choice(known)
            with contextlib.suppress(KeyError, OSError):
                del thing.attrs[name]
            thing.attrs[name] = value
            return f"{thing.name} {name} = {str(value)[:30]}"
    except Exception as error:  # a file that was damaged before
        return f"not: {error}"[:60]


def lie_in_tags(file: Path, chance: Random) -> str:
    """A tag of a TIFF has another code, type, count or value."""
    content = bytearray(file.read_bytes())
    order = "<" if content[:2] == b"II" else ">"
    try:
        big = struct.unpack_from(order + "H", content, 2)[0] == 43
        (first,) = struct.unpack_from(order + ("Q" if big else "I"), content, 8 if big else 4)
        (count,) = struct.unpack_from(order + ("Q" if big else "H"), content, first)
        size, head = (20, 8) if big else (12, 2)
        entry = first + head + size * chance.randrange(max(1, min(count, 60)))
        place, width = chance.choice(
            ((0, 2), (2, 2), (4, 8 if big else 4), (size - (8 if big else 4), 8 if big else 4))
        )
        value = chance.choice((*NUMBERS, chance.randrange(1 << 16))) & (1 << 8 * width) - 1
        content[entry + place : entry + place + width] = value.to_bytes(width, "little" if order == "<" else "big")
    except struct.error:
        return "nothing"
    file.write_bytes(content)
    return f"{entry} {place} {value}"


def copied(seed: Path, target: Path) -> None:
    """The files of a seed again, to be damaged."""
    shutil.copytree(seed, target, symlinks=True)
