"""Remake the tables and figures of the paper from copies of its data sets.

    python examples/paper/study.py STUDY --data FOLDER --out FOLDER --budget 200steps|30minutes|full

README.md beside this file says what the folder of the data holds. Run again, a study goes on where it stopped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pictures
import tables
from page import SYSTEMS, Page
from runs import Runs, length, pdenet
from scenes import DATA_SETS


@dataclass(frozen=True)
class Study:
    """A study, and the data sets and scales for which the paper has it."""

    run: Callable[..., None]
    sets: tuple[str, ...] = ("cave",)
    scales: tuple[int, ...] = (4,)


STUDIES = {
    "systems": Study(tables.systems, ("cave", "harvard", "ncalm"), (4, 8)),
    "stages": Study(tables.stages),
    "l2": Study(tables.l2),
    "masks": Study(tables.masks),
    "nas": Study(tables.nas),
    "samples": Study(pictures.samples, ("cave", "harvard", "ncalm")),
    "probabilities": Study(pictures.probabilities),
    "share": Study(pictures.share),
    "uncertainty": Study(pictures.uncertainty),
    "errors": Study(pictures.errors),
    "parameters": Study(pictures.parameters, ("harvard",)),
    "real": Study(pictures.real, ("ncalm",)),
}
REAL = "urban"  # the folder of the scene whose finer truth nobody knows


def main(arguments: Sequence[str] | None = None, run: Callable[[Sequence[str]], str] = pdenet) -> int:
    """Run studies; returns 1 where a command failed. `run` runs the commands."""
    asked = _parser().parse_args(arguments)
    length(asked.budget)  # refuses a wrong one before the first training
    failures = []
    for name in STUDIES if asked.study == "all" else (asked.study,):
        study = STUDIES[name]
        for data in asked.sets or study.sets:
            more = (asked.data / REAL,) if name == "real" else ()
            if absent := [folder for folder in (asked.data / data, *more) if not folder.is_dir()]:
                print(f"{name}: left out {data}, {absent[0]} is not a folder", file=sys.stderr)
                continue
            found = DATA_SETS[data](asked.data / data, asked.crop)
            for scale in asked.scales or study.scales:
                runs = Runs(
                    found,
                    scale,
                    asked.out,
                    asked.budget,
                    asked.size,
                    tuple(shlex.split(asked.train)),
                    asked.samples,
                    run,
                )
                page = Page(name, runs, asked.systems, asked.draws)
                page.tried(study.run, page, *more)
                failures += page.failures
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="study.py"
    )
    parser.add_argument("study", choices=[*STUDIES, "all"])
    parser.add_argument("--data", type=Path, required=True, help="holds the folders cave, harvard, ncalm, urban")
    parser.add_argument("--out", type=Path, required=True, help="for models, scores, tables and figures")
    parser.add_argument("--budget", required=True, help="of each training: 200steps, 30minutes or full")
    parser.add_argument("--sets", type=_names(DATA_SETS), help="data sets, commas between; default: the paper's")
    parser.add_argument("--scales", type=_numbers, help="scales, commas between; default: the paper's")
    parser.add_argument("--systems", type=_names(SYSTEMS), default=list(SYSTEMS), help="; ".join(SYSTEMS))
    parser.add_argument(
        "--samples", type=_several, default=5, help="draws of PDE-Net; default: 5, as in the paper"
    )
    parser.add_argument("--draws", default="1,2,3,5,10", help="numbers of draws that `samples` compares")
    parser.add_argument("--size", default="paper", help="configuration of the networks; tiny for trials")
    parser.add_argument("--crop", type=int, default=512, help="side of the squares that test; default: 512")
    parser.add_argument("--train", default="", help="more options of every training, such as '--batch 1'")
    return parser


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        if wrong := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{wrong[0]} is none of {', '.join(known)}")
        return text.split(",")

    return names


def _several(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError("give 2 or more: samples are compared; tables have N = 1, too")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
