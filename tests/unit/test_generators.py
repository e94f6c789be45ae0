# SPDX-License-Identifier: Apache-2.0
"""Generated samples of ironic.conf and of the policy file."""

from oslo_config import cfg
from oslo_config import generator as config_generator
from oslo_policy import generator as policy_generator
import pytest


@pytest.mark.parametrize('generate, lines', [
    (config_generator.main, ['[reservations]', '#default_lease = 0']),
    # Other tests may have changed the configuration of this process.
    (lambda args: policy_generator.generate_sample(args, cfg.ConfigOpts()),
     [f'#"baremetal:reservation:{rule}": ' for rule in (
         'create', 'create_restricted', 'get', 'list', 'list_all', 'delete',
         'capacity')])])
def test_generated_sample(generate, lines, capsys):
    generate(['--namespace', 'ironic_reservations'])
    sample = capsys.readouterr().out
    for line in lines:
        assert line in sample
