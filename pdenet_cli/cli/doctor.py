"""`pdenet doctor`."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_json, size_text


def doctor(as_json: options.Json = False) -> None:
    """Say what this installation and this machine can do: versions, devices, kernel, codecs, memory, workers."""
    from pdenet_cli.tools.doctor import examine

    found = examine()
    if as_json:
        print_json(found)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in _rows(found):
        table.add_row(name, escape(text))
    out.print(table)


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What is found, in words."""
    libraries = ", ".join(f"{name} {number or 'missing'}" for name, number in found["libraries"].items())
    codecs = ", ".join(f"{name}{'' if there else ' missing'}" for name, there in found["codecs"].items())
    devices = "; ".join(" ".join(f"{value}" for value in device.values()) for device in found["devices"])
    kernel, cache, workers = found["kernel"], found["cache"], found["workers"]
    return [
        ("pdenet", f"{found['pdenet']}, Python {found['python']}, {found['system']}"),
        ("libraries", libraries),
        ("models", ", ".join(found["models"]) or "none is shipped"),
        ("devices", devices),
        ("cores", f"{found['cores']}, of which torch uses {found['threads']}"),
        ("memory", f"{size_text(found['memory'])} free"),
        ("kernel", f"{kernel['in_use']}: {kernel['why']}"),
        ("cache", f"{cache['folder']}{'' if cache['writable'] else ': cannot be written, set PDENET_CACHE_DIR'}"),
        ("codecs", codecs),
        ("workers", "can be used" if workers["usable"] else workers["why"]),
    ]
