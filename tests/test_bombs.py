"""Small files that unpack to gigabytes: each ends in a line, before it takes more memory than it declares."""

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
import zlib
from contextlib import suppress

import google_crc32c
import h5py
import imagecodecs
import numpy as np
import pytest
import tifffile

from pdenet_cli import open_cube
from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import bounded
from tests.stores import numbers

SIZE = 200 << 20  # what a bomb unpacks to; the chunk that it is in declares 1.5 kB


@pytest.fixture(scope="module")
def zeros():
    return bytes(SIZE)


@pytest.fixture(scope="module")
def bombs(zeros):
    pytest.importorskip("zarr")
    import numcodecs

    packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    return {
        "gzip": gzip.compress(zeros, 1),
        "zlib": zlib.compress(zeros, 1),
        "bz2": bz2.compress(zeros[: 45 << 20], 9) * 5,
        "lzma": packer.compress(zeros) + packer.flush(),
        "zstd": imagecodecs.zstd_encode(zeros, level=1),
        "lz4": numcodecs.LZ4().encode(zeros),
        "blosc": numcodecs.Blosc("zstd", 1).encode(zeros),
    }


ABOUT = {"lzma": {"format": 3, "filters": [{"id": lzma.FILTER_LZMA2, "preset": 0}]}, "gzip": {"level": 1}}


def store_of(path, codec, version, shards):
    import zarr

    chunks, shape = (3, 16, 16), (3, 32, 32)
    about = dict(shape=shape, chunks=chunks, dtype="u2", zarr_format=version)
    if shards:
        about["shards"] = (3, 32, 16)
    codecs = dict(compressors=None)
    if version == 3 and codec in ("gzip", "zstd", "blosc"):
        codecs = {}
    zarr.create_array(str(path), **about, **codecs)[:] = numbers(shape)
    header = path / (".zarray" if version == 2 else "zarr.json")
    told = json.loads(header.read_text())
    if version == 2:
        told["compressor"] = {"id": codec} | ABOUT.get(codec, {})
    else:
        name = codec if codec in ("gzip", "zstd", "blosc") else f"numcodecs.{codec}"
        named = {"name": name, "configuration": ABOUT.get(codec, {})}
        steps = told["codecs"][0]["configuration"]["codecs"] if shards else told["codecs"]
        steps[1:] = [named]
    header.write_text(json.dumps(told))
    return path


