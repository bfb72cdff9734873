"""How wide the point spread of known sensors is, as their calibration sites measured it."""

from __future__ import annotations

from dataclasses import dataclass

from pdenet_cli.errors import UsageError

USGS_TANAGER = "USGS open-file report 2021-1030W"
USGS_PRISMA = "USGS open-file report 2021-1030K"


@dataclass(frozen=True)
class Sensor:
    """A sensor and the full width at half maximum of its point spread, in pixels of the product."""

    name: str
    narrowest: float
    widest: float
    mtf_at_nyquist: tuple[float, float]  # of the narrowest and of the widest
    source: str

    @property
    def fwhm(self) -> float:
        """The middle of the measured range."""
        return (self.narrowest + self.widest) / 2


SENSORS = (
    Sensor("Tanager", 1.27, 1.75, (0.49, 0.25), USGS_TANAGER),
    Sensor("PRISMA", 1.84, 1.97, (0.10, 0.05), USGS_PRISMA),
)
"""Only sensors with a published measurement; of others `pdenet psf` measures the scene."""


def sensor_named(name: str) -> Sensor:
    """The sensor of this name, however it is written; UsageError with all that are known."""
    for sensor in SENSORS:
        if sensor.name.lower() == name.strip().lower():
            return sensor
    known = ", ".join(f"{sensor.name} ({sensor.narrowest:g} to {sensor.widest:g})" for sensor in SENSORS)
    advice = "Measure the scene with pdenet psf, or give its width with `psf`"
    raise UsageError(f"`sensor` {name}: no published width is known, only of {known}. {advice}.")


def sensor_of(product: str | None) -> Sensor | None:
    """The sensor whose name a product's name begins with."""
    words = (product or "").lower()
    return next((sensor for sensor in SENSORS if words.startswith(sensor.name.lower())), None)
