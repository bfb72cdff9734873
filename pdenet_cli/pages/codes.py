"""Planes of whole numbers in few bytes, without loss, as the script of a page reads them.

Each number is foretold from those to its left, above and between (as JPEG-LS does); the differences, which are
small, are deflated: all their low bytes, then all their high bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint16]  # (planes, rows, columns); 0 where there is no data
MOST_CODE = 65535


def packed(codes: Codes) -> bytes:
    """The planes as bytes."""
    from imagecodecs import deflate_encode  # several times as fast as zlib

    difference = (codes.astype(np.int32) - _foretold(codes)).astype(np.uint16).view(np.int16)
    folded = ((difference << 1) ^ (difference >> 15)).view(np.uint16)  # 0, -1, 1, -2, 2 ... as 0, 1, 2, 3, 4 ...
    halves = (folded & 255, folded >> 8)
    return bytes(deflate_encode(b"".join(half.astype(np.uint8).tobytes() for half in halves), level=5))


def _foretold(codes: Codes) -> NDArray[np.int32]:
    """The value between left and above that continues an edge or a slope; outside the planes all is 0."""
    framed = np.pad(codes, ((0, 0), (1, 0), (1, 0))).astype(np.int32)
    left, above, corner = framed[:, 1:, :-1], framed[:, :-1, 1:], framed[:, :-1, :-1]
    return np.asarray(np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above)))
