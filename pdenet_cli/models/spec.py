"""How a model describes itself: its network, how it was trained, on what, and how well it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pdenet_cli.degradation import Degradation


@dataclass(frozen=True)
class ModelSpec:
    """All that a weights file says about itself besides the weights."""

    network: str
    config: Mapping[str, Any]
    scale: int
    degradation: Mapping[str, Any]  # how its low-resolution training cubes were made
    version: str  # version of pdenet
    data: tuple[Mapping[str, Any], ...] = ()  # name, sha256 of the numbers, shape, dtype of each cube
    validation: tuple[
        Mapping[str, Any], ...
    ] = ()  # of the whole cubes that it was validated on, if there were any
    began_with: Mapping[str, Any] = field(default_factory=dict)  # history of the model of `init`
    recipe: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    steps: int = 0
    minutes: float = 0.0
    scores: Mapping[str, Any] = field(default_factory=dict)  # on held-out parts, beside those of bicubic
    licence: str = "not stated"
    calibration: Mapping[str, Any] | None = None  # of its intervals, see Calibration
    errors: Mapping[str, Any] = field(default_factory=dict)  # how the network that expects errors learned
    imported: Mapping[str, Any] = field(default_factory=dict)  # the checkpoint that the weights are from
    masks: Mapping[str, Any] = field(default_factory=dict)  # what the probabilities of its masks have become
    training: Mapping[str, Any] = field(default_factory=dict)  # where a training stands that can be resumed
    adapted: Mapping[str, Any] = field(default_factory=dict)  # which scene it was fitted to, what that gained
    extra: Mapping[str, Any] = field(default_factory=dict)  # what others wrote into the file

    def to_dict(self) -> dict[str, Any]:
        """The spec for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The spec that `to_dict` gave; fields of later versions are ignored."""
        values = _with_lifted_fields(values)
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        spec = cls(**known | {name: tuple(known.get(name, ())) for name in ("data", "validation")})
        spec._refuse_odd()
        return spec

    def _refuse_odd(self) -> None:
        """TypeError or ValueError where a field is not what it should be, or contradicts another."""
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise TypeError(f"its {name} is {value!r:.60}")
        if self.config.get("scale", self.scale) != self.scale:
            raise ValueError(f"it is made for x{self.scale}, its network for x{self.config['scale']}")
        if not all(isinstance(cube, dict) for cube in (*self.data, *self.validation)):
            raise TypeError("its data are not described one by one")
        if self.scores and not all(isinstance(self.scores.get(name), int | float) for name in _SCORES):
            raise TypeError(f"its scores are not {', '.join(_SCORES)}")
        cubes = self.scores.get("cubes", {})
        if not isinstance(cubes, dict) or not all(
            isinstance(score.get(name), int | float) for score in cubes.values() for name in _CUBE_SCORES
        ):
            raise TypeError(f"the scores of its cubes are not {', '.join(_CUBE_SCORES)}")

    def history(self) -> dict[str, Any]:
        """How it was trained, and from which model: what a model that starts from it records."""
        names = ("scale", "recipe", "seed", "steps", "minutes", "began_with")
        keys = ("name", "sha256", "shape", "holdout")
        data = [{key: fact[key] for key in keys if key in fact} for fact in self.data]
        return {name: getattr(self, name) for name in names} | {"data": data}

    def training_cubes(self) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
        """The cubes that it, its error network and the models that it started from were trained on.

        Each with the scale of that training, None if it is not known: what was held out depends on it.
        """
        yield from ((self.scale, fact) for fact in self.data)
        yield from ((self.scale, fact) for fact in self.error_lessons())
        began: Any = self.began_with
        while isinstance(began, dict) and began:
            data, scale = began.get("data"), began.get("scale")
            then = scale if isinstance(scale, int) and scale > 1 else None
            yield from ((then, fact) for fact in data if isinstance(fact, dict)) if isinstance(data, list) else ()
            began = began.get("began_with")

    def error_lessons(self) -> list[Mapping[str, Any]]:
        """The cubes that its error network was trained on, apart from their held-out quarters."""
        scenes = self.errors.get("scenes")
        return [fact for fact in scenes if isinstance(fact, dict)] if isinstance(scenes, list) else []

    def training_degradation(self) -> Degradation:
        """The degradation of its training cubes."""
        from pdenet_cli.degradation import Degradation

        return Degradation.from_dict(self.degradation or {"scale": self.scale})

    @property
    def takes_any_psf(self) -> bool:
        """Whether it is told the point spread of each scene, instead of being made for one."""
        return self.config.get("psf") == "any"

    @property
    def sees_every_band(self) -> bool:
        """Whether it learned from whole spectra, so that mixtures of bands are used only where asked for."""
        return bool(self.imported) or self.recipe.get("bands") == 0

    @property
    def gain(self) -> float | None:
        """Its PSNR minus that of bicubic on held-out parts, in dB."""
        scores = self.scores
        return scores["psnr"] - scores["bicubic_psnr"] if "psnr" in scores else None


_ONCE_EXTRA = ("calibration", "errors", "imported", "masks", "training")  # in `extra` of the first model files
_KINDS: dict[str, Any] = (
    dict.fromkeys(("network", "version", "licence"), str)
    | dict.fromkeys(("scale", "seed", "steps"), int)
    | dict.fromkeys(("config", "degradation", "began_with", "recipe", "scores", "extra"), dict)
    | dict.fromkeys(("errors", "imported", "masks", "training", "adapted"), dict)
    | {"minutes": int | float, "calibration": dict | None}
)
_SCORES = ("psnr", "bicubic_psnr", "draws")  # in `scores`, unless that is empty
_CUBE_SCORES = ("psnr", "bicubic_psnr", "sam", "bicubic_sam")  # in `scores`, for each cube


def _with_lifted_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a spec, in which what was once among `extra` has fields of its own."""
    others = values.get("extra")
    if not isinstance(others, dict):
        return values
    lifted = {name: others[name] for name in _ONCE_EXTRA if name in others}
    return {**lifted, **values, "extra": {n: v for n, v in others.items() if n not in lifted}}
