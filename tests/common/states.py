# SPDX-License-Identifier: Apache-2.0
"""The state of a reservation, by Ironic's provision state."""

DEPLOYING = ('deploying', 'wait call-back', 'deploy hold', 'deploy complete')
ACTIVE = ('active', 'rescue', 'rescuing', 'rescue wait', 'rescue failed',
          'unrescuing', 'unrescue failed', 'servicing', 'service wait',
          'service failed', 'service hold', 'adopting')
RELEASING = ('deleting', 'deleted')
ERROR = ('deploy failed', 'error', 'adopt failed')
UNAVAILABLE = ('manageable', 'enroll', 'verifying', 'cleaning', 'clean wait',
               'clean hold', 'clean failed', 'inspecting', 'inspect wait',
               'inspect failed')

#: Our states by Ironic's.
STATES = {'available': 'reserved',
          **dict.fromkeys(DEPLOYING, 'deploying'),
          **dict.fromkeys(ACTIVE, 'active'),
          **dict.fromkeys(RELEASING, 'releasing'),
          **dict.fromkeys(ERROR, 'error'),
          **dict.fromkeys(UNAVAILABLE, 'unavailable')}
