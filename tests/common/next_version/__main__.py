# SPDX-License-Identifier: Apache-2.0
"""Run ironic-reservations-dbsync of the next release."""

import sys

from ironic_reservations.cmd import dbsync
from tests.common import next_version

dbsync.make_config = next_version.make_config
sys.exit(dbsync.main())
