# SPDX-License-Identifier: Apache-2.0
"""Runs "audit" and other commands in a TestCase."""

import contextlib
import json
import warnings

import fixtures
import openstack.proxy

from tests.common import command
from tools import services

_get_endpoint = openstack.proxy.Proxy.get_endpoint


class Command:
    """Mixed into a TestCase to run commands."""

    #: Credentials for Nova and Placement.
    user = {'X-Auth-Token': 'admin', 'X-Auth-User': 'admin',
            'X-Roles': 'admin', 'X-Auth-Project-Id': 'admin'}

    def command(self, *args, verbose=(), as_json=True, **env):
        return self.openstack(
            *verbose, 'baremetal', 'reservation', *args,
            *(['-f', 'json'] if as_json else []), **env)

    def openstack(self, *args, **env):
        return self.run_in(self.make_environment(**env), *args)

    def make_environment(self, **env):
        return {**services.cli_environment(self.ironic.url),
                'OS_COMPUTE_ENDPOINT_OVERRIDE': self.api.base_url,
                'OS_PLACEMENT_ENDPOINT_OVERRIDE':
                    self.placement.fixture.endpoint, **env}

    def run_in(self, environment, *args):
        with self.credentials():
            return command.run_in(environment, *args)

    @contextlib.contextmanager
    def credentials(self):
        """Let clients in this process send the user's credentials."""
        with fixtures.MonkeyPatch('keystoneauth1.noauth.NoAuth.get_headers',
                                  lambda *args: self.user), \
             fixtures.MonkeyPatch('openstack.proxy.Proxy.get_endpoint',
                                  _get_endpoint), \
             warnings.catch_warnings():
            # Python does not show warnings of the client by default.
            warnings.simplefilter('ignore')
            yield

    def assert_findings(self, *expected, host=None):
        """Compare the audit's findings: kind, server's UUID, node, host."""
        result = self.command('audit', *(['--host', host] if host else []))
        self.assertTrue(result.stdout, result.stderr)
        findings = json.loads(result.stdout)
        for finding in findings:
            self.assertTrue(finding.pop('What to Do'))
        self.assertEqual(sorted(expected, key=str), sorted(
            (tuple(finding.values()) for finding in findings), key=str))
        self.assertEqual(1 if findings else 0, result.returncode)
