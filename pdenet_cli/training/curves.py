"""The loss and the gain of a training run as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np


def draw_curves(records: Sequence[dict[str, Any]], title: str) -> bytes:
    """A PNG of the loss and of how far validation is above bicubic, from the records of a log."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    steps = [r for r in records if r["kind"] == "step"]
    checks = [r for r in records if r["kind"] == "validation" and r["step"] > 0]
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(title)
    loss, gain = figure.subplots(1, 2)

    loss.set(xlabel="step", ylabel="loss", yscale="log")
    if steps:
        numbers = np.array([r["step"] for r in steps])
        values = np.array([r["loss"] for r in steps])
        loss.plot(numbers, values, color="0.8", linewidth=0.5)
        width = max(1, len(values) // 20)
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        loss.plot(numbers[width - 1 :], smooth, color="C0")

    gain.set(xlabel="step", ylabel="dB over bicubic")
    gain.axhline(0, color="0.5", linewidth=0.8)
    for name, label in (("psnr", "mean of the draws"), ("single_psnr", "one draw")):
        rise = [r["scores"][name] - r["scores"]["bicubic_psnr"] for r in checks]
        gain.plot([r["step"] for r in checks], rise, marker=".", label=label)
    gain.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
