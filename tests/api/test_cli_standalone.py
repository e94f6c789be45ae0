# SPDX-License-Identifier: Apache-2.0
"""The commands in ``baremetal``, python-ironicclient's own command.

It has no Keystone here, and no other service. The audit and the real command
are in tests/functional/test_cli.py.
"""

import shlex

import pytest

from tests.api import test_options
from tests.common import command
from tests.common.command import get_error
from tests.common.command import get_output

CLASS = test_options.CLASS
world_of_module = test_options.world_of_module
world = test_options.world


def run(url, args, **env):
    return command.run_baremetal(url, 'reservation', *shlex.split(args),
                                 **env)


@pytest.mark.parametrize('args', [
    'list', 'list --project east --all-projects', 'list --usage',
    'history node-3', 'show node-1', 'show %(i1)s --all-projects',
    'set node-1 --no-expiry', 'set node-1 --host host-7', 'delete node-1',
    'host list --all-projects',
    'capacity --no-cache', 'capacity list --map --all-projects',
    f'create --resource-class {CLASS}',
    f'create --resource-class {CLASS} --project east --user ann',
    f'create --resource-class {CLASS} --dry-run',
    f'group create --resource-class {CLASS} --members 2', 'group list',
    'group show %(group)s', 'group set %(group)s --expires-in 1d',
    'group delete %(group)s', 'notice list', 'cordon node-5',
    'uncordon node-0', 'report node-2', 'notice set %(u0)s --no-cordon',
    'notice close %(u0)s', 'pool list --all-projects', 'pool show %(pool)s',
    f'pool create --resource-class {CLASS} --members 1 --project east',
    'pool set %(pool)s --no-expiry', 'pool add %(pool)s node-5',
    'pool replace %(pool)s node-0', 'pool remove %(pool)s node-0',
    'pool delete %(pool)s'])
def test_successful_command(ironic, world, args):
    assert get_output(run(ironic.url, args % world)) or ' set ' in f' {args}'


@pytest.mark.parametrize('args', [
    f'explain --resource-class {CLASS}',
    f'explain --resource-class {CLASS} --project east --all-projects'])
def test_explain_command(ironic, world, args):
    assert '| matching_nodes | 4 ' in get_output(run(ironic.url, args))


@pytest.mark.parametrize(('args', 'error'), [
    ('move --from host-0 --to host-1', 'There is no Nova here.'),
    ('create --flavor x',
     'Cannot look up flavor "x": there is no compute service here'),
    ('create --image x',
     'Cannot look up image "x": there is no image service here'),
    ('explain web',
     'Cannot look up server "web": there is no compute service here'),
    ('show web', 'No reservation of node web could be found.'),
    ('show %(new)s', 'No reservation of instance '),
    ('host delete host-9', 'host-9: There is no lease of host host-9'),
    (f'create --resource-class {CLASS} --ram 99999', '9 nodes considered')])
def test_failed_command(ironic, world, args, error):
    message = get_error(run(ironic.url, args % world))
    assert message.startswith(error)
    assert len(message.splitlines()) == 1 or 'considered' in message
