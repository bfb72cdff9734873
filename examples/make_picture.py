"""Make the picture in the README: input, bicubic, pdenet and its uncertainty on the Indian Pines example.

pdenet upscale examples/indian_pines.hdr -o out --with-uncertainty
python examples/make_picture.py out examples/indian_pines_x4.png
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from pdenet_cli import open_cube
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.scene.picture import rgb_bands

PART = slice(0, 144)  # rows of the finer grid, and as many columns: a quarter of the scene

if len(sys.argv) != 3:
    sys.exit(__doc__)
out, picture = Path(sys.argv[1]), Path(sys.argv[2])
with open_cube(Path(__file__).with_name("indian_pines.hdr")) as cube:
    bands = list(rgb_bands(cube.meta))
    coarse = cube.read()[bands].astype(np.float32)
with open_cube(out / "indian_pines_x4.hdr") as cube:
    fine = cube.read()[bands].astype(np.float32)
with open_cube(out / "indian_pines_x4_error_merged.hdr") as cube:
    errors = cube.read()[0]
low, high = np.percentile(coarse, [2, 98], axis=(1, 2))[..., None, None]


def rgb(pixels: np.ndarray) -> np.ndarray:
    """Three bands as a picture, all stretched alike."""
    return np.clip((pixels - low) / (high - low), 0, 1).transpose(1, 2, 0)[PART, PART]


panels = {
    "input": rgb(coarse.repeat(4, 1).repeat(4, 2)),
    "bicubic": rgb(bicubic_up(torch.from_numpy(coarse)[None], 4)[0].numpy()),
    "pdenet, mean of 8 samples": rgb(fine),
}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained")
for axis, (title, panel) in zip(axes, panels.items(), strict=False):
    axis.imshow(panel, interpolation="nearest")
    axis.set_title(title, fontsize=11)
drawn = axes[3].imshow(errors[PART, PART], cmap="cividis", vmax=np.percentile(errors, 99.5))
axes[3].set_title("error to expect", fontsize=11)
figure.colorbar(drawn, ax=axes[3], fraction=0.046, label="file numbers")
for axis in axes:
    axis.set_axis_off()
figure.savefig(picture, dpi=100, metadata={"Software": None})
