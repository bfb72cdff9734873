"""Errors that a user can act on: each has the exit code that README lists, and a built-in parent."""

import re

import pytest

import pdenet_cli
from pdenet_cli.errors import PdenetError, ResourceError, as_pdenet_error, out_of_memory
from tests.conftest import ROOT


def kinds(parent: type[PdenetError] = PdenetError) -> list[type[PdenetError]]:
    return [parent, *(kind for child in parent.__subclasses__() for kind in kinds(child))]


def test_readme_lists_the_exit_codes() -> None:
    said = (ROOT / "README.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"\b\d+\b", said)} == {0, 130, *(kind.exit_code for kind in kinds())}


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA error: out of memory"), RuntimeError("ALLOC_FAILED")]
)
def test_running_out_of_memory_is_known_whoever_says_it(error: Exception) -> None:
    assert out_of_memory(error)
    assert isinstance(as_pdenet_error(error), ResourceError)


def test_a_bug_in_one_scene_of_several_is_one_line_with_its_kind() -> None:
    error = as_pdenet_error(KeyError("a\nb"))
    assert error.exit_code == 1
    assert str(error).startswith("KeyError: ")
    assert "\n" not in str(error)
    assert as_pdenet_error(error) is error
    assert pdenet_cli.PdenetError is PdenetError
