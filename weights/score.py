"""Score the shipped models on the scenes that no training, choice or calibration has seen.

    python weights/score.py DATA [MODEL ...]     score on the scenes of unseen.sha256 below DATA: scores.json
    python weights/score.py                      write the tables made of scores.json into the documents

Every figure of the tables comes from `pdenet evaluate --uncertainty --json`, 8 samples, whole scenes. A sensor's
line is the mean of its scenes, the line "all" the mean of the sensors.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from safetensors.numpy import load_file

HERE = Path(__file__).resolve().parent
SCORES = HERE / "scores.json"
DOCUMENTS = (HERE.parent / "README.md", HERE / "README.md")
SENSORS = {"cave": "CAVE", "kaist": "KAIST", "aviris": "AVIRIS", "spectir": "SpecTIR", "neon": "NEON"}
MODELS = ("general-x2", "general-x4", "general-x8", "sensor-x4")
Row = dict[str, Any]


def unseen(data: Path) -> Iterator[Path]:
    """The scenes of unseen.sha256 below `data`; a file with another content stops the run."""
    for line in (HERE / "unseen.sha256").read_text().splitlines():
        wanted, name = line.split()
        path = data / name
        if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            sys.exit(f"{path} is not the scene that the list names.")
        yield path


def score(data: Path, model: str) -> Row:
    """The scores of a shipped model: one row per scene."""
    command = [sys.executable, "-m", "pdenet_cli", "evaluate", "--model", model, "--uncertainty", "--json"]
    scenes = list(unseen(data))
    done = subprocess.run([*command, *map(str, scenes)], stdout=subprocess.PIPE)  # 7: some scenes failed
    if done.returncode not in (0, 7):
        sys.exit(done.returncode)
    found = json.loads(done.stdout)
    paths = [path for path in scenes if path.name not in found["failed"]]
    rows = [_row(path, scene, model) for path, scene in zip(paths, found["scenes"], strict=True)]
    left_out = dict(sorted(found["failed"].items()))
    return {"model": model, "tensors": digest(HERE / f"{model}.safetensors"), "scenes": rows, "left_out": left_out}


def digest(file: Path) -> str:
    """The SHA-256 of the weights in a model file, whatever its header says."""
    tensors = load_file(file)
    return hashlib.sha256(b"".join(tensors[name].tobytes() for name in sorted(tensors))).hexdigest()


def _row(path: Path, scene: Row, model: str) -> Row:
    """What the tables need of one scene."""
    bicubic, estimate = (scene["systems"][name]["values"] for name in ("bicubic", model))
    trust = scene["uncertainty"][model]["values"]
    return {
        "scene": f"{path.parent.name}/{path.name}",
        "bicubic": [bicubic["MPSNR"], bicubic["SAM"]],
        "estimate": [estimate["MPSNR"], estimate["SAM"]],
        "coverage": trust["interval coverage"],
        "width": trust["interval unit width"],
        "ause": [trust["interval AUSE/random"], trust["AUSE/random"]],
    }


def by_sensor(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each sensor, by the name of the sensor."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(SENSORS[row["scene"].split("/")[0]], []).append(row)
    return groups


def gain(row: Row) -> float:
    return float(row["estimate"][0] - row["bicubic"][0])


def table_of_scores(rows: Sequence[Row]) -> list[str]:
    """A table of gains and trust, a line a sensor."""
    lines = [
        "| sensor | scenes | bicubic | pdenet | gain, dB | worst | intervals hold | in scenes | width | AUSE |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    cells = []
    for sensor, some in by_sensor(rows).items():
        covered = [100 * row["coverage"] for row in some]
        numbers = [
            *(mean(row[system][i] for row in some) for system in ("bicubic", "estimate") for i in (0, 1)),
            mean(map(gain, some)),
            mean(covered),
            mean(row["width"] for row in some),
            mean(row["ause"][0] for row in some),
        ]
        cells.append(numbers)
        spread = f"{min(map(gain, some)):+.2f}", f"{min(covered):.0f} to {max(covered):.0f} %"
        lines.append(_line(sensor, str(len(some)), numbers, *spread))
    return [*lines, _line("all", str(len(rows)), [mean(column) for column in zip(*cells, strict=True)], "", "")]


def _line(sensor: str, scenes: str, numbers: Sequence[float], worst: str, spread: str) -> str:
    low, low_angle, high, high_angle, gained, covered, width, ranked = numbers
    systems = f"{low:.2f} / {low_angle:.2f}° | {high:.2f} / {high_angle:.2f}° | {gained:+.2f} | {worst}"
    return f"| {sensor} | {scenes} | {systems} | {covered:.1f} % | {spread} | {width:.3f} | {ranked:.2f} |"


def table_of_gains(scores: dict[str, Row]) -> list[str]:
    """The gain of every model over bicubic, a line a sensor."""
    gains = {model: by_sensor(scores[model]["scenes"]) for model in MODELS if model in scores}
    lines = [
        f"| sensor | scenes | {' | '.join(gains)} |",
        "|---" * (len(gains) + 2) + "|",
    ]
    for sensor, rows in next(iter(gains.values())).items():
        cells = [f"{mean(map(gain, groups[sensor])):+.2f} dB" for groups in gains.values()]
        lines.append(f"| {sensor} | {len(rows)} | {' | '.join(cells)} |")
    return lines


def filled(text: str, scores: dict[str, Row]) -> str:
    """A document with its tables, which stand between comments `<!-- scores NAME -->` and `<!-- end -->`."""
    tables = {model: table_of_scores(result["scenes"]) for model, result in scores.items()}
    tables["gains"] = table_of_gains(scores)
    for name, lines in tables.items():
        text = with_table(text, name, lines)
    return text


def with_table(text: str, name: str, lines: Sequence[str]) -> str:
    """A document with the table of this name, if it has a place for it."""
    start = f"<!-- scores {name} -->\n"
    before, found, rest = text.partition(start)
    return before + start + "\n".join(lines) + "\n" + rest[rest.index("<!-- end -->") :] if found else text


def main(arguments: Sequence[str]) -> None:
    scores = json.loads(SCORES.read_text()) if SCORES.exists() else {}
    for model in arguments[1:] or MODELS if arguments else ():
        scores[model] = score(Path(arguments[0]), model)
        SCORES.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
    for document in DOCUMENTS:
        document.write_text(filled(document.read_text(), scores))


if __name__ == "__main__":
    main(sys.argv[1:])
