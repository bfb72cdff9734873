"""pdenet from Python: sharpen a file and read a spectrum with its interval; sharpen an array in memory.

python examples/library.py [OUTPUT_FOLDER]
"""

import sys
from pathlib import Path

from pdenet_cli import Job, Posterior, Settings, Window, load_model, open_cube, sharpen

scene = Path(__file__).with_name("indian_pines.hdr")
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "library-example")
if folder.name.startswith("-"):
    sys.exit(__doc__)
folder.mkdir(exist_ok=True)

model = load_model("general-x4")  # or load_model("my-sensor.safetensors")
posterior = Posterior(model, samples=8, seed=0)

# From file to file: any size, tile by tile, still georeferenced.
settings = Settings(maps=("std", "interval"), bands=slice(10, 40), overwrite=True)
job = Job(scene, folder / "fine.hdr", posterior, settings)
for done, total in job.run():
    print(f"{done} of {total} tiles")

pixel = Window(row=150, column=150, rows=1, columns=1)
with open_cube(folder / "fine.hdr") as fine:
    wavelengths, values = fine.meta.wavelengths_nm, fine.read(pixel).ravel()
with open_cube(folder / "fine_interval_low.hdr") as low, open_cube(folder / "fine_interval_high.hdr") as high:
    lows, highs = low.read(pixel).ravel(), high.read(pixel).ravel()
assert wavelengths is not None
for wavelength, value, least, most in list(zip(wavelengths, values, lows, highs, strict=True))[::10]:
    print(f"{wavelength:7.1f} nm  {value:6.0f}, 90 % interval {least:.0f} to {most:.0f}")

# From array to arrays, in memory: (bands, rows, columns) in, float32 in the same numbers out.
with open_cube(scene) as cube:
    pixels = cube.read(Window(row=0, column=0, rows=32, columns=32), slice(10, 40))
made = sharpen(pixels, posterior, maps=("error",))
print({name: array.shape for name, array in made.items()})
