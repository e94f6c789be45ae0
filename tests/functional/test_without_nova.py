# SPDX-License-Identifier: Apache-2.0
"""The page on an Ironic that stands alone, followed with fake hardware."""

import json
import pathlib
import re
import shlex

import pytest

from tests.common import command

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/without-nova.rst'
NODE = {'resource_class': 'baremetal.gold',
        'properties': {'memory_mb': 131072}}


@pytest.fixture
def follow(ironic):
    """Run the command of the page that begins so; returns what it printed."""
    text = PAGE.read_text().replace('\\\n', '')
    commands = [shlex.split(line) for line in re.findall(
        r'^   \$ openstack (.*)$', text, re.MULTILINE)]

    def follow(words, *more, **names):
        words = words.split()
        args, = (each for each in commands if each[:len(words)] == words)
        done = command.run(ironic.url, *(
            names.get(each, each) for each in args), *more)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return follow


def test_the_page_is_followed(ironic, follow):
    with ironic.fleet(NODE):
        held = json.loads(follow('baremetal reservation create', '-f', 'json'))
        names = {'INSTANCE': held['instance_uuid'],
                 'NODE': held['node_uuid']}
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
        held = json.loads(follow('baremetal reservation create', '-f', 'json'))
        follow('baremetal reservation delete', INSTANCE=held['instance_uuid'])
        ironic.show(held['instance_uuid'], 404)
