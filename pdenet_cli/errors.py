"""What can go wrong for a user: each kind of failure with its exit code."""


class PdenetError(Exception):
    """A failure the user can act on; its text says what was met, what was expected and what to do."""

    exit_code = 1


class TrainingError(PdenetError, ArithmeticError):
    """Training went astray: the loss is no longer a number. The weights before that are kept."""

    exit_code = 1


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
    """Memory or a device is not there or not enough."""

    exit_code = 6


class BatchError(PdenetError):
    """Some of several inputs failed; the others were finished."""

    exit_code = 7


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the machine or of a device, and nobody has said so yet."""
    # torch has a RuntimeError of its own for it, but not every device raises that one.
    words = ("allocate memory", "out of memory", "not enough memory", "ALLOC_FAILED")
    told = isinstance(error, RuntimeError) and any(text in str(error) for text in words)
    kinds = {kind.__name__ for kind in type(error).__mro__} & {"MemoryError", "OutOfMemoryError"}
    return not isinstance(error, PdenetError) and bool(told or kinds)


def failure(error: Exception) -> PdenetError:
    """Why one of several scenes failed, so that the others go on: of a bug, its kind and its text."""
    if isinstance(error, PdenetError):
        return error
    kind = ResourceError if out_of_memory(error) else PdenetError
    return kind(" ".join(f"{type(error).__name__}: {error}".split()))
