# SPDX-License-Identifier: Apache-2.0
"""The openstack command, run in the process of the test.

A separate process would take ten times as long, mostly to start. The result
has the output and the exit status.
"""

import contextlib
import copy
import functools
import io
import json
import logging
import os
import re
import runpy
import subprocess
import sys
import types
from unittest import mock

from cliff import commandmanager
from ironicclient import shell as ironic_shell
from openstackclient import shell
from openstackclient.volume import client as volume_client
from osc_lib import clientmanager
import stevedore

from tools import services

#: Lists the commands of each group once: listing them takes a third of a run.
LISTS = types.SimpleNamespace(
    ExtensionManager=functools.cache(stevedore.ExtensionManager))


def run(url, *args, **env):
    """Run the command against the Ironic at a URL.

    :param env: additional environment variables.
    :returns: a subprocess.CompletedProcess.
    """
    return _run(shell.main, {**services.cli_environment(url), **env}, args)


def run_in(environment, *args):
    """Run the command with these environment variables and no others."""
    return _run(shell.main, environment, args)


def use_cloud(environment, path):
    """Return an environment with OS_CLOUD instead of an openrc file's login.

    :param path: clouds.yaml, which is written.
    """
    login = {name.removeprefix('OS_').lower(): value
             for name, value in environment.items() if name.startswith('OS_')}
    # JSON is YAML.
    path.write_text(json.dumps({'clouds': {'other': {
        'auth': {'endpoint': login.pop('endpoint')}, **login}}}))
    return {**{name: value for name, value in environment.items()
               if not name.startswith('OS_')},
            'OS_CLOUD': 'other', 'OS_CLIENT_CONFIG_FILE': str(path)}


def run_baremetal(url, *args, **env):
    """Run the command ``baremetal`` of python-ironicclient.

    :param args: words after ``baremetal``.
    """
    # Otherwise it prints the log of the application in the same process.
    args = ['--quiet', *args]
    with mock.patch.object(sys, 'argv', ['baremetal', *args]), \
            mock.patch.object(ironic_shell.App, '_configure_ironic_logging'):
        return _run(ironic_shell.main,
                    {**services.cli_environment(url), **env}, args)


def run_script(path, environment, *args):
    """Run a Python script with these environment variables and no others."""
    def main(_args):
        runpy.run_path(path)

    with mock.patch.object(sys, 'argv', [path.name, *args]), \
            mock.patch.object(sys, 'path', [str(path.parent), *sys.path]):
        return _run(main, environment, args)


def _run(main, environment, args):
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(
            os.environ, environment, clear=True))
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        stack.enter_context(_restore_logging())
        stack.enter_context(_renew_clients())
        stack.enter_context(mock.patch.object(
            commandmanager, 'stevedore', LISTS))
        # python-openstackclient 9 removes one with each client.
        stack.enter_context(mock.patch.object(
            volume_client, 'API_VERSIONS',
            copy.copy(volume_client.API_VERSIONS)))
        try:
            status = main([*args])
        except SystemExit as e:
            status = e.code
    return subprocess.CompletedProcess(args, status or 0, stdout.getvalue(),
                                       stderr.getvalue())


def get_output(result):
    """Return the output of a command, after checking that it succeeded."""
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout


def get_data(result):
    """Return the JSON output of a command."""
    return json.loads(get_output(result))


def get_error(result):
    """Return the error of a command that failed, without the request ID."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert not result.stdout
    assert 'Traceback' not in result.stderr
    return re.sub(r' \(Request-ID: req-[0-9a-f-]+\)', '', result.stderr)


@contextlib.contextmanager
def _restore_logging():
    """Undo the changes that the command makes to logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _renew_clients():
    """Replace the caches of clients, whose URLs belong to an earlier test."""
    return mock.patch.multiple(clientmanager.ClientManager, **{
        name: clientmanager.ClientCache(cache.factory)
        for name, cache in vars(clientmanager.ClientManager).items()
        if isinstance(cache, clientmanager.ClientCache)})
