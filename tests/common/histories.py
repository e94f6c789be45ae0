# SPDX-License-Identifier: Apache-2.0
"""Checks whether the calls of concurrent clients can have happened.

The operations on each node need an order that respects when their calls began
and ended, and in which each is possible. The search is that of Lowe, "Testing
for linearizability".
"""

import dataclasses

from tests.common import operations
from tests.common.calls import SECOND


def find_misfit(ops):
    """Return the operation that has no place in any order, or None."""
    steps = []
    for number, op in enumerate(ops):
        steps += [(op.begin, False, number, op), (op.end, True, number, op)]
    pending, orders = set(), {(operations.State(), frozenset())}
    for time, is_end, _, op in sorted(steps):
        if not is_end:
            pending.add(op)
            continue
        closure, todo = set(), [*orders]
        while todo:
            if (order := todo.pop()) not in closure:
                closure.add(order)
                if op not in order[1]:
                    todo += _continue(*order, pending, time)
        orders = {(state, past - {op}) for state, past in closure
                  if op in past or not op.is_sure}
        pending.remove(op)
        if not orders:
            return op
    return None


def _continue(state, past, pending, time):
    """Return what may come next. A read comes as soon as it is possible."""
    orders = []
    for op in pending - past:
        if (after := op.change(state)) is not None:
            orders.append((after, past | {op}))
            if op.is_read:
                return orders[-1:]
    if state.expires - SECOND <= time:
        orders.append((state.free(), past))
    return orders


def check(calls, rows, nodes):
    """Check calls on nodes that were free.

    :param calls: see ``merge_repeats``.
    :param rows: all reservations, also those that have ended.
    """
    nodes = operations.read(calls, rows, nodes)
    for ops in nodes:
        misfit = find_misfit(ops)
        assert misfit is None, _describe(ops, misfit)
    for call in {op.call for ops in nodes for op in ops if not op.is_sure}:
        # A group is released one by one.
        if call.kind != 'groups':
            _check_all_or_none(call, nodes)


def _describe(ops, misfit):
    """Return the calls of a node in order, until the one that is wrong."""
    lines = ['The calls of a node have no order (seconds, client, call):']
    start = min(op.begin for op in ops)
    for op in sorted(ops, key=lambda op: op.begin):
        if op.begin <= misfit.end:
            begin, end = ((time - start) / SECOND
                          for time in (op.begin, op.end))
            lines.append(f'{">" if op is misfit else " "} {begin:.6f}-'
                         f'{end:.6f} {op.call.client} {op.call}: {op.text}')
    return '\n'.join(lines)


def _check_all_or_none(call, nodes):
    """Check that an unknown call was one change of all its nodes, or none."""
    own = {op: ops for ops in nodes for op in ops if op.call is call}
    if all(find_misfit(other for other in ops if other is not op) is None
           for op, ops in own.items()):
        return
    for time in {other.end for ops in own.values() for other in ops}:
        if time >= call.begin and all(find_misfit(
                other if other is not op else dataclasses.replace(
                    op, begin=time, end=time, is_sure=True)
                for other in ops) is None for op, ops in own.items()):
            return
    raise AssertionError('\n'.join([
        'This has changed some of its nodes, but not all of them:',
        *(_describe(ops, op) for op, ops in own.items())]))
