"""What keeping decoded blocks saves: CPU seconds and decoded strips of a bicubic run on a compressed TIFF.

python tests/benchmarks/bench_blocks.py [--bands 30] [--side 512] [--tile 32]
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tifffile
import torch

from pdenet_cli import Job, Posterior, Settings
from pdenet_cli.formats.common import kept
from pdenet_cli.formats.tiff.segments import SegmentArray
from pdenet_cli.models.model import bicubic_model


def main() -> None:
    """Print one line for each height of the strips, without and with keeping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bands", type=int, default=30)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--tile", type=int, default=32)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(0, 4000, (chosen.bands, chosen.side, chosen.side), dtype="u2")
    form = dict(planarconfig="separate", photometric="minisblack", compression="deflate")
    print("| rows of a strip | kept, MB | strips decoded | CPU seconds |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for rows in (chosen.side, 16):
            scene = Path(folder, f"{rows}.tif")
            tifffile.imwrite(scene, pixels, rowsperstrip=rows, **form)
            for most in (0, kept.KEPT_BYTES):
                decoded, seconds = _run(scene, chosen.tile, most)
                print(f"| {rows} | {most >> 20} | {decoded:,} | {seconds:.1f} |")


def _run(scene: Path, tile: int, most: int) -> tuple[int, float]:
    """How many strips are decoded, and the CPU seconds of it all."""
    began, read, decoded = time.process_time(), SegmentArray._segment, []

    def segment(*words: Any) -> Any:
        decoded.append(words[-1])
        return read(*words)

    with patch.object(kept, "KEPT_BYTES", most), patch.object(SegmentArray, "_segment", segment):
        settings = Settings(overwrite=True, tile=tile)
        for _ in Job(scene, scene.with_name("out.tif"), Posterior(bicubic_model(2), 1), settings).run():
            pass
    return len(decoded), time.process_time() - began


if __name__ == "__main__":
    main()
