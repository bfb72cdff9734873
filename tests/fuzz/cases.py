"""A case: a damaged seed, what is run on it, and what must not come of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.cubes import written
from tests.fuzz.mutations import copied, mutate
from tests.fuzz.seeds import JOURNALED, crop
from tests.fuzz.worker import Outcome, contents, emptied, faults_of, run

UPSCALED = 4  # every so manieth case is sharpened too
OUTPUTS = ("hdr", "tif", "mat", "h5", "nc", "zarr")


def chance_of(seed: int, kind: str, number: int) -> Random:
    """What all choices of a case come from."""
    return Random(f"{seed} {kind} {number}")


def prepared(folder: Path, seeds: list[tuple[Path, Path]], kind: str, chance: Random) -> tuple[Path, Path, str]:
    """The files of a case in `folder`: its scene, the seed that they are from, and how they were damaged."""
    own, scene = chance.choice(seeds)
    case = folder / "case"
    copied(own, case)
    how = mutate(case, kind, chance)
    return case / scene.relative_to(own), own, how


def run_case(
    folder: Path, seeds: dict[str, list[tuple[Path, Path]]], kind: str, seed: int, number: int
) -> Outcome:
    """Make a case and run the command line on it."""
    chance, outcome = chance_of(seed, kind, number), Outcome()
    emptied(folder)
    scene, own, _ = prepared(folder, seeds[kind], kind, chance)
    if kind == "journal":
        _resume(folder, scene, own, outcome)
    elif kind == "weights":
        _load(folder, scene, outcome, seeds["tiny"][0][1])
    else:
        _read(folder, scene, outcome, chance)
    return outcome


def _note(outcome: Outcome, folder: Path, *words: object) -> int:
    ran = run(words, folder / "said.txt")
    outcome.codes.append(ran.code)
    outcome.faults += faults_of(ran)
    return ran.code


def _read(folder: Path, scene: Path, outcome: Outcome, chance: Random) -> None:
    before = contents(folder / "case")
    _note(outcome, folder, "info", scene)
    if chance.randrange(UPSCALED) == 0:
        _sharpen(outcome, folder, scene, chance.choice(OUTPUTS), "--model", "bicubic", "--scale", 2)
    if contents(folder / "case") != before:
        outcome.faults.append("the input was changed")


def _sharpen(outcome: Outcome, folder: Path, scene: Path, suffix: str, *words: object) -> None:
    out = emptied(folder / "out")
    code = _note(outcome, folder, "upscale", scene, "-o", out / f"fine.{suffix}", *words)
    left = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    if code and left:
        outcome.faults.append(f"under final names after exit {code}: {left[:5]}")


def _load(folder: Path, weights: Path, outcome: Outcome, scene: Path) -> None:
    before = contents(folder / "case")
    if _note(outcome, folder, "models", "show", weights) == 0:
        _sharpen(outcome, folder, scene, "hdr", "--model", weights, "--samples", 1, "--tile", 4)
    if contents(folder / "case") != before:
        outcome.faults.append("the weights were changed")


def _resume(folder: Path, scene: Path, own: Path, outcome: Outcome) -> None:
    """A damaged journal or partial file: refused, or what the whole run would have given."""
    whole = {name: raw for name, raw in contents(own.parent / f"{own.name}.whole").items() if is_result(name)}
    suffix = JOURNALED[int(own.name.removeprefix("journal"))]
    out = folder / "case" / "out"
    words = ("upscale", scene, "-o", out / f"fine.{suffix}", "--model", "bicubic", "--scale", 2, "--tile", 4)
    code = _note(outcome, folder, *words, "--resume")
    found = {name: raw for name, raw in contents(out).items() if is_result(name)}
    if code == 0 and found != whole:
        wrong = sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))
        outcome.faults.append(f"resumed to other bytes: {wrong[:5]}")
    if code and found:
        outcome.faults.append(f"under final names after exit {code}: {sorted(found)[:5]}")


def is_result(name: str) -> bool:
    return not name.startswith(".") and not name.endswith("report.json")


def tiny_scene(folder: Path) -> Path:
    """A scene of a few pixels, to try weights on."""
    return written(folder / "tiny.hdr", crop()[0][:2, :5, :4])
