"""Score models on the scenes that nothing has seen, blurred as real sensors blur: the point spread told, and not.

    python weights/blur.py DATA 2 4      both shipped models, every scene of unseen.sha256 below DATA
    python weights/blur.py DATA 4 --most 4 --at 1.3,square    at most 4 scenes a sensor, only these point spreads
    python weights/blur.py DATA 4 --model NEW --blind FORMER   NEW is told, FORMER is used blindly
    python weights/blur.py                                write the table of the recorded runs into README.md

Scores come from `pdenet evaluate --uncertainty`, 8 samples, whole scenes, and are kept case by case in blur.json
beside this file: a run that was stopped goes on, and a model with other weights is scored again. Point spreads are
Gaussians of these FWHM in coarse pixels, or square pixels. Blind: told bicubic, or another model. Figures are the
means over the sensors of the means of their scenes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from score import HERE, by_sensor, digest, unseen, with_table

RECORD = HERE / "blur.json"
SPREADS = ("1.0", "1.3", "1.6", "1.9", "square")
Row = dict[str, Any]


def options(spread: str) -> list[str]:
    """How `pdenet evaluate` degrades truths by this point spread."""
    return {"square": ["--kernel", "area"], "bicubic": ["--kernel", "bicubic"]}.get(spread, ["--fwhm", spread])


def evaluated(model: str, scenes: Sequence[Path], spread: str, *told: str) -> dict[str, Row]:
    """The score of the model on each scene, by folder and name: PSNR of bicubic and of it, coverage."""
    words = ["evaluate", "--model", model, "--uncertainty", "--json", *options(spread), *told]
    done = subprocess.run([sys.executable, "-m", "pdenet_cli", *words, *map(str, scenes)], stdout=subprocess.PIPE)
    if done.returncode not in (0, 7):  # 7: some scenes failed
        sys.exit(done.returncode)
    found = json.loads(done.stdout)
    kept = [path for path in scenes if path.name not in found["failed"]]
    rows = {}
    for path, scene in zip(kept, found["scenes"], strict=True):
        name = next(name for name in scene["systems"] if name != "bicubic")
        rows[f"{path.parent.name}/{path.name}"] = {
            "bicubic": scene["systems"]["bicubic"]["values"]["MPSNR"],
            "psnr": scene["systems"][name]["values"]["MPSNR"],
            "coverage": scene["uncertainty"][name]["values"].get("interval coverage", float("nan")),  # calibrated?
        }
    return rows


def measure(data: Path, scale: int, spread: str, model: str, blind: str | None, most: int) -> Row:
    """One case: each scene with the point spread told, and blindly."""
    groups: dict[str, list[Path]] = {}
    for path in unseen(data):
        groups.setdefault(path.parent.name, []).append(path)
    scenes = [path for group in groups.values() for path in group[:most]]
    told = evaluated(model, scenes, spread)
    blindly = evaluated(blind or model, scenes, spread, *([] if blind else ["--psf", "bicubic"]))
    rows = [{"scene": name, **row, "blind": blindly[name]["psnr"]} for name, row in told.items()]
    return {"scale": scale, "spread": spread, "scenes": rows}


def weights_of(model: str) -> str:
    """What tells two models apart: the hash of their weights."""
    path = Path(model)
    return digest(path if path.suffix else HERE / f"{model}.safetensors")


def lines(case: Row) -> Iterator[str]:
    """The rows of one case."""
    rows = case["scenes"]
    groups = by_sensor(rows).values()

    def figure(after: str, before: str) -> float:
        return mean(mean(row[after] - row[before] for row in group) for group in groups)

    worst = min(row["psnr"] - row["bicubic"] for row in rows)
    below = sum(row["psnr"] < row["bicubic"] for row in rows)
    gains = (
        f"{figure('psnr', 'bicubic'):+.2f} | {figure('blind', 'bicubic'):+.2f} | {figure('psnr', 'blind'):+.2f}"
    )
    held = f"{100 * mean(mean(row['coverage'] for row in group) for group in groups):.1f} %"
    yield f"| x{case['scale']} | {case['spread']} | {len(rows)} | {gains} | {worst:+.2f} | {below} | {held} |"


def table(record: dict[str, Row]) -> list[str]:
    """A row for each case: the mean of the sensors, and the worst scene of all."""
    return [
        "| scale | FWHM | scenes | told, dB | blind, dB | difference | worst | below bicubic | intervals hold |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row for case in record.values() for row in lines(case)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("scales", nargs="*", type=int)
    parser.add_argument("--model", help="instead of general-xSCALE")
    parser.add_argument("--blind", help="the model that is used blindly, if another one")
    parser.add_argument("--most", type=int, default=10**6, help="scenes of a sensor")
    parser.add_argument("--at", default=",".join(SPREADS), help="point spreads")
    asked = parser.parse_args()
    record: dict[str, Row] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for scale in asked.scales:
        model = asked.model or f"general-x{scale}"
        for spread in asked.at.split(","):
            about = {
                "model": weights_of(model),
                "blind": asked.blind and weights_of(asked.blind),
                "most": asked.most,
            }
            key = f"x{scale} {spread}"
            if record.get(key, {}).get("about") != about:
                record[key] = measure(asked.data, scale, spread, model, asked.blind, asked.most) | {"about": about}
                RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    document = HERE / "README.md"
    document.write_text(with_table(document.read_text(), "blur", table(record)))


if __name__ == "__main__":
    main()
