# SPDX-License-Identifier: Apache-2.0
"""How oslo.policy evaluates rules; tests/api/test_policy.py has the rules."""

import inspect
import types

from oslo_config import cfg
from oslo_policy import policy as oslo_policy
import pytest

from ironic_reservations import policy


class Legacy(oslo_policy.Check):
    """A check that does not take the name of the rule."""

    def __call__(self, target, creds, enforcer):
        return self.match == target['name']


class Current(oslo_policy.Check):
    """A check that takes the name of the rule."""

    def __call__(self, target, creds, enforcer, current_rule=None):
        return self.match == str(current_rule)


@pytest.fixture
def enforcer():
    policy.get_enforcer()
    config = cfg.ConfigOpts()
    config([], default_config_files=[])
    return oslo_policy.Enforcer(config)


def test_each_kind_of_check_is_inspected_once(enforcer, monkeypatch):
    """It fails if another version of oslo.policy evaluates in another way."""
    checks = (Legacy('legacy', 'a'), Legacy('legacy', 'b'),
              Current('current', 'None'))

    def evaluate(name):
        return [enforcer.enforce(oslo_policy.OrCheck([check]),
                                 {'name': name}, {}) for check in checks]

    assert evaluate('a') == [True, False, True]
    monkeypatch.delattr(inspect, 'getfullargspec')
    assert evaluate('b') == [False, True, True]


def test_unknown_version_is_not_changed():
    checks = types.SimpleNamespace()
    policy.cache_signatures(checks)
    assert not vars(checks)
    policy.cache_signatures(None)
