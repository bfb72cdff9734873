"""How wide the point spread of known sensors is, as their calibration sites measured it."""

from __future__ import annotations

from dataclasses import dataclass

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


def width_of(psf: str) -> str:
    """The width of the sensor of this name as a text; any other text as it is."""
    return next((f"{sensor.fwhm:g}" for sensor in SENSORS if sensor.name.lower() == psf.lower()), psf)


def sensor_of(product: str | None) -> Sensor | None:
    """The sensor whose name a product's name begins with."""
    words = (product or "").lower()
    return next((sensor for sensor in SENSORS if words.startswith(sensor.name.lower())), None)
