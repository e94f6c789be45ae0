# SPDX-License-Identifier: Apache-2.0
"""Histories that are wrong in one place, and some that only look so."""

import datetime
import math
import uuid

import pytest

from tests.common import calls as calls_
from tests.common import histories

SECOND = calls_.SECOND
#: Instances, nodes, a group, a pool and a cordon.
A, B, C = (str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in 'abc')
M, N = 'node-1', 'node-2'
GROUP, POOL, CORDON = (str(uuid.uuid5(uuid.NAMESPACE_OID, name))
                       for name in ('group', 'pool', 'cordon'))
#: Seconds of the wall clock when the monotonic is 0.
START = 1_000_000


def call(begin, end, method, path, body=None, status=200, content=None,
         client=1):
    """Return a call; times are in seconds."""
    return calls_.Call(
        client, method, calls_.OURS + path, body, begin * SECOND,
        end * SECOND if status else math.inf, START * SECOND, status, content)


def describe(instance, node, expires=None):
    return {'instance_uuid': instance, 'node_uuid': node,
            'expires_at': expires and datetime.datetime.fromtimestamp(
                START + expires, datetime.UTC).isoformat()}


def hold(begin, end, instance=A, node=N, status=201, expires=None, client=1,
         **body):
    return call(begin, end, 'POST', '', {**body, 'instance_uuid': instance},
                status, describe(instance, node, expires) if status else None,
                client)


def release(begin, end, instance=A, status=204, client=1):
    return call(begin, end, 'DELETE', f'/{instance}', None, status,
                client=client)


def show(begin, end, instance=A, node=N):
    return call(begin, end, 'GET', f'/{instance}',
                status=200 if node else 404,
                content=node and describe(instance, node))


def list_all(begin, end, **nodes):
    """List reservations; ``nodes`` are those of instances a, b and c."""
    return call(begin, end, 'GET', '?limit=1000', content={'reservations': [
        describe({'a': A, 'b': B, 'c': C}[name], node)
        for name, node in nodes.items()]})


def hold_group(begin, end, status=201, client=1):
    return call(begin, end, 'POST', '/groups', {
        'uuid': GROUP, 'members': [A, B]}, status,
        {'uuid': GROUP, 'reservations': [describe(A, M), describe(B, N)]},
        client)


def present(node, cordon=True, state='open'):
    return {'notices': [{'uuid': CORDON, 'node_uuid': node, 'cordon': cordon,
                         'state': state}]}


def cordon(begin, end, node=N, **kwargs):
    return call(begin, end, 'POST', '/notices', {
        'uuid': CORDON, 'nodes': [node]}, **{
            'status': 201, 'content': present(node), **kwargs})


def uncordon(begin, end, node=N):
    return call(begin, end, 'PATCH', f'/notices/{CORDON}',
                [{'op': 'add', 'path': '/ends_at', 'value': 'now'}],
                content=present(node, state='closed'))


def list_cordons(begin, end, *nodes):
    return call(begin, end, 'GET', '/notices?state=open', content={
        'notices': [notice for node in nodes
                    for notice in present(node)['notices']]})


def pool(begin, end, *nodes, method='POST', path='', status=201, client=1,
         replaces=None, name=POOL):
    """Create a pool of project p, or change or show it."""
    return call(
        begin, end, method, f'/pools{path}', {
            'uuid': name, 'project_id': 'p', 'replaces': replaces},
        status, {'uuid': name, 'project_id': 'p', 'nodes': [
            {'uuid': node} for node in nodes]} if nodes else None, client)


def show_pool(begin, end, *nodes, client=1):
    return pool(begin, end, *nodes, method='GET', path=f'/{POOL}',
                status=200 if nodes else 404, client=client)


def replace(begin, end, node, *nodes, status=200):
    return pool(begin, end, *nodes, path=f'/{POOL}/nodes', status=status,
                replaces=node)


