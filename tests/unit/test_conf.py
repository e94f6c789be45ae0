# SPDX-License-Identifier: Apache-2.0
"""Log lines of our processes go to exactly one place, unless configured."""

import os
import subprocess
import sys

import pytest

from ironic_reservations import conf
from tests.common import programs
from tools import services

LINE = 'a line of the log'
#: The application, and its first step: the other ones take seconds.
WSGI = 'import ironic_reservations.wsgi'
LOAD = 'from ironic_reservations import conf; conf.load_from_environment()'


@pytest.mark.parametrize('program, options, place', [
    (WSGI, '', 'stderr'),
    (LOAD, 'log_file = {}/file', 'file'),
    (LOAD, 'log_dir = {}\nlog_file = file', 'file'),
    (WSGI, 'log_dir = {}', 'directory'),
    # The operator configures both.
    (LOAD, 'log_file = {}/file\nuse_stderr = true', 'file and stderr'),
])
def test_line_is_logged_once(tmp_path, program, options, place):
    (tmp_path / 'ironic.conf').write_text(
        '[DEFAULT]\nauth_strategy = noauth\n' + options.format(tmp_path))
    process = subprocess.run(
        [sys.executable, '-c',
         f'{program}; import logging; logging.warning({LINE!r})'],
        capture_output=True, text=True, check=True,
        env={**os.environ,
             conf.FILES_VARIABLE: str(tmp_path / 'ironic.conf')})
    logs = [path for path in tmp_path.iterdir()
            if path.suffix != '.conf' and LINE in path.read_text()]
    assert len(logs) == ('file' in place or place == 'directory')
    assert process.stderr.count(LINE) == place.endswith('stderr')
    # Standard output is for the result of a command.
    assert process.stdout == ''


def test_logging_that_cannot_be_set_up(tmp_path):
    """The command names the cause, on one line."""
    output = programs.run(
        services.program('ironic-reservations-dbsync'), '--config-file',
        services.write_conf(tmp_path / 'ironic.conf', {
            'DEFAULT': {'log_config_append': tmp_path / 'no'}}),
        'version', status=2)
    assert output.startswith('Logging cannot be set up: ')
    assert 'No such file' in output and output.count('\n') == 1
