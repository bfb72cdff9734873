# %% [markdown]
# # A cube in a notebook
# Cells as editors such as VS Code, Spyder and Jupyter (with jupytext) run them; as a script:
# `python examples/notebook.py [PICTURE]`. It needs `pip install 'pdenet[xarray]'`.

# %%
import sys
from pathlib import Path

import matplotlib

if not hasattr(sys, "ps1"):
    matplotlib.use("Agg")  # no window where nobody looks
import matplotlib.pyplot as plt
import xarray as xr

import pdenet_cli.xarray  # noqa: F401 it gives every DataArray the accessor `pdenet`
from pdenet_cli import open_cube

# %% [markdown]
# Any DataArray with the wavelengths as a coordinate will do, in any order of its dimensions: from
# `xr.open_dataset("scene.nc")["reflectance"]`, from `rioxarray.open_rasterio("scene.tif")`, or made of an array.
# With `chunks={}` it stays on disk, and so does what follows until it is stored or plotted.

# %%
with open_cube(Path(__file__).with_name("indian_pines.hdr")) as cube:
    scene = xr.DataArray(
        cube.read(cube.meta.window, slice(5, 45)),
        dims=("wavelength", "y", "x"),
        coords={"wavelength": ("wavelength", cube.meta.wavelengths_nm[5:45], {"units": "nm"})},
        attrs={"units": "AVIRIS radiance numbers"},
        name="radiance",
    )
scene = scene.isel(y=slice(20, 60), x=slice(20, 60))
print(scene.sizes)

# %%
fine = scene.pdenet.upscale()
print(fine)

# %% [markdown]
# The same band before and after, how large errors are expected to be, and a spectrum with its 90 % interval.

# %%
figure, (left, middle, right, below) = plt.subplots(1, 4, figsize=(18, 4), layout="constrained")
band = {"wavelength": int(abs(scene.wavelength.values - 800).argmin())}
scene.isel(**band).plot.imshow(ax=left, cmap="gray", add_colorbar=False)
fine["mean"].isel(**band).plot.imshow(ax=middle, cmap="gray", add_colorbar=False)
fine["error"].isel(**band).plot.imshow(ax=right, cmap="magma", vmin=0, robust=True)
pixel = fine.isel(y=70, x=90)
below.fill_between(pixel.wavelength, pixel.low, pixel.high, alpha=0.3, label="90 % interval")
pixel["mean"].plot.line(ax=below, label="mean")
for axes, title in ((left, "input"), (middle, "pdenet x4"), (right, "error to expect"), (below, "one pixel")):
    axes.set_title(title)
for axes in (left, middle, right):
    axes.set_aspect("equal")
    axes.invert_yaxis()
below.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "notebook.png", dpi=80)
