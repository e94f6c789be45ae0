# SPDX-License-Identifier: Apache-2.0

import configparser
import os
import pathlib

import setuptools

# pbr asks git for the version. A copy of the tree that is neither a git
# repository nor an sdist has no answer, and would not build.
ROOT = pathlib.Path(__file__).parent
if not (ROOT / '.git').exists() and not (ROOT / 'PKG-INFO').exists():
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / 'setup.cfg')
    os.environ.setdefault('PBR_VERSION', metadata['metadata']['version'])

setuptools.setup(pbr=True)
