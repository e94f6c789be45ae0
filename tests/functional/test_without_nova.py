# SPDX-License-Identifier: Apache-2.0
"""The commands of the page on an Ironic without Nova, on fake hardware."""

import json
import pathlib
import re
import shlex

import pytest

from tests.common import command

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/how-to/without-nova.rst'
NODE = {'resource_class': 'baremetal.gold',
        'properties': {'memory_mb': 131072}}


@pytest.fixture
def follow(ironic):
    """Return a function that runs the command on the page with a prefix."""
    text = PAGE.read_text().replace('\\\n', '')
    commands = [shlex.split(line) for line in re.findall(
        r'^ +\$ openstack (.*)$', text, re.MULTILINE)]

    def follow(prefix, *more, **names):
        words = prefix.split()
        args, = (args for args in commands if args[:len(words)] == words)
        result = command.run(ironic.url, *(
            names.get(arg, arg) for arg in args), *more)
        assert result.returncode == 0, result.stderr
        return result.stdout
    return follow


def test_commands_of_the_page(ironic, follow):
    with ironic.fleet(NODE):
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        names = {'INSTANCE': hold['instance_uuid'],
                 'NODE': hold['node_uuid']}
        # It can be renewed until the deployment begins.
        follow('baremetal reservation set', **names)
        follow('baremetal node set NODE --lessee', PROJECT_ID='p', **names)
        follow('baremetal node set NODE --instance-info', **names)
        follow('baremetal node deploy', **names)
        assert json.loads(follow(
            'baremetal reservation show', '-f', 'json', **names)) == {
                'expires_at': None, 'state': 'active'}
        follow('baremetal node undeploy', **names)
        assert not follow('baremetal reservation list').strip()
        assert ironic.find_instance(names['NODE']) is None
        follow('baremetal node unset', **names)
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        follow('baremetal reservation delete', INSTANCE=hold['instance_uuid'])
        ironic.show(hold['instance_uuid'], 404)
