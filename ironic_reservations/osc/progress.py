# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a long command on a terminal."""

from collections.abc import Iterator
import contextlib
from typing import Any

from rich import console


@contextlib.contextmanager
def show_line(cmd: Any) -> Iterator[None]:
    """Show a line that ``update_line`` replaces while the block runs.

    Nothing is shown if standard error is no terminal, or if ``-v`` already
    logs the progress there.
    """
    if not cmd.app.stderr.isatty() or cmd.app_args.verbose_level > 1:
        yield
        return
    with console.Console(file=cmd.app.stderr).status('') as cmd.status_line:
        try:
            yield
        finally:
            cmd.status_line = None


def update_line(cmd: Any, message: str, *args: object) -> None:
    """Log the progress of a command, and show it in the line.

    :param message: format for ``args``, as a logger takes it.
    """
    cmd.log.info(message, *args)
    line = getattr(cmd, 'status_line', None)
    if line is not None:
        line.update(message % args)
