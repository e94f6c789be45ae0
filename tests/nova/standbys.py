# SPDX-License-Identifier: Apache-2.0
"""The base class of tests in which several processes share a host."""

import uuid

import fixtures

from tests.nova import base
from tests.nova import faults

HOST = base.HOSTS[0]
LEASE = f'/v1/reservations/hosts/{HOST}'
ACQUIRE, GIVE_UP = ('PUT', LEASE), ('DELETE', LEASE)
#: All writes to Ironic except those of the host lease.
WRITE = 'POST|PUT|PATCH|DELETE', f'(?!{LEASE}).*'


class Exit(BaseException):
    """The process would exit here."""


def exit_process(status):
    raise Exit(status)


class TestCase(faults.TestCase):
    """A host that is served by one process after another."""

    fleet = [faults.NODE] * 4

    def setUp(self):
        super().setUp()
        self.addCleanup(self.sql, 'DELETE FROM reservations_hosts')
        for name, value in (('host_lease.PAUSE', 0.1),
                            ('host_lease.os._exit', exit_process)):
            self.useFixture(fixtures.MonkeyPatch(
                f'nova.virt.ironic_reservations.{name}', value))
        # Each process caches the UUID that it has read.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.LOCAL_NODE_UUID', None))
        self.gold = self.flavor()

    def start(self, ttl=600, **config):
        """Start a process; with the default ttl it does not renew in time."""
        return self.start_compute(HOST, reservations={
            'standby': True, 'standby_ttl': ttl}, **config).manager.driver

    def freeze(self):
        """Silence the process; it still believes to have the lease."""
        driver = self.silence(HOST, wait=True).manager.driver
        # Otherwise it would end the next test.
        self.addCleanup(driver.cleanup_host, HOST)
        return driver

    def acquire_as_another(self):
        """Acquire the host lease for another process."""
        self.ironic.http.put(LEASE, json={
            'holder': str(uuid.uuid4()), 'ttl': 600}).raise_for_status()

    def expire_host_lease(self):
        self.sql("UPDATE reservations_hosts "
                 "SET expires_at = '2000-01-01 00:00:00'")

    def take_over(self):
        self.expire_host_lease()
        self.acquire_as_another()

    def host_leases(self):
        response = self.ironic.http.get('/v1/reservations/hosts')
        response.raise_for_status()
        return response.json()['hosts']

    def holder(self):
        lease, = self.host_leases()
        return lease['holder']

    def write_calls(self):
        """Return all writes to Ironic: method, path, body and query."""
        return [call for call in self.wire.calls if call[0] != 'GET']
