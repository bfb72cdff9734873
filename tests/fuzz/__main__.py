"""Damage cubes and see what breaks: `python -m tests.fuzz`, or `... kills`, or `... steady`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.running import fuzz, table
from tests.fuzz.seeds import SEEDS


def main() -> int:
    if sys.argv[1:2] == ["kills"]:
        from tests.fuzz.kills import main as kills

        return kills(sys.argv[2:])
    if sys.argv[1:2] == ["steady"]:
        from tests.fuzz.steady import main as steady

        return steady(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, unless --cases says how many")
    parser.add_argument("--cases", type=int, help="how many of each format, whatever time they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--format", choices=list(SEEDS), action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--found", type=Path, default=Path("found"), help="folder for the cases that break something"
    )
    said = parser.parse_args()
    seconds = float("inf") if said.cases else 60 * said.minutes
    tallies = fuzz(said.format or list(SEEDS), said.seed, seconds, said.cases, said.found, said.first, show=True)
    print(table(tallies))
    return int(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
