"""Zarr arrays whose chunks unpack to no more than they declare: the codecs of zarr know no bound.

zarr gets a header in which every codec is wrapped in one of pdenet's, which unpacks with a bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.bounded import inflated, refuse_larger, unpacked_bz2, unpacked_lzma, unpacked_zstd
from pdenet_cli.formats.common.regular import opened

WRAPPED = "pdenet_bounded"  # the name of the wrapping codec
WIDENED = 8  # filters such as packbits and astype make each byte at most so many
ROOM = 1 << 16  # bytes of heads and checksums

# What a codec is called, without the prefix that version 3 gives those of numcodecs.
UNPACK = {"gzip": inflated, "zlib": inflated, "bz2": unpacked_bz2, "zstd": unpacked_zstd}
SIZED = {"blosc": 4, "lz4": 0}  # at which byte the data tell how long they are, unpacked
PLAIN = {"bytes", "transpose", "crc32c", "shuffle", "packbits", "bitround"}  # as long afterwards, or a little more
TYPED = {"delta", "fixedscaleoffset", "astype", "quantize"}  # the same, by the types in their configuration
KNOWN = {*UNPACK, *SIZED, *PLAIN, *TYPED, "lzma", "sharding_indexed"}
"""Other codecs might run code on reading, as `pickle` does."""


def bounded(path: Path, header: Mapping[str, Any], itemsize: int, held: int) -> dict[str, Any]:
    """The header of an array with bounded codecs; FormatError for a codec that is not known.

    `held` are the bytes that are stored of the array.
    """
    new = dict(header)
    if header.get("zarr_format") == 2:
        most = _most(_sizes(path, header.get("chunks")), itemsize)
        for key in ("filters", "compressor"):
            value = header.get(key)
            steps = [
                _wrapped(path, step, most) for step in (value if isinstance(value, list) else [value]) if step
            ]
            new[key] = steps if isinstance(value, list) else next(iter(steps), None)
        return new
    grid = _inside(header, "chunk_grid", "configuration").get("chunk_shape")
    new["codecs"] = _pipeline(path, header.get("codecs"), _sizes(path, grid), itemsize, held)
    return new


def open_bounded(place: Path, header: Mapping[str, Any], itemsize: int) -> Any:
    """The array in a folder, opened by zarr with this header instead of that in the folder."""
    import zarr

    store = _store()(place, read_only=True)
    version: Any = 2 if header.get("zarr_format") == 2 else 3
    if version == 2:  # zarr warns of an empty list of filters
        header = {**header, "filters": header.get("filters") or None}
    store.headers = {".zarray" if version == 2 else "zarr.json": json.dumps(header).encode(), ".zattrs": b"{}"}
    array = zarr.open_array(store, mode="r", zarr_format=version)
    store.most = _most(tuple(array.shards or array.chunks), itemsize) * 2
    return array


def _most(sizes: tuple[int, ...], itemsize: int) -> int:
    """The bytes that a chunk may have between two of its codecs."""
    return math.prod(sizes) * itemsize * WIDENED + ROOM


def _inside(header: Any, *keys: str) -> dict[str, Any]:
    """The object at these keys, empty where there is none."""
    for key in keys:
        header = header.get(key) if isinstance(header, dict) else None
    return header if isinstance(header, dict) else {}


def _sizes(path: Path, sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise FormatError(f"{path}: it is in chunks of {str(sizes)[:60]}, which hold nothing.")
    return tuple(sizes)


def _pipeline(path: Path, steps: Any, sizes: tuple[int, ...], itemsize: int, held: int) -> list[Any]:
    """The codecs of version 3 for chunks of these sizes, each wrapped, also inside shards."""
    wrapped = []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and step.get("name") == "sharding_indexed":
            about = _inside(step, "configuration")
            inner = _sizes(path, about.get("chunk_shape"))
            count = math.prod(sizes) // math.prod(inner)
            if 16 * count > max(held, ROOM):
                raise FormatError(f"{path}: shards of {count:,} chunks, but only {held:,} bytes are stored.")
            parts = _pipeline(path, about.get("codecs"), inner, itemsize, held)
            index = _pipeline(path, about.get("index_codecs"), (count,), 16, held)
            step = {"name": step["name"], "configuration": about | {"codecs": parts, "index_codecs": index}}
        else:
            step = _wrapped(path, step, _most(sizes, itemsize))
        wrapped.append(step)
    return wrapped


def _wrapped(path: Path, step: Any, most: int) -> Any:
    """One codec of a header with a bound; those that hardly change the length stay as they are."""
    old = isinstance(step, dict) and "id" in step
    name = str(step.get("id" if old else "name") if isinstance(step, dict) else step)
    about = step if old else _inside(step, "configuration")
    plain = name.removeprefix("numcodecs.")
    if plain not in KNOWN:
        raise FormatError(f"{path}: it uses the codec '{name[:60]}', which is not read.")
    if plain in TYPED:
        _refuse_types(path, name, about)
    if plain in PLAIN | TYPED:
        return step
    wrapping = {"codec": plain, "most": most, "about": {k: v for k, v in about.items() if k not in ("id", "name")}}
    _register()
    return {"id": WRAPPED} | wrapping if old else {"name": WRAPPED, "configuration": wrapping}


def _refuse_types(path: Path, name: str, about: Mapping[str, Any]) -> None:
    for key in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        try:
            kind = np.dtype(about[key]) if about.get(key) is not None else np.dtype("u1")
        except (TypeError, ValueError):
            kind = np.dtype("O")
        if kind.kind not in "biuf" or kind.itemsize > WIDENED:
            raise FormatError(f"{path}: its codec '{name}' is for {about[key]!r:.40}, which are no numbers.")


def unpacked(codec: str, about: Mapping[str, Any], raw: bytes, most: int) -> bytes:
    """What a codec with this configuration has packed; FormatError if that is more than `most` bytes."""
    if codec in UNPACK:
        return UNPACK[codec](raw, most)
    if codec == "lzma":
        how = {key: about[key] for key in ("format", "filters") if about.get(key) is not None}
        return unpacked_lzma(raw, most, **how)
    from numcodecs import get_codec

    place = SIZED[codec]
    refuse_larger(int.from_bytes(raw[place : place + 4], "little"), most)
    return bytes(get_codec({"id": codec}).decode(raw))


@cache
def _store() -> Any:
    """A folder that is only read, with regular files of no more bytes than belong there, and other headers."""
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import LocalStore

    class BoundedStore(LocalStore):
        headers: Mapping[str, bytes] = {}
        most = ROOM * ROOM

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            prototype = prototype or default_buffer_prototype()
            if key in self.headers:
                return prototype.buffer.from_bytes(self.headers[key])
            path = self.root / key
            if path.exists():
                with opened(path) as file:
                    file.seek(0, 2)
                    refuse_larger(file.tell(), self.most)
            return await super().get(key, prototype, byte_range)

        get_sync: Any = None  # so that zarr always asks `get`

    return BoundedStore


@cache
def _register() -> None:
    """Make the wrapping codec known to zarr, by a name that nobody else uses."""
    from numcodecs.abc import Codec
    from numcodecs.compat import ensure_bytes
    from numcodecs.registry import register_codec as register_v2
    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec

    class BoundedV2(Codec):  # type: ignore[misc]
        codec_id = WRAPPED

        def __init__(self, codec: str, most: int, about: Mapping[str, Any]) -> None:
            self.codec, self.most, self.about = codec, most, about

        def encode(self, buf: Any) -> Any:
            raise NotImplementedError("only for reading")

        def decode(self, buf: Any, out: Any = None) -> Any:
            return unpacked(self.codec, self.about, ensure_bytes(buf), self.most)

    @dataclass(frozen=True)
    class BoundedV3(BytesBytesCodec):
        codec: str
        most: int
        about: Mapping[str, Any]
        is_fixed_size = False

        @classmethod
        def from_dict(cls, data: Any) -> Any:
            return cls(**data["configuration"])

        def to_dict(self) -> dict[str, Any]:
            return {"name": WRAPPED, "configuration": vars(self)}

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            content = unpacked(self.codec, self.about, chunk_bytes.to_bytes(), self.most)
            return chunk_spec.prototype.buffer.from_bytes(content)

        async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            raise NotImplementedError("only for reading")

        def compute_encoded_size(self, length: int, chunk_spec: Any) -> int:
            raise NotImplementedError

    register_v2(BoundedV2)
    register_codec(WRAPPED, BoundedV3)
