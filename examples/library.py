"""pdenet from Python: sharpen a scene, then read a spectrum and its spread.

python examples/library.py [OUTPUT_FOLDER]
"""

import sys
from pathlib import Path

from pdenet_cli import Window, load_model, open_cube
from pdenet_cli.inference import Posterior
from pdenet_cli.models import choose_model
from pdenet_cli.tools.sharpen import Job, Settings

scene = Path(__file__).with_name("indian_pines.hdr")
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "library-example")
if folder.name.startswith("-"):
    sys.exit(__doc__)
folder.mkdir(exist_ok=True)

model = load_model(choose_model(None, scale=4))  # or load_model("my-sensor.safetensors")
posterior = Posterior(model, samples=4, seed=0)
settings = Settings(maps=("std",), bands=slice(10, 60), overwrite=True)
job = Job(scene, folder / "fine.hdr", posterior, settings)
for done, total in job.run():
    print(f"{done} of {total} tiles")

pixel = Window(row=150, column=150, rows=1, columns=1)
with open_cube(folder / "fine.hdr") as fine, open_cube(folder / "fine_std.hdr") as spread:
    wavelengths = fine.meta.wavelengths_nm
    values, spreads = fine.read(pixel).ravel(), spread.read(pixel).ravel()
assert wavelengths is not None
for wavelength, value, std in list(zip(wavelengths, values, spreads, strict=True))[::10]:
    print(f"{wavelength:7.1f} nm  {value:6.0f} ± {std:.1f}")
