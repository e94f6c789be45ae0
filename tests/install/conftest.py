# SPDX-License-Identifier: Apache-2.0

import sys

import pytest

from tests.common import programs
from tests.install import environments


@pytest.fixture(scope='session')
def wheel():
    """The wheel of "make dist", which is built unless it is current."""
    version = programs.run(sys.executable, 'setup.py', '--version',
                           cwd=environments.ROOT).split()[-1]
    path = (environments.ROOT / 'dist'
            / f'ironic_reservations-{version}-py3-none-any.whl')
    if not path.exists():
        programs.run('make', 'dist', cwd=environments.ROOT)
    return path


@pytest.fixture
def environment(tmp_path):
    return environments.Environment(tmp_path / 'environment')
