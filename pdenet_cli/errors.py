"""The failures that a user can act on, each with its exit code.

Their texts, and notes, name arguments in backquotes: `samples` 0. The command line prints these as its options.
"""


class PdenetError(Exception):
    """A failure the user can act on; its text says what was found, what was expected and what to do."""

    exit_code = 1


class TrainingError(PdenetError, ArithmeticError):
    """The training loss is no longer a number; the weights from before that are kept."""


class UsageError(PdenetError, ValueError):
    """The command's options contradict each other or the input."""

    exit_code = 2


class FormatError(PdenetError, ValueError):
    """An input is missing, unreadable, corrupt, hostile or not a cube."""

    exit_code = 3


class ModelError(PdenetError, ValueError):
    """The model does not fit: a foreign weights file, a wrong band count, a wrong scale."""

    exit_code = 4


class OutputError(PdenetError, OSError):
    """An output exists already, cannot be written, or the disk is full."""

    exit_code = 5


class ResourceError(PdenetError, MemoryError):
    """Not enough memory, or a device that cannot be used."""

    exit_code = 6


class BatchError(PdenetError):
    """Some of several inputs failed; the others were finished."""

    exit_code = 7


def out_of_memory(error: BaseException) -> bool:
    """Whether this is an out-of-memory error, of the machine or a device, that is not a PdenetError yet."""
    if isinstance(error, PdenetError):
        return False
    # torch.OutOfMemoryError, by name so that torch is not imported here; not every device raises it.
    if {kind.__name__ for kind in type(error).__mro__} & {"MemoryError", "OutOfMemoryError"}:
        return True
    phrases = ("allocate memory", "out of memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


def as_pdenet_error(error: Exception) -> PdenetError:
    """The error of one scene among several as a PdenetError; of a bug, its type and text in one line."""
    if isinstance(error, PdenetError):
        return error
    kind = ResourceError if out_of_memory(error) else PdenetError
    return kind(" ".join(f"{type(error).__name__}: {error}".split()))
