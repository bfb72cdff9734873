"""Memory that a run may use, of the machine and of a GPU."""

import subprocess
import sys

import pytest
import torch

from pdenet_cli.system import MEMORY_SHARE, usable_memory
from tests.conftest import on_linux


@on_linux
def test_a_scene_has_the_memory_that_the_one_before_has_freed():
    script = """
import re
from pathlib import Path

import torch

from pdenet_cli.system import usable_memory
from pdenet_cli.system import tune_process


def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024


tune_process()
before = held()
maps = [torch.ones(5_000_000) for _ in range(15)]
del maps
freed = held() - before
usable_memory(torch.device("cpu"))
print(freed, held() - before)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    freed, kept = map(int, ran.stdout.split())
    if freed < 200:
        pytest.skip("this C library keeps no freed memory")
    assert kept < 100


def test_what_torch_keeps_of_a_gpus_memory_is_free(monkeypatch):
    told = {"mem_get_info": (6000, 8000), "memory_reserved": 1500, "memory_allocated": 500}
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert usable_memory(torch.device("cuda")) == (6000 + 1000) * MEMORY_SHARE
    monkeypatch.setattr("pdenet_cli.system.free_memory", lambda: 5000)  # samples and maps of a GPU live there
    assert usable_memory(torch.device("cuda")) == 5000 * MEMORY_SHARE
