# SPDX-License-Identifier: Apache-2.0

import os
import pathlib

import setuptools

# pbr asks git for the version: it is the tag, or follows from the commits
# since the last one. A copy of the tree that is neither a git repository nor
# an sdist, such as the archive of a release, has this one.
ROOT = pathlib.Path(__file__).parent
if not (ROOT / '.git').exists() and not (ROOT / 'PKG-INFO').exists():
    os.environ.setdefault('PBR_VERSION', '1.0.0')

setuptools.setup(pbr=True)
