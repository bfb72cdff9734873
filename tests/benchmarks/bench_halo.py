"""What a margin smaller than the network's reach costs and saves: error against the exact result, and work.

python tests/benchmarks/bench_halo.py [--model NAME] [--scene FILE] [--tile 32]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from pdenet_cli import Radiometry, Survey, load_model, open_cube
from pdenet_cli.models.catalogue import choose_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.tiling import Plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "indian_pines.hdr"


def main() -> None:
    """Print one line for each margin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--scene", default=EXAMPLE)
    parser.add_argument("--tile", type=int, default=32)
    parser.add_argument("--bands", type=int, default=31)
    chosen = parser.parse_args()
    posterior = Posterior(load_model(choose_model(chosen.model, None)), samples=1)
    network = posterior.network
    with open_cube(chosen.scene) as cube:
        survey = Survey.of(cube)
        bands = survey.usable_bands(cube.meta)[: chosen.bands]
        unit, _ = Radiometry.of(cube.meta, survey).prepare(cube.read()[list(bands)], bands)
        scene = cube.meta.window
    exact = Plan(scene, network.scale, bands, network.halo, None, 10**6, len(bands))
    truth = _result(posterior, unit, exact)
    whole = replace(exact, tile=chosen.tile)
    print(f"{posterior.model.name}, reach {network.halo}, tiles of {chosen.tile}, values 0..1")
    print("| halo | largest error | root mean square | work, exact = 1 |")
    print("|---|---|---|---|")
    for halo in [h for h in (0, 2, 4, 6, 8, 12, 16, 20) if h < network.halo] + [network.halo]:
        plan = replace(whole, halo=halo)
        error = _result(posterior, unit, plan) - truth
        rms = np.sqrt(np.square(error).mean())
        print(f"| {halo} | {np.abs(error).max():.1e} | {rms:.1e} | {plan.voxels / whole.voxels:.2f} |")


def _result(posterior: Posterior, unit: np.ndarray, plan: Plan) -> np.ndarray:
    scale = plan.scale
    out = np.empty((len(unit), plan.scene.rows * scale, plan.scene.columns * scale), np.float32)
    for tile in plan.tiles:
        low = np.ascontiguousarray(unit[(slice(None), *tile.padded.slices)])
        crop = tile.core.relative_to(tile.padded).scaled(tile.scale)
        out[(slice(None), *tile.target.slices)] = posterior.samples(low, slice(None), crop)[0]
    return out


if __name__ == "__main__":
    main()
