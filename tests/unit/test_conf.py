# SPDX-License-Identifier: Apache-2.0
"""Where the lines of our own processes are logged: each in one place."""

import os
import subprocess
import sys

import pytest

from ironic_reservations import conf

LINE = 'a line of the log'
#: The application, and what it does first: the rest of it takes seconds.
WSGI = 'import ironic_reservations.wsgi'
LOAD = 'from ironic_reservations import conf; conf.load_from_environment()'


@pytest.mark.parametrize('program, configured, place', [
    (WSGI, '', 'stderr'),
    (LOAD, 'log_file = {}/file', 'file'),
    (LOAD, 'log_dir = {}\nlog_file = file', 'file'),
    (WSGI, 'log_dir = {}', 'directory'),
    # The operator wants both.
    (LOAD, 'log_file = {}/file\nuse_stderr = true', 'file and stderr'),
])
def test_line_is_logged_once(tmp_path, program, configured, place):
    (tmp_path / 'ironic.conf').write_text(
        '[DEFAULT]\nauth_strategy = noauth\n' + configured.format(tmp_path))
    done = subprocess.run(
        [sys.executable, '-c',
         f'{program}; import logging; logging.warning({LINE!r})'],
        capture_output=True, text=True, check=True,
        env={**os.environ,
             conf.FILES_VARIABLE: str(tmp_path / 'ironic.conf')})
    logs = [path for path in tmp_path.iterdir()
            if path.suffix != '.conf' and LINE in path.read_text()]
    assert len(logs) == ('file' in place or place == 'directory')
    assert done.stderr.count(LINE) == place.endswith('stderr')
    # A command's standard output is for its result.
    assert done.stdout == ''
