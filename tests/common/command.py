# SPDX-License-Identifier: Apache-2.0
"""The openstack command, run in the process of its tests.

That is ten times faster than a process of its own, most of whose time is
start-up. What it would print and exit with is returned.
"""

import contextlib
import io
import json
import logging
import os
import re
import subprocess
from unittest import mock

from openstackclient import shell
from osc_lib import clientmanager

from tools import services


def run(url, *args, **env):
    """Run it against the Ironic at a URL.

    :param env: more of its environment.
    :returns: a subprocess.CompletedProcess.
    """
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(
            os.environ, {**services.cli_environment(url), **env},
            clear=True))
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        stack.enter_context(_logging_of_its_own())
        stack.enter_context(_clients_of_its_own())
        try:
            status = shell.main(args)
        except SystemExit as e:
            status = e.code
    return subprocess.CompletedProcess(args, status or 0, stdout.getvalue(),
                                       stderr.getvalue())


def output(result):
    """What a command that succeeded has printed, and nothing beside it."""
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout


def data(result):
    """What it has printed as JSON."""
    return json.loads(output(result))


def refused(result):
    """What a command that failed has said, without the request's id."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert not result.stdout
    assert 'Traceback' not in result.stderr
    return re.sub(r' \(Request-ID: req-[0-9a-f-]+\)', '', result.stderr)


@contextlib.contextmanager
def _logging_of_its_own():
    """Let what it sets up for its log end with it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _clients_of_its_own():
    """Let no client that it makes serve the next, at another URL."""
    return mock.patch.multiple(clientmanager.ClientManager, **{
        name: clientmanager.ClientCache(each.factory)
        for name, each in vars(clientmanager.ClientManager).items()
        if isinstance(each, clientmanager.ClientCache)})
