"""How another process makes the same posterior: its model by path and hash, its draws by their seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.models.catalogue import BICUBIC
from pdenet_cli.models.model import Model, bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior


@dataclass(frozen=True)
class PosteriorRecipe:
    """All that decides a posterior, in a few bytes."""

    path: Path | None  # of the model's file; None: bicubic
    sha256: str
    scale: int
    samples: int
    seed: int
    ensemble: str
    mixtures: int
    psf: Degradation | None
    finer_fwhm: float | None
    device: str

    @classmethod
    def of(cls, posterior: Posterior) -> PosteriorRecipe:
        """The recipe of a posterior whose model came from a file; UsageError for one that is only in memory."""
        model = posterior.model
        if model.path is None and model.spec.network != BICUBIC:
            raise UsageError(f"{model.name}: other processes need a model that is in a file. Save it first.")
        return cls(
            model.path and model.path.absolute(),
            model.sha256,
            model.scale,
            posterior.asked,
            posterior.seed,
            posterior.ensemble,
            posterior.most_mixtures,
            posterior.psf,
            posterior.finer_fwhm,
            str(posterior.device),
        )

    def make(self) -> Posterior:
        """The posterior; ModelError if the file is not the one that is meant."""
        posterior = Posterior(self._model(), self.samples, self.seed, self.ensemble, self.mixtures, self.psf)
        same = self.finer_fwhm == posterior.finer_fwhm
        return posterior if same else posterior.for_truths_of(self.finer_fwhm)

    def _model(self) -> Model:
        if self.path is None:
            return bicubic_model(self.scale, self.device)
        model = load_model(self.path, self.device)
        if model.sha256 != self.sha256:
            raise ModelError(f"{self.path}: another model than the one that the run began with. Copy it again.")
        return model
