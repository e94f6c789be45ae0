# SPDX-License-Identifier: Apache-2.0

import json
import zipfile

import pytest

from tests.common import programs
from tests.install import environments


@pytest.fixture(scope='session')
def wheel():
    """The wheel of "make dist", which is run unless it is current."""
    commit = programs.run('git', '-C', environments.ROOT, 'rev-parse', 'HEAD')

    def find():
        for path in (environments.ROOT / 'dist').glob('*.whl'):
            with zipfile.ZipFile(path) as archive:
                data, = (name for name in archive.namelist()
                         if name.endswith('/pbr.json'))
                if commit.startswith(
                        json.loads(archive.read(data))['git_version']):
                    return path

    if not find():
        programs.run('make', 'dist', cwd=environments.ROOT)
    return find()


@pytest.fixture
def environment(tmp_path):
    return environments.Environment(tmp_path / 'environment')
