"""What a user should know of a scene and of what was made of it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdenet_cli.models.networks.pdenet import missing_kernel
from pdenet_cli.sampling.mixtures import enough_bands
from pdenet_cli.sampling.run import Layer
from pdenet_cli.sampling.scene_pass import ScenePass
from pdenet_cli.scene.meta import CubeMeta


def scene_notes(scene: ScenePass, mean: CubeMeta | None) -> Iterator[str]:
    """Notes on the file, its values and the samples; `mean` is the sharpened cube, if it is written."""
    yield from (*scene.cube.meta.notes, *scene.reading.survey.notes)
    yield from _zero_bands(scene, mean)
    count, asked = len(scene.posterior), scene.posterior.asked
    if 1 < count < asked:
        yield f"{count} samples instead of {asked}: this network cannot give more different ones."
    if (why := missing_kernel(scene.posterior.network)) is not None:
        yield f"Without the compiled kernel ({why}) the network takes about twice as long; see pdenet doctor."
    if not scene.sampler.mixtures and enough_bands(len(scene.reading.bands), scene.posterior.most_mixtures):
        reason = "Too few pixels with data to see the bands as mixtures"
        yield f"{reason}: the network sees every band, which takes longer."


def clipped_notes(layers: Sequence[Layer], *, partly: bool) -> Iterator[str]:
    """A note if values were beyond the type of a cube; `partly`: those of the tiles of this run alone."""
    for layer in layers:
        if layer.cube is not None and (count := sum(layer.clipped)):
            least = "At least " if partly else ""
            values = f"{count:,} values were" if count > 1 else "1 value was"
            advice = "pdenet upscale --dtype float32 keeps them"
            yield f"{least}{values} beyond what {layer.cube.meta.dtype.name} holds and clipped; {advice}."


def _zero_bands(scene: ScenePass, mean: CubeMeta | None) -> Iterator[str]:
    """A note if bad bands are written as 0 because the output has no nodata value."""
    unusable = scene.reading.unusable(scene.cube.meta)
    if mean is not None and unusable and mean.nodata is None and mean.dtype.kind in "iu":
        bands = "bad band is" if unusable == 1 else "bad bands are"
        yield f"{unusable} {bands} written as 0: the scene has no nodata value. Give one with `nodata`"
