"""Where the commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import rich.console

from pdenet_cli.errors import PdenetError

out = rich.console.Console(highlight=False, soft_wrap=True)
err = rich.console.Console(highlight=False, soft_wrap=True, stderr=True)


def complain(error: PdenetError) -> None:
    """Print an error as the one line that a user reads."""
    err.print(f"[bold red]pdenet:[/] {rich.markup.escape(' '.join(str(error).split()))}")
