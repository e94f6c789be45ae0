# SPDX-License-Identifier: Apache-2.0
"""The virt driver in real Nova services, with a real Placement and Ironic.

Nova's own fixtures run the API, conductor, scheduler and several computes in
one process; Ironic is a process of its own. They need testtools' runner:
``make test-nova``.
"""

from importlib import metadata
import os

#: Nova's release, such as 34 for 2026.2.
NOVA = int(metadata.version('nova').split('.')[0])

# Before Nova 34 the fixtures need eventlet, like nova-compute itself.
if NOVA >= 34:
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = '1'
# Seconds after which a hanging test fails.
os.environ.setdefault('OS_TEST_TIMEOUT', '300')
# Show hundreds of warnings only with failures.
os.environ.setdefault('OS_STDERR_CAPTURE', '1')
os.environ.setdefault('OS_STDOUT_CAPTURE', '1')

# Patches, or forbids eventlet, before anything else is imported.
import nova.tests.functional  # noqa: E402, F401
