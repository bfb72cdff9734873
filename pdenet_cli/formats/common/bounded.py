"""Decompression with a bound known before it starts: a small file may otherwise unpack to more than all memory."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

import imagecodecs

from pdenet_cli.errors import FormatError

MOST_LZMA = 256 << 20  # bytes of memory for its dictionary, which the head of the data asks for
AUTOMATIC = 15 | 32  # zlib's own mark: the head of the data says whether it is zlib or gzip


def inflated(raw: bytes, most: int) -> bytes:
    """The content of zlib's or gzip's data; FormatError if it has more than `most` bytes."""
    return _joined(raw, most, _Inflating)


def unpacked_bz2(raw: bytes, most: int) -> bytes:
    """The content of bzip2's data; FormatError if it has more than `most` bytes."""
    return _joined(raw, most, bz2.BZ2Decompressor)


def unpacked_lzma(raw: bytes, most: int, **how: Any) -> bytes:
    """The content of LZMA's data of a format and with filters as `lzma` names them; FormatError as above."""
    limit = None if how.get("format") == lzma.FORMAT_RAW else MOST_LZMA
    return _joined(raw, most, lambda: lzma.LZMADecompressor(memlimit=limit, **how))


def unpacked_zstd(raw: bytes, most: int) -> bytes:
    """The content of Zstandard's data; FormatError if it has more than `most` bytes."""
    try:
        return bytes(imagecodecs.zstd_decode(raw, out=most))
    except imagecodecs.ZstdError as error:
        raise FormatError(f"damaged, or over {most:,} bytes unpacked ({' '.join(str(error).split())})") from None


def refuse_larger(nbytes: int, most: int) -> None:
    """Stop where data unpack to `nbytes`, as they say themselves, and these are more than `most`."""
    if nbytes > most:
        raise FormatError(f"{nbytes:,} bytes unpacked where at most {most:,} belong")


class _Inflating:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self.stream = zlib.decompressobj(AUTOMATIC)

    def decompress(self, raw: bytes, max_length: int) -> bytes:
        return self.stream.decompress(raw, max_length)

    @property
    def eof(self) -> bool:
        return self.stream.eof

    @property
    def unused_data(self) -> bytes:
        return self.stream.unused_data


def _joined(raw: bytes, most: int, new: Any) -> bytes:
    """The content of all members of the data, one after another."""
    parts, total = [], 0
    while raw:
        stream = new()
        # With one byte more than allowed, so that too much can be told from just enough.
        try:
            parts.append(stream.decompress(raw, most - total + 1))
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            raise FormatError(f"its compressed data are damaged ({error})") from None
        total += len(parts[-1])
        refuse_larger(total, most)
        if not stream.eof:
            raise FormatError("its compressed data are incomplete")
        raw = stream.unused_data.lstrip(b"\0")  # some writers pad
    return parts[0] if len(parts) == 1 else b"".join(parts)
