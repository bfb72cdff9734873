"""Hashes of what the program writes: to see whether a change of the code changes an output.

    python -m tests.hashes FOLDER > hashes.txt

sharpens the example scene in every format, with the shipped models and with maps, into the new folder FOLDER.
A line is the hash of the pixels, of the file's bytes, and its name. Compare those of before and after a change.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import imagecodecs

from pdenet_cli import open_cube

EXAMPLE = Path(__file__).parent.parent / "examples" / "indian_pines.hdr"
SUFFIXES = ("hdr", "bsq", "bil", "bip", "tif", "mat", "h5", "nc", "zarr")
UNHASHED = (".json", ".html", ".png", ".img")  # they tell the time; .img is read with its header
MAPS = ("error", "std", "share", "interval", "cv", "angle", "consistency")


def pdenet(*words: object) -> None:
    """Run a command, or stop with what it says."""
    done = subprocess.run([sys.executable, "-m", "pdenet_cli", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")


def write_pictures(folder: Path) -> None:
    """Three bands of the example as a folder of PNGs."""
    folder.mkdir()
    with open_cube(EXAMPLE) as cube:
        for number, band in enumerate(cube.read(bands=slice(20, 23))):
            (folder / f"band_{number}.png").write_bytes(imagecodecs.png_encode(band.astype("u2")))


def write_all(folder: Path) -> None:
    """Every output into `folder`."""
    maps = [word for name in (*MAPS, "risk") for word in ("--map", name)]
    for scale in (2, 4, 8):
        name = f"x{scale}"
        pdenet("upscale", EXAMPLE, "-o", folder / f"{name}_few.hdr", "--scale", scale, "--bands", "20:26")
    pdenet("upscale", EXAMPLE, "-o", folder / "many.hdr", "--bands", "10:110", "--samples", 2)
    pdenet("upscale", EXAMPLE, "-o", folder / "tiles.hdr", "--bands", "20:26", "--samples", 2, "--tile", 24)
    pdenet(
        "upscale", EXAMPLE, "-o", folder / "float.tif", "--bands", "20:26", "--samples", 1, "--dtype", "float32"
    )
    pdenet("uncertainty", EXAMPLE, "-o", folder / "maps", "--bands", "20:26", "--tolerance", 100, *maps)
    for suffix in SUFFIXES:
        scene = folder / f"scene_{suffix}.{suffix}"
        pdenet("upscale", EXAMPLE, "-o", scene, "--scale", 2, "--model", "bicubic", "--bands", "20:24")
        pdenet("upscale", scene, "-o", folder / f"fine_{suffix}.{suffix}", "--samples", 2)
        pdenet("uncertainty", scene, "-o", folder / f"maps_{suffix}", "--samples", 2)
    write_pictures(folder / "pictures")
    pdenet("upscale", folder / "pictures", "-o", folder / "pictures.hdr", "--samples", 2)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def pixels(path: Path) -> str:
    """The hash of a cube's numbers, their type and their shape."""
    with open_cube(path) as cube:
        array = cube.read()
    return digest(repr((array.dtype.str, array.shape)).encode() + array.tobytes())


def lines(folder: Path) -> list[str]:
    """Pixels, bytes and name of every cube below `folder`; bytes and name of other files."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        inside = any(parent.suffix == ".zarr" for parent in name.parents)
        if (
            inside
            or path.suffix in (".json", ".html", ".png", ".img")
            or (path.is_dir() and path.suffix != ".zarr")
        ):
            continue
        if path.suffix == ".zarr":
            parts = [part for part in sorted(path.rglob("*")) if part.is_file()]
            content = b"".join(str(part.relative_to(path)).encode() + part.read_bytes() for part in parts)
        else:
            content = path.read_bytes()
        cube = path.suffix[1:] in SUFFIXES
        found.append(f"{pixels(path) if cube else '-' * 16}  {digest(content)}  {name}")
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()
    write_all(target)
    print("\n".join(lines(target)))
