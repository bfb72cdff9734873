"""What the shipped models score on the example scene.

After other weights are shipped, goldens.json is made anew by

python -m tests.goldens
"""

import json
from pathlib import Path

from pdenet_cli.models.catalogue import available_models
from tests import command

FILE = Path(__file__).with_suffix(".json")
EXAMPLE = Path(__file__).parent.parent / "examples" / "indian_pines.hdr"
BANDS = "20:36"
CLOSE = {"MPSNR": 0.02, "SAM": 0.01, "coverage": 0.01}
"""Differences that rounding may make: in dB, relative, and of the share of the values that intervals hold."""


def scores(model: object) -> dict[str, float]:
    """The scores of a model on the example scene made coarse, by the command a user would give."""
    ran = command.run("evaluate", "--model", model, "--uncertainty", "--bands", BANDS, "--json", EXAMPLE)
    assert ran.returncode == 0, ran.stderr
    (scene,) = json.loads(ran.stdout)["scenes"]
    name = next(name for name in scene["systems"] if name != "bicubic")
    values = scene["systems"][name]["values"]
    coverage = scene["uncertainty"][name]["values"]["interval coverage"]
    return {"MPSNR": values["MPSNR"], "SAM": values["SAM"], "coverage": coverage}


def worse_or_other(found: dict[str, float], golden: dict[str, float]) -> list[str]:
    """The scores that are not what they were."""
    allowed = CLOSE | {"SAM": CLOSE["SAM"] * golden["SAM"]}
    return [
        f"{name} is {found[name]:.4f}, not {golden[name]:.4f}"
        for name in golden
        if not abs(found[name] - golden[name]) <= allowed[name]
    ]


def main() -> None:
    goldens = {name: scores(name) for name in sorted(available_models())}
    rounded = {model: {name: round(value, 4) for name, value in found.items()} for model, found in goldens.items()}
    FILE.write_text(json.dumps(rounded, indent=1) + "\n")


if __name__ == "__main__":
    main()
