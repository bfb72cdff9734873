"""Make examples/indian_pines.hdr from the Indian Pines scene inside the PyPI package `tensorly`.

    pip install tensorly && python examples/make_indian_pines.py

The scene: Baumgardner, Biehl, Landgrebe (2015), 220 Band AVIRIS Hyperspectral Image Data Set: June 12, 1992
Indian Pine Test Site 3, Purdue University Research Repository, doi:10.4231/R7RX991C, CC-BY 3.0. The 20 bands
that water vapour swallows are left out by the source; we keep 200 bands of a 72 x 72 pixel part.
"""

from pathlib import Path

import numpy as np
from tensorly.datasets import load_indian_pines

from pdenet_cli import CubeMeta, create_cube

ROW, COLUMN, SIDE = 0, 73, 72

scene = load_indian_pines()
wavelengths = list(scene.ticks[1])
# The source has 2260.22 and 2270.15 between 2202.30 and 2232.07: a slip by 48 nm.
wavelengths[170:172] = [2212.22, 2222.15]
assert len(wavelengths) == 200

part = scene.tensor[ROW : ROW + SIDE, COLUMN : COLUMN + SIDE]  # (rows, columns, bands)
meta = CubeMeta(
    bands=200,
    rows=SIDE,
    columns=SIDE,
    dtype=np.dtype("<u2"),
    interleave="bil",
    wavelengths=tuple(wavelengths),
    wavelength_units="Nanometers",
    extra={
        "description": f"Indian Pines (AVIRIS, 12 June 1992), rows {ROW}-{ROW + SIDE - 1}, columns "
        f"{COLUMN}-{COLUMN + SIDE - 1}. Baumgardner, Biehl, Landgrebe (2015), doi:10.4231/R7RX991C, CC-BY 3.0.",
        "sensor type": "AVIRIS",
        "acquisition time": "1992-06-12",
    },
)
target = Path(__file__).with_name("indian_pines.hdr")
with create_cube(target, meta, overwrite=True) as cube:
    cube.write(meta.window, part.transpose(2, 0, 1).astype(np.uint16))
