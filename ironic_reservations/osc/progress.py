# SPDX-License-Identifier: Apache-2.0
"""How far a long command is, for somebody who looks at a terminal."""

import contextlib

from rich import console


@contextlib.contextmanager
def shown(cmd):
    """Show the last of what ``say`` says in one line, while this goes on.

    Nothing is shown where standard error is no terminal, or where ``-v``
    writes all of it there.
    """
    if not cmd.app.stderr.isatty() or cmd.app_args.verbose_level > 1:
        yield
        return
    with console.Console(file=cmd.app.stderr).status('') as cmd.status_line:
        try:
            yield
        finally:
            cmd.status_line = None


def say(cmd, text, *args):
    """Say how far a command is, in the log and in the line of ``shown``.

    :param text: with places for ``args``, as a logger takes it.
    """
    cmd.log.info(text, *args)
    line = getattr(cmd, 'status_line', None)
    if line is not None:
        line.update(text % args)
