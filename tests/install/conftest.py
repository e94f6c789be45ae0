# SPDX-License-Identifier: Apache-2.0

import shutil
import sys

import pytest

from tests.common import programs
from tests.install import environments


@pytest.fixture(scope='session')
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the tree outside of git."""
    tree = tmp_path_factory.mktemp('wheel') / 'tree'
    shutil.copytree(environments.ROOT, tree, ignore=shutil.ignore_patterns(
        '.*', 'build', '*.egg-info', '__pycache__'))
    programs.run(
        sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps',
        '--wheel-dir', tree.parent, tree)
    path, = tree.parent.glob('*.whl')
    return path


@pytest.fixture
def environment(tmp_path):
    return environments.Environment(tmp_path / 'environment')
