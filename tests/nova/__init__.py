# SPDX-License-Identifier: Apache-2.0
"""The virt driver in real Nova services, with a real Placement and Ironic.

Nova's own fixtures run the API, conductor, scheduler and several computes in
one process; Ironic is a process of its own. They need testtools' runner:
``make test-nova``.
"""

import os

# Read when nova is first imported, which must come before all else.
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = '1'

import nova.tests.functional  # noqa: E402, F401
