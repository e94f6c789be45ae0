# SPDX-License-Identifier: Apache-2.0
"""Dry runs, refusals and requests that succeed agree on generated fleets.

Left out is what a count does not read: properties that Python and a database
read differently, and what is attached to nodes that the request does not name.
"""

import contextlib
import dataclasses
import json
import uuid

import hypothesis
from hypothesis import strategies as st

from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import quotas
from tests.common import fleets

A, B = 'a' * 32, 'b' * 32
TOTAL = 'baremetal_reservations'
DEDICATED = ('CUSTOM_BURN_IN',)
MEMBERS, LEVELS = 'f' * 32, json.dumps([
    {'by': 'capability:pod', 'policy': 'pack'},
    {'by': 'capability:rack', 'policy': 'pack', 'segment': 2}])


def rarely(*others, usually=None):
    """Return a strategy whose first value is the most frequent."""
    return st.sampled_from([usually] * 6 * len(others) + [*others])


#: Columns of a node, and what refers to it.
nodes = st.fixed_dictionaries({
    'resource_class': st.sampled_from(['gold', 'silver']),
    'owner': rarely(None, B, usually=A), 'lessee': rarely(A, B),
    'health': rarely('OK', 'Warning', 'Critical'),
    'maintenance': rarely(True, usually=False),
    'reservation': rarely('conductor-1'),
    'traits': rarely(('CUSTOM_FAST',), DEDICATED, usually=()),
    'rack': st.sampled_from(['r1', 'r2', 'r3']),
    'pod': st.sampled_from(['p1', 'p2']),
    'memory_mb': st.sampled_from([1024, 2048]),
    'notice': rarely(False, True), 'pool': rarely(A, B),
    'hold': rarely('member', 'free', 'host')})

callers = st.sampled_from(['all', A])

specs = st.fixed_dictionaries({}, optional={
    'resource_class': st.sampled_from(['gold', 'silver']),
    'memory_mb': st.sampled_from([1024, 2048]),
    'extra_specs': st.sampled_from([
        {'trait:CUSTOM_FAST': 'required'}, {'trait:CUSTOM_FAST': 'forbidden'},
        {'trait:CUSTOM_BURN_IN': 'required'}, {'capabilities:rack': 'r1'}])})

limits = st.fixed_dictionaries(
    {TOTAL: rarely(0, 2, 4, usually=-1)},
    optional={f'{TOTAL}:CUSTOM_GOLD': st.integers(0, 4),
              f'{TOTAL}:CUSTOM_SILVER': st.integers(0, 4)})

kinds = st.sampled_from(['hold', 'join', 'group', 'segments', 'pool', 'claim',
                         'group', 'claim'])
policies = st.sampled_from([None, 'spread', 'pack', 'soft-spread',
                            'soft-pack'])


def fill(fleet, rows):
    """Add nodes with what refers to them; return the UUIDs of reservations."""
    ids = fleet.add(*({
        **{name: value for name, value in row.items() if name not in (
            'rack', 'pod', 'memory_mb', 'notice', 'pool', 'hold')},
        'name': f'node-{number}', 'properties': {
            'memory_mb': row['memory_mb'],
            'capabilities': f'rack:{row["rack"]},pod:{row["pod"]}'}}
        for number, row in enumerate(rows)))
    reservations = []
    for number, row in enumerate(rows):
        # A node that cannot be held stays free.
        with contextlib.suppress(exception.NoMatchingNode):
            if row['hold']:
                is_member = row['hold'] == 'member'
                reservations.append(fleet.hold(
                    owner=values.Assignment(
                        'compute-1' if row['hold'] == 'host' else None,
                        project_id=A),
                    group=values.GroupRequest(
                        MEMBERS, 'soft-spread', 'capability:rack',
                        project_id=A) if is_member else None,
                    candidate_nodes=[f'node-{number}'])[0].instance_uuid)
    for node_id, row in zip(ids, rows, strict=True):
        if row['notice'] is not None:
            fleet.add_notice(node_id, cordon=row['notice'])
        if row['pool'] and not row['hold']:
            fleet.add_pool(row['pool'], node_id)
    return reservations


def make_calls(kind, caller, spec, number, policy, bounds, reservations):
    """Return functions that do a dry run and the request."""
    project = None if caller == 'all' else caller
    use = {'claim': matching.TO_CLAIM, 'pool': matching.to_join(B)}.get(
        kind, matching.TO_HOLD)
    matcher = fleets.matcher(project, use=use, **spec)
    if kind != 'claim':
        matcher = dataclasses.replace(matcher, dedicated=DEDICATED)
    assignment = values.Assignment(project_id=A)
    own_limits = (quotas.Limits(A, bounds) if project and kind not in (
        'claim', 'pool') else quotas.Limits())
    if kind == 'claim':
        number %= len(reservations) + 1
        ident = [*reservations, MEMBERS][number]
        return (lambda: claims.dry_run(ident, matcher, A, context.allow_all),
                lambda: claims.claim_reservation(
                    ident, matcher, obtain.Request(
                        (str(uuid.uuid4()),), assignment), context.allow_all))
    if kind in ('hold', 'join'):
        group = values.GroupRequest(
            MEMBERS, 'soft-spread', 'capability:rack', project_id=A
        ) if kind == 'join' else None
        return (lambda: dry_runs.dry_run(matcher, own_limits, group),
                lambda: holds.hold_node(matcher, obtain.Request(
                    (str(uuid.uuid4()),), assignment, group=group,
                    limits=own_limits)))
    members = 1 + number
    group = values.GroupRequest(
        str(uuid.uuid4()), policy, policy and 'capability:rack',
        project_id=B if kind == 'pool' else A)
    if kind == 'segments':
        members = 2 + 2 * (number % 2)
        group = dataclasses.replace(
            group, policy=None, by=None, segments=members // 2,
            segment_levels=LEVELS)
    if kind == 'pool':
        return (lambda: dry_runs.dry_run(matcher, own_limits, group, members),
                lambda: pools.create_pool(matcher, pools.Request(
                    group, members, None, 'digest')))
    return (lambda: dry_runs.dry_run(matcher, own_limits, group, members),
            lambda: groups.create_group(matcher, obtain.Request(
                tuple(str(uuid.uuid4()) for _ in range(members)), assignment,
                group=group, digest='digest', limits=own_limits)))


@hypothesis.settings(
    deadline=None, max_examples=150, derandomize=True, database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture,
                           hypothesis.HealthCheck.too_slow])
@hypothesis.given(st.lists(nodes, min_size=3, max_size=8), kinds, callers,
                  specs, st.integers(0, 3), policies, limits)
def test_dry_run_and_request_agree(fleet, rows, kind, caller, spec, number,
                                   policy, bounds):
    fleet.clear()
    dry_run, request = make_calls(kind, caller, spec, number, policy, bounds,
                                  fill(fleet, rows))
    try:
        verdict = dry_run().verdict
    except (exception.NotFound, exception.Conflict) as error:
        hypothesis.event(type(error).__name__)
        try:
            request()
        except type(error) as other:
            assert str(other) == str(error)
            return
        raise AssertionError('The request has succeeded') from error
    try:
        request()
    except exception.QuotaExceeded as error:
        hypothesis.event(f'{kind}: quota')
        assert verdict.quota == error.quota
        assert not verdict.is_enough
    except exception.NoMatchingNode as error:
        hypothesis.event(f'{kind}: refused')
        assert error.verdict == verdict
        assert not verdict.is_enough
    else:
        hypothesis.event(f'{kind}: success')
        assert verdict.is_enough
        assert verdict.quota is None
