"""A whole scene sharpened with every band, through mixtures of bands, and through them with the map of errors too.

Interleaved; seconds, and ratios to the mixtures.

python tests/benchmarks/bench_mixtures.py [SCENE] [--model general-x4] [--samples 8] [--repeats 3]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from pdenet_cli import Job, Posterior, Settings, load_model
from pdenet_cli.system import use_threads

EXAMPLE = Path(__file__).parents[2] / "examples" / "indian_pines.hdr"


def seconds(scene: Path, posterior: Posterior, memory: int | None, maps: tuple[str, ...] = ("std",)) -> float:
    """The CPU time of all threads: on a busy machine, the time on the clock says little."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        for _ in Job(scene, Path(folder) / "fine.hdr", posterior, Settings(memory=memory, maps=maps)).run():
            pass
        return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--model", default="general-x4")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", type=float, help="GB")
    chosen = parser.parse_args()
    use_threads(chosen.threads)
    memory = None if chosen.memory is None else int(chosen.memory * 1e9)
    model = load_model(chosen.model)
    every, mixed = (Posterior(model, chosen.samples, mixtures=count) for count in (0, None))
    forms = {
        "every band": (every, memory),
        f"{mixed.most_mixtures} mixtures": (mixed, memory),
        "and the map of errors": (mixed, memory, ("std", "error")),
    }
    times = [[seconds(chosen.scene, *form) for form in forms.values()] for _ in range(chosen.repeats)]
    for name, *values in zip(forms, *times, strict=True):
        ratio = statistics.median(value / row[1] for value, row in zip(values, times, strict=True))
        print(f"{name}: {statistics.median(values):.1f} s, {ratio:.2f}")


if __name__ == "__main__":
    main()
