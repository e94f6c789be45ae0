# SPDX-License-Identifier: Apache-2.0
"""Clients that hold and release the same few nodes.

Most searches lose the race for a node that a fresh count calls free. That
says nothing about the node's properties, or about a quota.
"""

import concurrent.futures
import contextlib
import functools
import json
import time
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from tests.common import fleets
from tests.core import test_groups

pytestmark = pytest.mark.on('server')

#: Duration of a race in seconds, and how much longer it may take on a busy
#: machine until a request is refused.
SECONDS, PATIENCE = 4, 60
PROJECT = 'a' * 32
SEGMENTS = json.dumps([{'by': 'capability:rack', 'policy': 'pack',
                        'segment': 2}])
NO_LIMITS = quotas.Limits()
#: A project may reserve no node of another class, which fits best.
LIMITS = quotas.Limits(PROJECT, {
    'baremetal_reservations': 9, 'baremetal_reservations:CUSTOM_SILVER': 0})


def hold(group=None, limits=NO_LIMITS, **body):
    """Hold a node, and return a function that releases it."""
    reservation, _ = holds.hold_node(
        fleets.matcher(**body or {'resource_class': 'gold'}),
        obtain.Request((str(uuid.uuid4()),),
                       values.Assignment(project_id=PROJECT), group=group,
                       limits=limits))
    return functools.partial(releases.release_reservation,
                             reservation.instance_uuid)


def create_group(policy='pack'):
    ident = str(uuid.uuid4())
    groups.create_group(
        fleets.matcher(resource_class='gold'), obtain.Request(
            (str(uuid.uuid4()), str(uuid.uuid4())), values.Assignment(),
            group=test_groups.name_group(policy, ident), digest='digest'))
    return functools.partial(group_releases.release_group, ident,
                             lambda group: None, values.ALL)


class Race:
    """The refusals of all clients."""

    def __init__(self):
        self.refusals = []
        self._begin = time.monotonic()

    def has_ended(self):
        return time.monotonic() > self._begin + SECONDS + (
            0 if self.refusals else PATIENCE)


def compete(hold_something, race):
    """Hold and release nodes; return the number of times."""
    rounds = 0
    while not race.has_ended():
        try:
            release = hold_something()
        except (exception.NoMatchingNode, exception.QuotaExceeded) as error:
            race.refusals.append(error)
            continue
        rounds += 1
        while True:
            # A node may be locked.
            with contextlib.suppress(exception.Conflict):
                release()
                break
    return rounds


def lock(fleet, race):
    """Lock free nodes for a moment, as conductors do."""
    rounds = 0
    while not race.has_ended():
        for text in ("'conductor' WHERE reservation IS NULL "
                     'AND instance_uuid IS NULL',
                     'NULL WHERE reservation IS NOT NULL'):
            with contextlib.suppress(db_exc.DBDeadlock):
                fleet.execute(
                    sa.text(f'UPDATE nodes SET reservation = {text}'))
            time.sleep(0.002)
        rounds += 1
    return rounds


def join_segment():
    """Hold a node for a segment that lacks a member."""
    return hold(values.GroupRequest(fleets.GROUP, project_id=PROJECT,
                                    segment=0))


def make_segment(fleet):
    """Create a group of a segment that lacks a member."""
    instance_uuid = str(uuid.uuid4())
    groups.create_group(
        fleets.matcher(resource_class='gold'), obtain.Request(
            (instance_uuid, str(uuid.uuid4())), values.Assignment(),
            group=values.GroupRequest(
                fleets.GROUP, project_id=PROJECT, segments=1,
                segment_levels=SEGMENTS), digest='digest'))
    releases.release_reservation(instance_uuid)


def make_pack(fleet):
    hold(test_groups.name_group('pack', project=PROJECT))


def join_pack():
    return hold(test_groups.name_group('pack', project=PROJECT))


@pytest.mark.parametrize('nodes, prepare, clients', [
    (1, None, [hold] * 3),
    (2, None, [create_group] * 2 + [hold]),
    (2, make_pack, [join_pack, hold, hold]),
    (2, make_segment, [join_segment, hold, hold]),
    (1, None, [hold, lock]),
    (2, make_pack, [join_pack, lock]),
    (1, None, [functools.partial(hold, limits=LIMITS, memory_mb=1)] * 3),
], ids=['single', 'group', 'pack', 'repair', 'lock', 'pack and lock',
        'quota'])
def test_others_hold_the_last_nodes(fleet, nodes, prepare, clients):
    fleet.add(*({'properties': {'memory_mb': 4096,
                                'capabilities': 'rack:r1'}}
                for _ in range(nodes)),
              {'resource_class': 'silver', 'properties': {'memory_mb': 1}})
    if prepare:
        prepare(fleet)
    race = Race()
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as executor:
        rounds = [future.result() for future in [
            executor.submit(lock, fleet, race) if client is lock
            else executor.submit(compete, client, race)
            for client in clients]]
    assert sum(rounds) and race.refusals, rounds
    for error in race.refusals:
        if isinstance(error, exception.QuotaExceeded):
            assert error.quota.resource.endswith('CUSTOM_SILVER')
            continue
        steps = error.verdict.explanation.eliminated
        assert 'malformed properties' not in steps, error
        assert sum(steps.values()) == error.verdict.explanation.considered
