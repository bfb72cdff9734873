"""`pdenet info`: the metadata of a cube, a survey of its values, and the size of an x4 output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.files import refuse_existing, refuse_folders, refuse_scenes, write_whole
from pdenet_cli.formats import open_cube
from pdenet_cli.report import finite
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.picture import Picture, png, quicklook, refuse_other_than_png
from pdenet_cli.scene.radiometry import Radiometry, ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window


@dataclass(frozen=True)
class Description:
    """What `pdenet info` knows about one cube."""

    path: Path
    meta: CubeMeta
    survey: Survey
    radiometry: Radiometry
    thumbnail: Picture | None

    def to_dict(self) -> dict[str, Any]:
        """All but the picture, for JSON; NaN becomes null, infinity "inf"."""
        meta = asdict(self.meta) | {"dtype": self.meta.dtype.str, "extra": _plain(self.meta.extra)}
        meta["georeference"]["native"] = _plain(meta["georeference"]["native"])
        everything = {
            "path": str(self.path),
            **meta,
            "survey": asdict(self.survey),
            "radiometry": asdict(self.radiometry),
            "x4": {"bytes_on_disk": self.meta.upscaled(4).nbytes},
        }
        plain: dict[str, Any] = finite(everything)
        return plain


def describe(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | None = None,
    nodata: float | None = None,
    value_range: ValueRange | None = None,
    quicklook_path: Path | None = None,
    overwrite: bool = False,
    thumbnail: bool = False,
    bands: BandChoice | None = None,
    window: Window | None = None,
) -> Description:
    """The description of the cube in `path`, or of only some of its `bands` in a `window`.

    An RGB picture of it is written to `quicklook_path`. `thumbnail`: the description holds a picture too, for
    which three whole bands are read.
    """
    with open_cube(path, variable, axes, nodata, window) as whole:
        cube = whole if bands is None else whole.with_bands(bands)
        if quicklook_path is not None:
            refuse_scenes((quicklook_path,), (path, *cube.files))
            refuse_folders((quicklook_path,))
            refuse_other_than_png(quicklook_path)
            refuse_existing((quicklook_path,), overwrite)
        survey = Survey.quick(cube)
        radiometry = Reading.of(cube, None, value_range, survey).radiometry
        picture = quicklook(cube) if thumbnail or quicklook_path is not None else None
    if quicklook_path is not None and picture is not None:
        write_whole(quicklook_path, png(picture), overwrite=overwrite)
    return Description(path, cube.meta, survey, radiometry, picture)


def _plain(value: Any) -> Any:
    """Unknown header fields as values that JSON has."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
