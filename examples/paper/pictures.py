"""The studies that end in a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import figures
import numpy as np
from page import SYSTEMS, Page, published
from runs import read
from scenes import PUBLISHED, cubes_in

ZOOM = 64  # side of the square that is shown of a scene's uncertainty
BINS = np.arange(0, 101, 5)  # of S, in percent
SPOTS = 3  # pixels whose spectra are shown
REAL_SIDE = 128  # coarse pixels of the real scene, as in the paper


def samples(page: Page) -> None:
    """MPSNR and SAM against the number of samples, with the spread over sets of draws."""
    runs, panels, rows = page.runs, {"MPSNR, dB": {}, "SAM, degrees": {}}, []
    parts = [part["sampling"]["pdenet"] for part in runs.evaluated(runs.train("pdenet"), page.draws)]
    template = runs.scores(runs.train("template"))
    for panel, metric in zip(panels, ("MPSNR", "SAM"), strict=True):
        means = {
            sets[0]["samples"]: tuple(
                float(np.mean([one[metric][value] or 0.0 for one in sets])) for value in ("mean", "std")
            )
            for sets in zip(*(part["draws"] for part in parts), strict=True)
        }
        panels[panel] = {"PDE-Net": means, "Template-Net": dict.fromkeys(means, (template[metric], 0.0))}
    for count in panels["MPSNR, dB"]["PDE-Net"]:
        found = [panels[panel]["PDE-Net"][count] for panel in panels]
        rows.append([str(count), *(f"{mean:.3f} ± {std:.3f}" for mean, std in found)])
    rows.append(["Template-Net", f"{template['MPSNR']:.3f}", f"{template['SAM']:.3f}"])
    paper = {name: published("tables", runs.data.name, str(runs.scale), name) for name in SYSTEMS}
    for name, label in (("PDE-Net", "PDE-Net, N=5, paper"), ("Template-Net", "Template-Net, paper")):
        rows.append([label, f"{paper[name][0]:.3f}", f"{paper[name][2]:.3f}"])
    page.say("Number of samples", ["N", "MPSNR", "SAM"], rows)
    figures.series(page.figure(), page.title, panels, "samples N")


def probabilities(page: Page) -> None:
    """The learned probabilities of the masks, on the network and on the layer level."""
    picture = page.figure()
    page.runs.run(["models", "show", str(page.runs.train("pdenet")), "--plot", str(picture), "--overwrite"])


def share(page: Page) -> None:
    """The mean error of the pixels of each uncertainty S; the paper finds it roughly proportional to S."""
    runs = page.runs
    model = runs.train("pdenet")
    found = []
    for number in range(min(6, sum(len(part.cubes) for part in runs.data.tests))):
        fine = runs.sharpened(model, number, runs.samples)
        error = np.abs(read(fine).clip(0, 1) - read(runs.scene(number).truth))
        found.append((read(_map(fine, "share")).ravel(), error.ravel()))
    shares, errors = (np.concatenate(values) for values in zip(*found, strict=True))
    places = np.digitize(shares, BINS[1:-1])
    points = {
        float(shares[places == place].mean()): (float(errors[places == place].mean()), 0.0)
        for place in np.unique(places)
    }
    rows = [
        [f"{s:.1f} %", f"{255 * error:.3f}", f"{np.mean(places == place):.2%}"]
        for place, (s, (error, _)) in zip(np.unique(places), points.items(), strict=True)
    ]
    rows.append(["correlation of S and error, all values", f"{_correlation(shares, errors):.3f}", ""])
    page.say("Uncertainty against error", ["mean S", "mean error, grey levels of 255", "of the values"], rows)
    grey = {s: (255 * error, 0.0) for s, (error, _) in points.items()}
    figures.series(page.figure(), page.title, {"mean error, grey levels": {"PDE-Net": grey}}, "uncertainty S, %")


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else float("nan")


def uncertainty(page: Page) -> None:
    """A part of a scene: the truth, two samples, how they differ, S and the error of the mean."""
    runs = page.runs
    model, rgb = runs.train("pdenet"), runs.data.rgb
    truth, mean = read(runs.scene().truth), runs.sharpened(model, 0, runs.samples)
    one, two = (read(runs.sharpened(model, 0, 1, seed)) for seed in (1, 2))
    unsure, error = read(_map(mean, "share")).mean(0), np.abs(read(mean) - truth).mean(0)
    part = _busiest(unsure, min(ZOOM, *unsure.shape))
    top = float(np.percentile(truth[:, *part], 99.5))
    looks = {
        name: figures.shown(cube[:, *part], rgb, top)
        for name, cube in {"truth": truth, "sample 1": one, "sample 2": two}.items()
    }
    maps = {
        "S, %, mean of the bands": unsure[part],
        "error of the mean, grey levels": 255 * error[part],
        "difference of the samples": 255 * np.abs(one - two).mean(0)[part],
    }
    figures.pictures(page.figure(), page.title, [looks, maps], [1.0, None])


def _busiest(values: np.ndarray, side: int) -> tuple[slice, slice]:
    """The square of this side with the largest mean."""
    sums = np.pad(values, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    inside = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    row, column = np.unravel_index(inside.argmax(), inside.shape)
    return np.s_[row : row + side, column : column + side]


def errors(page: Page) -> None:
    """A scene by every system: pictures, error maps, and spectra of the pixels where bicubic errs most."""
    runs, rgb = page.runs, page.runs.data.rgb
    truth = read(runs.scene().truth)
    cubes = {"truth": truth} | _sharpened(page)
    top, maps = float(np.percentile(truth, 99.5)), {}
    for name, cube in [*cubes.items()][1:]:
        maps[name] = 255 * np.abs(cube.clip(0, 1) - truth).mean(0)
    looks = {name: figures.shown(cube, rgb, top) for name, cube in cubes.items()}
    most = float(np.percentile(maps["BI"], 99))
    scene = f"{page.title}, {runs.scene().name}"
    below = {"truth": None} | {f"{name}, error": found for name, found in maps.items()}
    figures.pictures(page.figure(), f"{scene}, errors in grey levels of 255", [looks, below], [1.0, most])
    figures.spectra(page.figure("-spectra"), scene, looks["truth"], _spots(maps["BI"]), cubes)
    rows = [[name, f"{found.mean():.3f}"] for name, found in maps.items()]
    page.say("Errors of one scene", ["system", "mean error, grey levels of 255"], rows)


def _sharpened(page: Page) -> dict[str, np.ndarray]:
    found: dict[str, Any] = {}
    for name, model in page.trained().items():
        path = page.tried(page.runs.sharpened, model, 0, page.samples(name))
        if path is not None:
            found[name] = read(path)
    return found


def _spots(error: np.ndarray) -> list[tuple[int, int]]:
    """The pixels of the largest errors, one in each of some strips of the scene, away from its edge."""
    margin = min(8, min(error.shape) // 4)
    inner, spots = error[margin:-margin, margin:-margin], []
    for strip in np.array_split(np.arange(inner.shape[1]), SPOTS):
        row, column = np.unravel_index(inner[:, strip].argmax(), (inner.shape[0], len(strip)))
        spots.append((int(row) + margin, int(strip[column]) + margin))
    return spots


def parameters(page: Page) -> None:
    """MPSNR against the number of parameters."""
    runs, scale, ours = page.runs, str(page.runs.scale), {}
    for name, model in page.trained().items():
        if isinstance(model, Path):
            cost, found = page.tried(runs.cost, model), page.tried(runs.scores, model, page.samples(name))
            if cost is not None and found is not None:
                ours[name] = cost["parameters"] / 1e6, found["MPSNR"]
    millions, scores = PUBLISHED["parameters"][scale], PUBLISHED["tables"][runs.data.name][scale]
    paper = {name: (millions[name], scores[name][0]) for name in SYSTEMS}
    rows = [
        [n, f"{ours[n][0]:.3f}", f"{paper[n][0]:.2f}", f"{ours[n][1]:.3f}", f"{paper[n][1]:.3f}"] for n in ours
    ]
    page.say("Quality against size", ["system", "M parameters", "paper", "MPSNR", "paper"], rows)
    figures.scatter(page.figure(), page.title, ours, paper)


def real(page: Page, folder: Path) -> None:
    """A real scene whose finer truth nobody knows, by every system trained on this data set."""
    runs, cube = page.runs, cubes_in(folder)[0]
    numbers = np.linspace(0, _bands_of(cube) - 1, runs.data.bands).round().astype(int)
    side = str(min(REAL_SIDE, runs.data.crop))
    words = ["--bands", ",".join(map(str, dict.fromkeys(numbers.tolist()))), "--window", "0", "0", side, side]
    cubes = {}
    for name, model in page.trained().items():
        made = page.tried(runs.upscaled, cube, words, model, f"real-{cube.stem}", page.samples(name))
        if made is not None:
            cubes[name] = read(made)
    top = float(np.percentile(cubes["BI"], 99.5))
    looks = {name: figures.shown(found, runs.data.rgb, top) for name, found in cubes.items()}
    figures.pictures(page.figure(), f"{cube.stem} by networks trained on {page.title}", [looks], [1.0])


def _bands_of(cube: Path) -> int:
    from pdenet_cli import open_cube

    with open_cube(cube) as opened:
        return opened.meta.bands


def _map(fine: Path, name: str) -> Path:
    return fine.with_name(f"{fine.stem}_{name}.hdr")
