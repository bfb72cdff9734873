"""Several models side by side on a scene without a truth: pictures, spectra, agreement with the input.

    python examples/real_sensor.py SCENE FOLDER --model general-x4 --model adapted.safetensors --psf 1.4
    python examples/real_sensor.py SCENE FOLDER --model general-x4 --pixel 30,40 --pixel 12,5 -- --bands 10:60

Outputs are FOLDER/SCENE_MODEL.tif, so that models do not collide, and FOLDER/SCENE.html. Models made for one point
spread are not told the scene's; all are judged under it. Pixels are counted from 0 in the scene; without any,
three are chosen. What follows -- goes to every pdenet command: --bands, --window, --var, --range ...
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pdenet_cli import Cube, Window, load_model, open_cube
from pdenet_cli.pages.chart import Line, legend, line_chart, strokes
from pdenet_cli.pages.frame import html_page
from pdenet_cli.scene.picture import data_uri, quicklook

BICUBIC = "bicubic"
SHOWN = ("shift down", "shift right", "gain", "blur", "remaining difference", "remaining angle", "detail")


def pdenet(*words: object) -> str:
    """What a pdenet command prints; ends this program where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pdenet_cli", *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def labels_of(models: Sequence[str]) -> dict[str, str]:
    """Each model with a label of its own: its name, with its folder where two have the same name."""
    names = [Path(model).stem for model in models]
    twice = {name for name in names if names.count(name) > 1}
    return {
        f"{Path(model).resolve().parent.name}_{name}" if name in twice else name: model
        for name, model in zip(names, models, strict=True)
    }


def sharpened(
    scene: Path, folder: Path, models: dict[str, str], scale: int, psf: str, others: Sequence[str]
) -> dict[str, Path]:
    """The output of every model, made unless it is there."""
    outputs = {}
    for label, model in models.items():
        output = folder / f"{scene.stem}_{label}.tif"
        told = ["--psf", psf] if model != BICUBIC and load_model(model).network.any_psf else []
        if not output.exists():
            pdenet("upscale", scene, "-o", output, "--model", model, "--scale", scale, *told, *others)
        outputs[label] = output
    return outputs


def judged(scene: Path, output: Path, psf: str, others: Sequence[str]) -> dict[str, Any]:
    """The figures of `pdenet evaluate --input`, by name."""
    told = json.loads(pdenet("evaluate", output, "--input", scene, "--psf", psf, "--json", *others))
    return {name: figure for part in told["findings"] for name, figure in part["figures"].items()}


def chosen_pixels(rows: int, columns: int) -> list[tuple[int, int]]:
    """Three pixels on the scene's diagonal."""
    return [(rows * i // 4, columns * i // 4) for i in (1, 2, 3)]


def spectrum(cube: Cube, row: int, column: int, scale: int) -> list[float]:
    """The spectrum in the middle of a pixel of the input."""
    window = Window(row * scale + scale // 2, column * scale + scale // 2, 1, 1)
    return [float(value) for value in cube.read(window).ravel()]


def page(
    outputs: dict[str, Path], figures: dict[str, Any], pixels: Sequence[tuple[int, ...]], rows: int
) -> Iterator[str]:
    """The parts of the page."""
    cubes = {label: open_cube(path) for label, path in outputs.items()}
    yield "<h2>Pictures</h2><div class='maps'>"
    for label, cube in cubes.items():
        picture = data_uri(quicklook(cube))
        yield f'<figure><img alt="" src="{picture}"><figcaption>{escape(label)}</figcaption></figure>'
    yield "</div><h2>Agreement with the input</h2><div class='scroll'><table><thead><tr><th>model</th>"
    yield "".join(f"<th>{name}</th>" for name in SHOWN) + "</tr></thead><tbody>"
    for label, found in figures.items():
        cells = (f"<td>{found[name]['value']:.3g} {escape(found[name]['unit'])}</td>" for name in SHOWN)
        yield f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div><p>A result that agrees may still have invented what the input's pixels average "
    yield "away; detail is a fact, not a score.</p><h2>Spectra</h2>"
    drawn = strokes(list(cubes), grey=BICUBIC if BICUBIC in cubes else None)
    yield legend(drawn)
    for row, column in pixels:
        lines = []
        for label, cube in cubes.items():
            values = spectrum(cube, row, column, cube.meta.rows // rows)
            waves = cube.meta.wavelengths_nm
            places = [float(i) for i in range(len(values))] if waves is None else [float(nm) for nm in waves]
            lines.append(Line(label, places, values, drawn[label]))
        title = f"row {row}, column {column} of the input"
        yield f"<h3>{title}</h3><figure>{line_chart(lines, 'band or nanometres', 'value', title)}</figure>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", action="append", default=[], help="by name or file; bicubic is always there")
    parser.add_argument("--psf", default="auto", help="FWHM in pixels, square, bicubic, or auto")
    parser.add_argument("--pixel", action="append", default=[], help="ROW,COLUMN of the scene")
    given = sys.argv[1:]
    others = given[given.index("--") + 1 :] if "--" in given else []
    asked = parser.parse_args(given[: len(given) - len(others) - 1] if "--" in given else given)
    asked.folder.mkdir(parents=True, exist_ok=True)
    psf = asked.psf
    if psf == "auto":
        psf = json.loads(pdenet("psf", asked.scene, "--json", *others))["psf"]
    models = labels_of(asked.model or ["general-x4"])
    scales = {load_model(model).scale for model in models.values()}
    if len(scales) > 1:
        sys.exit(f"The models are of different scales: {sorted(scales)}.")
    scale = scales.pop()
    models = {BICUBIC: BICUBIC} | models
    outputs = sharpened(asked.scene, asked.folder, models, scale, psf, others)
    figures = {label: judged(asked.scene, output, psf, others) for label, output in outputs.items()}
    with open_cube(outputs[BICUBIC]) as first:
        rows, columns = first.meta.rows // scale, first.meta.columns // scale
    pixels = [tuple(map(int, text.split(","))) for text in asked.pixel] or chosen_pixels(rows, columns)
    title = f"{asked.scene.name}, point spread {psf}"
    body = [f"<h1>{escape(title)}</h1>", *page(outputs, figures, pixels, rows)]
    target = asked.folder / f"{asked.scene.stem}.html"
    target.write_text(html_page(title, "evaluation.css", body))
    print(target)


if __name__ == "__main__":
    main()
