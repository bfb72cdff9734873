"""The studies that end in a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from page import QUALITY, SYSTEMS, Page, cost_published, published, quality

STAGES = range(2, 8)
Case = tuple[str, dict[str, str], int, Sequence[float]]  # name, training, samples, the paper's scores


def systems(page: Page) -> None:
    """All systems: scores, parameters, multiply-adds (true, and as papers count them), seconds."""
    runs, scale = page.runs, page.runs.scale
    paper = {name: published("tables", runs.data.name, str(scale), name) for name in ("BI", *SYSTEMS)}
    rows = []
    for name, model in page.trained().items():
        for samples in sorted({1, page.samples(name)}):
            found = page.tried(runs.scores, model, samples)
            best = samples == page.samples(name)
            label = name if name != "PDE-Net" else f"PDE-Net, N={samples}"
            published_as = name if best else f"{name}, N=1"
            seconds = f"{found['seconds']:.2f}" if found else "failed"
            rows.append(
                [
                    label,
                    *quality(found, paper[name] if best else ()),
                    *_costs(page, model, published_as, samples),
                    seconds,
                    cost_published("seconds", scale, published_as, "{:.3f}"),
                ]
            )
    counts = ["parameters", "paper", "T multiply-adds", "as papers count", "paper"]
    page.say("All systems", ["system", *QUALITY, *counts, "seconds a scene", "paper (GPU)"], rows)


def _costs(page: Page, model: str | Path, name: str, samples: int) -> list[str]:
    if not isinstance(model, Path) or (cost := page.tried(page.runs.cost, model)) is None:
        return ["-"] * 5
    scale = page.runs.scale
    return [
        f"{cost['parameters']:,}",
        cost_published("parameters", scale, name.partition(",")[0], "{:.2f} M"),
        f"{samples * cost['multiply_adds'] / 1e12:.3f}",
        f"{samples * cost['as_published'] / 1e12:.3f}",
        cost_published("tera_multiply_adds", scale, name, "{:.3f}"),
    ]


def stages(page: Page) -> None:
    """T = 2 to 7."""
    cases: list[Case] = []
    for count in STAGES:
        for name in [name for name in ("Template-Net", "PDE-Net") if name in page.systems]:
            network = SYSTEMS[name]
            changes = {} if count == 4 else dict(label=f"{network}-T{count}", config=f"stages={count}")
            paper = published("stages", name, str(count))
            cases.append((f"{name}, T={count}", dict(network=network) | changes, page.samples(name), paper))
    _ablation(page, "Number of stages", cases)


def l2(page: Page) -> None:
    """With and without the second term of the loss."""
    without = dict(network="pdenet", label="pdenet-no-l2", recipe="consistency=0")
    cases: list[Case] = [
        ("PDE-Net without the L2 term", without, page.runs.samples, published("l2", "without")),
        ("PDE-Net", dict(network="pdenet"), page.runs.samples, published("l2", "with")),
    ]
    _ablation(page, "The L2 term", cases)


def masks(page: Page) -> None:
    """Masks on the aggregation alone, on the layers alone, on both, on neither."""
    alone = {name: dict(network="pdenet", label=f"pdenet-{name}", config=f"masks={name}") for name in "KL"}
    cases: list[Case] = [
        ("on the aggregation alone (K)", alone["K"], page.runs.samples, ()),
        ("on the layers alone (L)", alone["L"], page.runs.samples, ()),
        ("on both (PDE-Net)", dict(network="pdenet"), page.runs.samples, published("stages", "PDE-Net", "4")),
        ("on neither (Template-Net)", dict(network="template"), 1, published("stages", "Template-Net", "4")),
    ]
    _ablation(page, "Where masks are", cases)


def nas(page: Page) -> None:
    """The one most probable network, found by a search, against samples of many."""
    cases: list[Case] = [
        ("NAS-based", dict(network="nas"), 1, published("nas", "NAS-based")),
        ("PDE-Net", dict(network="pdenet"), page.runs.samples, published("nas", "PDE-Net")),
    ]
    _ablation(page, "Search against sampling", cases)


def _ablation(page: Page, title: str, cases: Sequence[Case]) -> None:
    rows = []
    for name, training, samples, paper in cases:
        model = page.tried(page.runs.train, **training)
        found = None if model is None else page.tried(page.runs.scores, model, samples)
        rows.append([name, *quality(found, paper if _is_the_papers(page) else ())])
    page.say(title, ["", *QUALITY], rows)


def _is_the_papers(page: Page) -> bool:
    """Whether the paper has its ablations on this data: they are of CAVE x4."""
    return (page.runs.data.name, page.runs.scale) == ("cave", 4)