def refused(path, *words):
    """The text of the refusal; it must not take memory."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as error, open_cube(path, axes="brc") as cube:
            cube.read()
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    text = str(error.value)
    assert "\n" not in text
    assert any(word in text for word in words or ("unpacked",)), text
    return text


@pytest.mark.parametrize("codec", ["gzip", "zlib", "bz2", "lzma", "zstd", "lz4", "blosc"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_chunk_unpacks_to_no_more_than_it_declares(codec, version, bombs, tmp_path):
    path = store_of(tmp_path / "a.zarr", codec, version, shards=False)
    for chunk in path.glob("[0-9].*" if version == 2 else "c/*/*/*"):
        chunk.write_bytes(bombs[codec])
    refused(path)


def test_a_chunk_inside_a_shard_does_not_either(bombs, tmp_path):
    path = store_of(tmp_path / "a.zarr", "zstd", 3, shards=True)
    bomb = bombs["zstd"]
    index = np.array([[0, len(bomb)], [0, len(bomb)]], "<u8").tobytes()
    crc = google_crc32c.value(index)
    (path / "c/0/0/0").write_bytes(bomb + index + int(crc).to_bytes(4, "little"))
    refused(path)


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_chunk_that_is_far_too_long_is_refused_unread(version, tmp_path):
    path = store_of(tmp_path / "a.zarr", "zlib", version, shards=False)
    chunk = path / "0.0.1" if version == 2 else path / "c/0/0/1"
    os.truncate(chunk, SIZE)
    refused(path)


@pytest.mark.parametrize("chunks", [[0, 0, 0], [3, 16], ["a", 1, 1], None, [3, -16, 16], [True, 1, 1]])
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_chunks_that_hold_nothing_are_refused(chunks, version, tmp_path):
    path = store_of(tmp_path / "a.zarr", "zlib", version, shards=False)
    header = path / (".zarray" if version == 2 else "zarr.json")
    told = json.loads(header.read_text())
    if version == 2:
        told["chunks"] = chunks
    else:
        told["chunk_grid"]["configuration"]["chunk_shape"] = chunks
    header.write_text(json.dumps(told))
    refused(path, "hold nothing", "cannot be read")


@pytest.mark.parametrize(
    "step",
    [
        {"id": "pickle"},
        {"id": "delta", "dtype": "V9999999"},
        {"id": "delta", "dtype": "O"},
        {"id": "json2"},
        5,
        "x",
    ],
    ids=str,
)
def test_codecs_that_may_do_anything_are_refused(step, tmp_path):
    path = store_of(tmp_path / "a.zarr", "zlib", 2, shards=False)
    told = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps(told | {"filters": [step]}))
    refused(path, "not read", "no numbers")


@pytest.mark.parametrize("packing", ["gzip", "gzip with shuffle", "lzf"])
@pytest.mark.parametrize("scale", [1, 40])
def test_an_hdf5_chunk_unpacks_to_no_more_than_it_declares(packing, scale, bombs, zeros, tmp_path):
    chunk = (3, 16, 16)
    about = dict(compression=packing.split()[0], shuffle="shuffle" in packing)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        cube = file.create_dataset("cube", (3, 16 * scale, 16 * scale), "u2", chunks=chunk, **about)
        cube[:] = numbers(cube.shape)
        packed = imagecodecs.lzf_encode(zeros) if packing == "lzf" else bombs["zlib"]
        cube.id.write_direct_chunk((0, 16 * (scale // 2), 0), packed)
    refused(tmp_path / "a.h5", "unpacked", "damaged there")


def test_an_hdf5_text_is_not_unpacked_by_the_library(bombs, tmp_path):
    from pdenet_cli.formats.hdf5.guard import GuardedFile

    with h5py.File(tmp_path / "a.h5", "w") as file:
        about = dict(chunks=(1 << 20,), maxshape=(None,), compression="gzip")
        text = file.create_dataset("text", (1,), "S64", **about)
        text.id.write_direct_chunk((0,), bombs["zlib"])
    guarded = GuardedFile.open(tmp_path / "a.h5")
    assert guarded.text("text") is None
    guarded.file.close()


KINDS = dict(dtype=["u1", "<i2", ">f4", "f8", bool], packing=[
    {}, dict(compression="gzip"), dict(compression="gzip", shuffle=True, fletcher32=True),
    dict(compression="lzf", shuffle=True), dict(fletcher32=True),
])  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS["dtype"])
@pytest.mark.parametrize("packing", KINDS["packing"], ids=str)
def test_hdf5_chunks_are_what_the_library_reads(dtype, packing, tmp_path):
    from pdenet_cli.formats.hdf5.guard import GuardedArray

    pixels = numbers((7, 33, 29), dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        cube = file.create_dataset("c", pixels.shape, dtype, chunks=(3, 10, 8), **packing)
        cube[:4] = pixels[:4]  # the last chunks stay unwritten
    with h5py.File(tmp_path / "a.h5") as file:
        pixels, array = file["c"][:], GuardedArray(tmp_path / "a.h5", file["c"])
        every = (slice(None),) * 3
        for key in (every, np.s_[1:5, 3:32:4, ::7], np.s_[2:2, 0:3, 0:3], np.s_[0:7:3, 11:12, 5:29:2]):
            np.testing.assert_array_equal(array[key], pixels[key])


def test_an_hdf5_chunk_with_a_wrong_checksum_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        cube = file.create_dataset("cube", (3, 16, 16), "u2", chunks=(3, 16, 16), fletcher32=True)
        cube[:] = numbers(cube.shape)
        _, raw = cube.id.read_direct_chunk((0, 0, 0))
        cube.id.write_direct_chunk((0, 0, 0), b"\7" + raw[1:])
    refused(tmp_path / "a.h5", "checksum")


@pytest.mark.parametrize("compression", ["zstd", "deflate", "lzw", "lzma"])
def test_a_tiff_strip_that_is_far_too_long_is_not_read_whole(compression, tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, numbers((20, 30)), compression=compression, rowsperstrip=10, metadata=None)
    with tifffile.TiffFile(path) as file:
        counts = file.pages[0].tags["StripByteCounts"]
        place, kind = counts.valueoffset, counts.dtype
        last = max(map(sum, zip(file.pages[0].dataoffsets, file.pages[0].databytecounts, strict=True)))
    assert last <= path.stat().st_size
    content = bytearray(path.read_bytes())
    most = {3: 65535, 4: SIZE}[int(kind)]
    content[place : place + (2 if kind == 3 else 4)] = most.to_bytes(2 if kind == 3 else 4, "little")
    path.write_bytes(content)
    os.truncate(path, SIZE * 2)
    tracemalloc.start()
    try:
        with suppress(FormatError), open_cube(path) as cube:
            cube.read()
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unpack", [bounded.inflated, bounded.unpacked_bz2, bounded.unpacked_lzma])
def test_what_just_fits_is_unpacked_and_what_is_cut_is_not(unpack):
    content = bytes(numbers((5000,), "u1"))
    pack = {"inflated": gzip.compress, "unpacked_bz2": bz2.compress}.get(unpack.__name__, lzma.compress)
    assert unpack(pack(content), 5000) == content
    assert unpack(pack(content) * 2, 10_000) == content * 2
    for raw, most in ((pack(content), 4999), (pack(content) * 2, 9999), (pack(content)[:-9], 5000), (b"abc", 9)):
        with pytest.raises(FormatError):
            unpack(raw, most)