def delete_pool(begin, end, status=204):
    return pool(begin, end, method='DELETE', path=f'/{POOL}', status=status)


def check(calls, rows=()):
    histories.check(calls_.merge_repeats(calls),
                    [calls_.Row(*row) for row in rows], [M, N])


#: Histories that are right without the last call, or with the one in its
#: place.
WRONG = {
    'node is held twice': (
        [hold(0, 1)], hold(2, 3, B), hold(2, 3, B, M)),
    'reservation is lost': (
        [hold(0, 1)], list_all(2, 3), list_all(2, 3, a=N)),
    'reservation is not shown': (
        [hold(0, 1)], show(2, 3, node=None), show(2, 3)),
    'reservation is not released': (
        [hold(0, 1)], release(2, 3, status=404), release(2, 3)),
    'released reservation is repeated': (
        [hold(0, 1), release(2, 3)], hold(4, 5, status=200), hold(4, 5)),
    'node is not that of the response': (
        [hold(0, 1)], show(2, 3, node=M), show(2, 3)),
    'release has no effect': (
        [hold(0, 1), release(2, 3)], show(4, 5), show(4, 5, node=None)),
    'release succeeds twice': (
        [hold(0, 1), release(2, 3)], release(4, 5), release(4, 5, status=404)),
    'lease expires early': (
        [hold(0, 1, expires=9)], hold(6, 7.9, B), hold(6, 8.1, B)),
    'renewal is lost': (
        [hold(0, 1, expires=9), hold(3, 4, status=200, expires=20)],
        hold(12, 13, B), hold(18, 19, B)),
    'cordon is broken': (
        [cordon(0, 1)], hold(2, 3), hold(2, 3, node=M)),
    'cordon is broken by a claim': (
        [hold(0, 1), cordon(2, 3)], hold(4, 5, B, claim=A),
        show(4, 5)),
    'cordon is lost': (
        [cordon(0, 1)], list_cordons(2, 3), list_cordons(2, 3, N)),
    'cordon does not end': (
        [cordon(0, 1), uncordon(2, 3)], list_cordons(4, 5, N),
        list_cordons(4, 5)),
    'cordon is repeated late': (
        [cordon(0, 1, status=None), cordon(2, 3), uncordon(4, 5)],
        list_cordons(6, 7, N), list_cordons(6, 7)),
    'claim of another machine': (
        [hold(0, 1), hold(0, 1, B, M)], hold(2, 3, C, claim=B),
        hold(2, 3, C, claim=A)),
    'pool is broken': (
        [pool(0, 1, M, N)], hold(2, 3, project_id='q'),
        hold(2, 3, project_id='p')),
    'pool takes a held node': (
        [hold(0, 1)], pool(2, 3, N), pool(2, 3, M)),
    'pool takes a cordoned node': (
        [cordon(0, 1)], pool(2, 3, N), pool(2, 3, M)),
    'node joins two pools': (
        [pool(0, 1, N)], pool(2, 3, N, name=GROUP), pool(2, 3, M, name=GROUP)),
    'pool is deleted twice': (
        [pool(0, 1, N), delete_pool(2, 3)], delete_pool(4, 5),
        delete_pool(4, 5, 404)),
    'pool loses a node': (
        [pool(0, 1, M, N)], show_pool(2, 3, M), show_pool(2, 3, M, N)),
    'replaced node stays': (
        [pool(0, 1, M), replace(2, 3, M, N)],
        show_pool(4, 5, M), show_pool(4, 5, N)),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_history(name):
    calls, wrong, right = WRONG[name]
    check(calls)
    check([*calls, right])
    with pytest.raises(AssertionError, match='have no order'):
        check([*calls, wrong])


def test_group_is_partial():
    calls = [hold_group(0, 1, None)]
    check(calls)
    check(calls, [(A, M), (B, N)])
    with pytest.raises(AssertionError, match='Only some members'):
        check(calls, [(A, M)])


def test_pool_is_partly_deleted():
    calls = [pool(0, 1, M, N), delete_pool(2, 3, None),
             hold(4, 5, project_id='q')]
    check(calls)
    with pytest.raises(AssertionError, match='but not all of them'):
        check([*calls, show_pool(6, 7, M, client=2)])
    check([*calls, show_pool(3, 7, M, client=2)])


#: Histories that only look wrong.
RIGHT = {
    'second hold is answered before the release': [
        hold(0, 1), release(2, 6), hold(3, 4, B, client=2),
        list_all(5, 7, b=N)],
    'reads overlap with a hold': [
        hold(0, 9), list_all(1, 2), list_all(3, 4, a=N),
        list_all(5, 6, a=N)],
    'unknown hold happens late': [
        hold(0, 1, status=None), hold(2, 3, B, client=2),
        release(4, 5, B, client=2), list_all(6, 7, a=N)],
    'unknown hold never happens': [
        hold(0, 1, status=503), hold(2, 3, B, client=2),
        list_all(4, 5, b=N)],
    'refused hold happens late': [
        hold(0, 1, status=503), list_all(2, 3), list_all(4, 5, a=N)],
    'repeated request of a reservation': [
        hold(0, 1), hold(2, 3, status=503), hold(4, 5, status=200)],
    'API repeats a hold': [
        hold(0, 9, status=200), list_all(1, 2), list_all(3, 4, a=N)],
    'unknown release': [
        hold(0, 1), release(2, 3, status=None), hold(4, 5, B, client=2)],
    'repeated release': [
        hold(0, 1), release(2, 3, status=None), hold(4, 5, B, client=2),
        release(6, 7, status=404)],
    'repeated hold': [
        hold(0, 1, status=503), hold(2, 9, status=200), list_all(4, 5, a=N)],
    'lease expires': [
        hold(0, 1, expires=9), list_all(7, 7.5, a=N), hold(8, 9, B),
        show(9, 10, node=None)],
    'cordon overlaps': [
        cordon(0, 5), hold(1, 2), list_cordons(3, 4, N)],
    'unknown cordon': [
        cordon(0, 1, status=None), hold(2, 3), list_cordons(4, 5, N)],
    'unknown pool': [
        pool(0, 1, status=None), hold(2, 3, project_id='q', client=2),
        release(4, 5, client=2), show_pool(6, 7, M, N, client=2)],
    'repeated replacement': [
        pool(0, 1, M), replace(2, 3, M, status=None), replace(4, 5, M,
                                                              status=404),
        show_pool(6, 7, N), hold(8, 9, node=M, project_id='q')],
    'group is released in part': [
        hold_group(0, 1), call(2, 3, 'DELETE', f'/groups/{GROUP}',
                               status=409),
        hold(4, 5, C, M), list_all(6, 7, b=N, c=M)],
}


@pytest.mark.parametrize('name', RIGHT)
def test_right_history(name):
    check(RIGHT[name])


def test_hold_that_only_the_database_shows():
    calls = [hold(0, 1, status=None), list_all(0, 1), hold(2, 3, B)]
    check(calls)
    check(calls, [(A, M), (B, N)])
    with pytest.raises(AssertionError, match='have no order'):
        check([*calls, list_all(4, 5, b=N), release(4, 5, B, client=2),
               list_all(6, 7), show(8, 9, node=N), list_all(10, 11)],
              [(A, N), (B, N)])


def test_failure_shows_the_calls_of_the_node():
    with pytest.raises(AssertionError) as error:
        check([hold(0, 1), hold(2, 3, B), hold(2, 3, C, M), release(4, 5)])
    lines = str(error.value).splitlines()
    assert lines[1:] == [
        f'  0.000000-1.000000 1 POST /v1/reservations 201: {A} of project '
        'None takes it',
        f'> 2.000000-3.000000 1 POST /v1/reservations 201: {B} of project '
        'None takes it']
