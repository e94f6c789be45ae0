# SPDX-License-Identifier: Apache-2.0
"""The page on an Ironic that stands alone, followed with fake hardware."""

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
    """Run the command of the page that begins so; returns what it printed."""
    text = PAGE.read_text().replace('\\\n', '')
    commands = [shlex.split(line) for line in re.findall(
        r'^ +\$ openstack (.*)$', text, re.MULTILINE)]

    def follow(words, *more, **names):
        words = words.split()
        args, = (args for args in commands if args[:len(words)] == words)
        result = command.run(ironic.url, *(
            names.get(arg, arg) for arg in args), *more)
        assert result.returncode == 0, result.stderr
        return result.stdout
    return follow


def test_the_page_is_followed(ironic, follow):
    with ironic.fleet(NODE):
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        names = {'INSTANCE': hold['instance_uuid'],
                 'NODE': hold['node_uuid']}
        # It may be renewed until something has begun.
        follow('baremetal reservation set', **names)
        follow('baremetal node set', **names)
        follow('baremetal node deploy', **names)
        assert json.loads(follow(
            'baremetal reservation show', '-f', 'json', **names)) == {
                'expires_at': None, 'state': 'active'}
        follow('baremetal node undeploy', **names)
        assert not follow('baremetal reservation list').strip()
        assert ironic.find_instance(names['NODE']) is None
        hold = json.loads(follow('baremetal reservation create', '-f', 'json'))
        follow('baremetal reservation delete', INSTANCE=hold['instance_uuid'])
        ironic.show(hold['instance_uuid'], 404)
