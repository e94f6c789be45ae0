# SPDX-License-Identifier: Apache-2.0
"""An invented next release, whose migrations have one more revision.

``python -m tests.common.next_version`` is its ``ironic-reservations-dbsync``.
"""

import os
import pathlib

from ironic_reservations.cmd import dbsync

_make_config = dbsync.make_config


def make_config(connection):
    """Return what ``dbsync.make_config`` returns in the next release."""
    config = _make_config(connection)
    config.set_main_option('path_separator', 'os')
    config.set_main_option('version_locations', os.pathsep.join((
        f'{config.get_main_option("script_location")}/versions',
        str(pathlib.Path(__file__).parent / 'versions'))))
    return config
