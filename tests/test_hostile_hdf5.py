"""HDF5 files that lead elsewhere, lie or are damaged."""

import tracemalloc

import h5py
import numpy as np
import pytest

from pdenet_cli import open_cube
from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import limits
from tests.stores import full, make, numbers, write

SECRET = b"the secret of another file " * 40


def hostile(path, kind):
    """A file of the given kind, and which variable to ask for."""
    secret = path.with_name("secret.bin")
    secret.write_bytes(SECRET)
    other = make(path.with_name("other.h5"), cube=np.frombuffer(SECRET[:1000], "u1").reshape(10, 10, 10))
    huge = (20000, 20000, 20000)
    with h5py.File(path, "w") as file:
        if kind == "external storage":
            file.create_dataset("cube", (10, 10, 10), "u1", external=[(str(secret), 0, 1000)])
        elif kind == "external wavelengths":
            file["cube"] = numbers((4, 10, 10))
            file.create_dataset("wavelength", (4,), "u1", external=[(str(secret), 0, 4)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((10, 10, 10), "u1")
            layout[:] = h5py.VirtualSource(str(other), "cube", (10, 10, 10))
            file.create_virtual_dataset("cube", layout)
        elif kind in ("external link", "external link asked for"):
            file["cube"] = h5py.ExternalLink(str(other), "/cube")
        elif kind == "external group asked for":
            file["group"] = h5py.ExternalLink(str(other), "/")
        elif kind == "soft link that leads out":
            file["out"] = h5py.ExternalLink(str(other), "/")
            file["cube"] = h5py.SoftLink("/out/cube")
        elif kind == "dangling link":
            file["cube"] = h5py.SoftLink("/nowhere")
        elif kind == "eight terabytes never allocated":
            file.create_dataset("cube", huge, "u1")
        elif kind == "eight terabytes of chunks never written":
            file.create_dataset("cube", huge, "u1", chunks=(10, 10, 10), compression="gzip")
        elif kind == "eight terabytes and one chunk":
            file.create_dataset("cube", huge, "u1", chunks=(10, 10, 10))[:10, :10, :10] = 1
        elif kind == "a chunk too large for memory":
            cube = file.create_dataset(
                "cube", (1 << 10, 1 << 10, 600), "u1", chunks=(1 << 10, 1 << 10, 600), compression=9
            )
            cube.id.write_direct_chunk((0, 0, 0), bytes(1_000_000))
        elif kind == "compound":
            file["cube"] = np.zeros((4, 5, 6), [("a", "f4"), ("b", "i2")])
        elif kind == "variable length":
            file.create_dataset("cube", (4, 5, 6), h5py.vlen_dtype("u1"))
        elif kind == "texts":
            file["cube"] = np.full((4, 5, 6), b"text")
        elif kind == "references":
            file.create_dataset("cube", (4, 5, 6), h5py.ref_dtype)
        elif kind == "complex":
            file["cube"] = np.zeros((4, 5, 6), "c8")
        elif kind == "four axes":
            file["cube"] = numbers((2, 3, 4, 5))
        elif kind == "no axis is long":
            file["cube"] = numbers((4, 0, 5))
        elif kind == "null":
            file["cube"] = h5py.Empty("f4")
        elif kind == "a matrix only":
            file["cube"] = numbers((4, 5))
        elif kind == "unknown filter":
            plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plan.set_chunk((4, 5, 5))
            plan.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, ())
            space, number = h5py.h5s.create_simple((4, 5, 5)), h5py.h5t.NATIVE_UINT8
            h5py.h5d.create(file.id, b"cube", number, space, plan).write_direct_chunk((0, 0, 0), bytes(100))
        elif kind == "a damaged chunk":
            cube = file.create_dataset("cube", (4, 10, 10), "u1", chunks=(4, 10, 10), compression="gzip")
            cube.id.write_direct_chunk((0, 0, 0), b"\x78\x9c" + b"\xaa" * 50)
    return {"external link asked for": "cube", "external group asked for": "group/cube"}.get(
        kind, "cube" if "link that" in kind or kind == "dangling link" else None
    )


KINDS = """external storage; external wavelengths; virtual; external link; external link asked for;
external group asked for; soft link that leads out; dangling link; eight terabytes never allocated;
eight terabytes of chunks never written; eight terabytes and one chunk; a chunk too large for memory; compound;
variable length; texts; references; complex; four axes; no axis is long; null; a matrix only; unknown filter;
a damaged chunk; nothing""".replace("\n", " ").split("; ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_file_ends_in_one_line_and_shows_no_other_file(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 2_000_000_000)
    path = tmp_path / "a.h5"
    variable = hostile(path, kind)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as error:
            open_cube(path, variable=variable, axes="brc").read()
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert "a.h5" in str(error.value)
    assert "secret of" not in str(error.value)


def test_a_file_cut_anywhere_never_ends_in_a_traceback(tmp_path):
    write(tmp_path / "a.h5", numbers((4, 5, 6)), **full())
    whole = (tmp_path / "a.h5").read_bytes()
    for length in [*range(1, 64, 3), *range(64, len(whole), 499)]:
        (tmp_path / "b.h5").write_bytes(whole[:length])
        with pytest.raises(FormatError) as error:
            open_cube(tmp_path / "b.h5").read()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0, 1 << 20, (1 << 64) - 16])
def test_a_damaged_heap_is_refused_before_the_library_loops_over_it(length, tmp_path):
    write(tmp_path / "a.h5", numbers((4, 5, 6)), **full())
    content = bytearray((tmp_path / "a.h5").read_bytes())
    heap = content.index(b"GCOL")
    content[heap + 16 : heap + 18] = b"\0\0" if length == 0 else content[heap + 16 : heap + 18]
    content[heap + 24 : heap + 32] = length.to_bytes(8, "little")
    (tmp_path / "a.h5").write_bytes(content)
    with pytest.raises(FormatError, match="heap"):
        open_cube(tmp_path / "a.h5")


@pytest.mark.parametrize("place", range(4, 34, 3))
def test_a_bit_flipped_in_the_index_of_the_chunks_ends_in_a_line_or_a_cube(tmp_path, pdenet, place):
    path = tmp_path / "scene.h5"
    with h5py.File(path, "w", libver="latest") as file:
        # Two dimensions that may grow: their chunks are found by a version 2 B-tree.
        file.create_dataset("cube", data=numbers((4, 24, 20)), chunks=(2, 6, 5), maxshape=(4, None, None))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"BTHD") + place] ^= 1 << place % 8
    path.write_bytes(raw)
    ran = pdenet("upscale", path, "-o", tmp_path / "fine.h5", "--model", "bicubic", "--scale", 2)
    assert ran.returncode in (0, FormatError.exit_code), ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "fine.h5").exists() == (ran.returncode == 0)
