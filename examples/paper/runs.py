"""The commands of a study, each of which is run once: what it printed is kept and read again the next time."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scenes import DataSet, Part

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.degradation import Degradation

INTERRUPTED = 130
METRICS = ("MPSNR", "MSSIM", "SAM")
Scores = dict[str, float]  # those of METRICS, and "seconds" for a scene


class FailedError(Exception):
    """A command failed; it has said why."""


def pdenet(words: Sequence[str]) -> str:
    """What `pdenet` prints; notes and errors go to the terminal."""
    try:
        done = subprocess.run([sys.executable, "-m", "pdenet_cli", *words], stdout=subprocess.PIPE, text=True)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # the command was interrupted, too, and has saved its state
    if done.returncode == INTERRUPTED:
        sys.exit(INTERRUPTED)
    if done.returncode:
        raise FailedError(f"exit code {done.returncode} of pdenet {shlex.join(words)}")
    return done.stdout


def length(budget: str) -> list[str]:
    """The options of `pdenet train` that a budget means: 200steps, 30minutes or full."""
    if budget == "full":
        return []
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(steps|minutes)", budget)
    if match is None:
        sys.exit(f"--budget {budget}: write for example 200steps, 30minutes or full.")
    return [f"--{match[2]}", match[1]]


@dataclass(frozen=True)
class Scene:
    """A test scene as 0..1: the truth, and how a sensor with coarser pixels sees it."""

    name: str
    truth: Path
    low: Path


@dataclass(frozen=True)
class Runs:
    """Models and scores of one data set at one scale, below a folder for each budget."""

    data: DataSet
    scale: int
    out: Path
    budget: str
    size: str = "paper"  # of the networks
    more: tuple[str, ...] = ()  # options of every training, for trials
    samples: int = 5
    run: Callable[[Sequence[str]], str] = pdenet

    @property
    def folder(self) -> Path:
        """Where everything of this data set and scale is."""
        return self.out / self.budget / f"{self.data.name}-x{self.scale}"

    def kept(self, words: Sequence[str], record: Path) -> Any:
        """What a command prints as JSON: from its record, or by running it."""
        record.parent.mkdir(parents=True, exist_ok=True)
        words = [*words, "--json"]
        if record.exists():
            made = json.loads(record.read_text())
            if made["command"] == words:
                return made["printed"]
            sys.exit(f"{record} was made by another command. Give another --out, or delete it.")
        print("pdenet", shlex.join(words), file=sys.stderr)
        printed = json.loads(self.run(words))
        partly = record.with_suffix(".part")
        partly.write_text(json.dumps({"command": words, "printed": printed}, indent=1))
        partly.replace(record)
        return printed

    def list_of(self, name: str, part: Part) -> str:
        """A part's cubes as a list for the command line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, text = self.folder / f"{name}.txt", "".join(f"{cube}\n" for cube in part.cubes)
        if path.exists() and path.read_text() != text:
            sys.exit(f"{path} lists other scenes than --data has now. Give another --out.")
        path.write_text(text)
        return f"@{path}"

    def train(self, network: str, label: str = "", config: str = "", recipe: str = "") -> Path:
        """The model of a network, perhaps with changes of its configuration or of the recipe."""
        label = label or network
        if network in ("sspsr", "3dgan"):
            config = f"bands={self.data.bands}{',' if config else ''}{config}"
        model = self.folder / f"{label}.safetensors"
        test = self.data.tests[0]
        words = ["train", self.list_of("train", self.data.train), "-o", str(model), "--network", network]
        words += ["--scale", str(self.scale), "--config", ",".join(filter(None, (self.size, config)))]
        words += ["--recipe", ",".join(filter(None, (self.data.recipe, recipe)))]
        words += [*self.data.words, *self.data.train.words, *length(self.budget), "--resume"]
        # The recipe keeps the last state, so the curve on a piece of a test scene decides nothing.
        words += ["--validate", str(test.cubes[0])]
        words += ["--validate-window", *(test.words[1:3] or ("0", "0")), "128", "128", *self.more]
        self.kept(words, self.folder / f"{label}.trained.json")
        return model

    def evaluated(self, model: str | Path, samples: str = "1") -> list[Any]:
        """What `pdenet evaluate` finds on every part that tests, under the paper's protocol."""
        name = Path(model).stem if isinstance(model, Path) else model
        found = []
        for number, part in enumerate(self.data.tests):
            words = ["evaluate", "--model", str(model), "--protocol", "paper", "--samples", samples]
            words += ["--mixtures", "0", *(("--scale", str(self.scale)) if name == "bicubic" else ())]
            words += [*self.data.words, *part.words, self.list_of(f"test{number or ''}", part)]
            record = self.folder / f"{name}.{samples.replace(',', '-')}samples{number or ''}.json"
            found.append(self.kept(words, record))
        return found

    def scores(self, model: str | Path, samples: int = 1) -> Scores:
        """The means over the scenes that test, and the seconds for one of them."""
        name = model.stem if isinstance(model, Path) else model
        systems = [
            scene["systems"][name] for part in self.evaluated(model, str(samples)) for scene in part["scenes"]
        ]
        means = {metric: fmean(system["values"][metric] for system in systems) for metric in METRICS}
        return means | {"seconds": fmean(system["seconds"] for system in systems)}

    def cost(self, model: Path) -> dict[str, float]:
        """Parameters, and multiply-adds for one scene of 512 x 512 finer pixels."""
        cost = self.kept(["models", "show", str(model)], model.with_suffix(".shown.json"))["cost"]
        pixels = (512 // self.scale / cost["side"]) ** 2
        return cost | {name: cost[name] * pixels for name in ("multiply_adds", "as_published")}

    # Pictures are made of a scene of 0..1 and of what `pdenet upscale` makes of its coarse form.

    def scene(self, number: int = 0) -> Scene:
        """A test scene and its coarse form, as ENVI files."""
        part = self.data.tests[number % len(self.data.tests)]
        path = part.cubes[number % len(part.cubes)]
        made = Scene(path.stem, *(self.folder / f"scene{number}.{end}.hdr" for end in ("truth", "low")))
        if not made.low.exists():
            truth = unit(path, self.data, part, self.scale)
            write(made.truth, truth)
            low = Degradation(self.scale)(torch.from_numpy(truth)[None])[0].numpy()
            write(made.low, low.astype(np.float32))
        return made

    def sharpened(self, model: str | Path, number: int = 0, samples: int = 1, seed: int = 0) -> Path:
        """What a model makes of the coarse form of a scene; with several samples also the maps std and share."""
        scene = self.scene(number)
        return self.upscaled(scene.low, ("--range", "0", "1"), model, f"scene{number}", samples, seed)

    def upscaled(
        self, cube: Path, words: Sequence[str], model: str | Path, name: str, samples: int = 1, seed: int = 0
    ) -> Path:
        """The same for any cube, read as `words` say; the output is named after `name` and the model."""
        system = model.stem if isinstance(model, Path) else model
        output = self.folder / f"{name}.{system}.{samples}.{seed}.hdr"
        words = [
            "upscale",
            str(cube),
            *words,
            "-o",
            str(output),
            "--model",
            str(model),
            "--scale",
            str(self.scale),
        ]
        words += ["--samples", str(samples), "--seed", str(seed), "--mixtures", "0", "--no-style", "--overwrite"]
        words += ["--with-uncertainty", "--per-band"] if samples > 1 else []
        self.kept(words, output.with_suffix(".json"))
        return output


def unit(path: Path, data: DataSet, part: Part, scale: int) -> np.ndarray:
    """The part of a cube as 0..1, cut to whole coarse pixels."""
    words = dict(zip(data.words[::2], data.words[1::2], strict=True))
    window = Window(*map(int, part.words[1:])) if part.words else None
    with open_cube(path, words.get("--var"), window=window) as cube:
        pixels = cube.read().astype(np.float32)
        dtype = cube.meta.dtype
    if words["--range"] == "dtype":
        top = float(np.iinfo(dtype).max)
    else:
        with open_cube(path, words.get("--var")) as cube:
            top = float(cube.read().max())
    rows, columns = (side // scale * scale for side in pixels.shape[1:])
    return pixels[: data.bands, :rows, :columns] / np.float32(top)


def write(path: Path, pixels: np.ndarray) -> None:
    """Write (bands, rows, columns) as a cube."""
    with create_cube(path, CubeMeta(*pixels.shape, pixels.dtype), overwrite=True) as cube:
        cube.write(cube.meta.window, pixels)


def read(path: Path) -> np.ndarray:
    """A cube as (bands, rows, columns)."""
    with open_cube(path) as cube:
        return cube.read()
