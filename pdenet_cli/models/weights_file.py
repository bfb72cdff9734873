"""Weights files that describe themselves: safetensors with a `ModelSpec` as JSON in the header.

A file that is damaged, incomplete or pickled is a ModelError that says so. Headers are read without torch.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pdenet_cli.errors import ModelError
from pdenet_cli.files import write_whole
from pdenet_cli.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

KEY = "pdenet"  # where the spec is in the metadata of the safetensors header
SUFFIX = ".safetensors"
MAX_HEADER_BYTES = 16 << 20
MAX_SIZE = 4096  # largest number in a configuration, so that a hostile header cannot build a huge network


@dataclass(frozen=True)
class Header:
    """The header of a weights file: the spec, and the shape of each tensor."""

    path: Path
    spec: ModelSpec
    shapes: Mapping[str, tuple[int, ...]]
    nbytes: int  # size of the file


def read_header(path: Path) -> Header:
    """The header of a weights file, read without its weights."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if start[:2] in (b"PK", b"\x80\x02"):
                raise ModelError(f"{path}: a pickled file, which may run code when opened; use {SUFFIX}.")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise ModelError(f"{path}: not a complete safetensors file ({size:,} bytes).")
            entries = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", None) or {}
        shapes = {name: tuple(entry["shape"]) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        spec = json.loads(metadata[KEY]) if KEY in metadata else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: not a safetensors file (its header cannot be read).") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from error
    if spec is None:
        raise ModelError(f"{path}: a safetensors file, but not a pdenet model: it does not name its network.")
    if size != 8 + length + end:
        raise ModelError(f"{path}: {size:,} bytes, but its header says {8 + length + end:,}; copy it again.")
    try:
        header = Header(path, ModelSpec.from_dict(spec), shapes, size)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: its description is incomplete ({error}).") from error
    _refuse_implausible(header)
    return header


def _refuse_implausible(header: Header) -> None:
    """ModelError if the network would be huge, or have more blocks than there are weights."""
    config = header.spec.config
    sizes = {name: value for name, value in config.items() if isinstance(value, int)}
    blocks = math.prod(sizes.get(name, 1) for name in ("stages", "units", "members"))  # each with its own weights
    numbers = [abs(value) for value in config.values() if isinstance(value, int | float)]
    if not all(number <= MAX_SIZE for number in numbers) or blocks > max(1, len(header.shapes)):
        raise ModelError(f"{header.path}: its configuration {dict(config)} is not plausible.")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: its weights cannot be read ({' '.join(str(error).split())}).") from error


def write_weights(path: Path, spec: ModelSpec, tensors: Mapping[str, Tensor], *, overwrite: bool) -> None:
    """Write a weights file, completely or not at all."""
    from safetensors.torch import save

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = save(contiguous, {"format": "pt", KEY: json.dumps(spec.to_dict())})
    write_whole(path, content, overwrite=overwrite)
