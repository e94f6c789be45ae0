# SPDX-License-Identifier: Apache-2.0
"""What a JSON schema cannot say of what a request contains."""

import contextlib

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import text
from ironic_reservations.api import bodies
from ironic_reservations.api import types


@contextlib.contextmanager
def inside(field):
    """Have errors name a field as what it is inside of another one."""
    try:
        yield
    except exception.InvalidInput as e:
        raise exception.InvalidInput(
            field if e.field == 'body' else f'{field}.{e.field}', e.reason
        ) from e


def is_true(query, name):
    """Return whether a query says so; one without the parameter does not.

    :param query: dict, validated.
    """
    return query.get(name, 'false').lower() == 'true'


def group(given):
    """Return policy and domain that a request gives its group.

    :param given: dict that may have ``policy`` and ``by``.
    :returns: dict of both, None and None where there is no policy.
    :raises: InvalidInput when there is one of them alone.
    """
    found = {name: given.get(name) for name in ('policy', 'by')}
    missing = [name for name, value in found.items() if value is None]
    if len(missing) == 1:
        raise exception.InvalidInput(
            missing[0], 'must be given: policy and by, both or neither')
    return found


def members(given):
    """Return the instances for which nodes are to be held at once.

    :param given: how many there are, or their UUIDs.
    :returns: list of UUIDs in lower case, or how many to make.
    :raises: InvalidInput when there are too many, or two are the same.
    """
    most = conf.CONF.reservations.max_members
    number = len(given) if isinstance(given, list) else int(given)
    if number > most:
        raise exception.InvalidInput('members', f'must be at most {most}' + (
            ' UUIDs' if isinstance(given, list) else ''))
    if not isinstance(given, list):
        return number
    found = sorted({each.lower() for each in given})
    if len(found) < number:
        raise exception.InvalidInput('members',
                                     'must be UUIDs that differ')
    return found


def holder(given):
    """Return as whom a body or a query writes for a host.

    :returns: UUID in lower case, or None where it does not say.
    :raises: InvalidInput when it does not name the host.
    """
    if given.get('holder') is None:
        return None
    if given.get('host') is None:
        raise exception.InvalidInput(
            'holder', 'must come with the host that it holds')
    return given['holder'].lower()


def expires_in(body, required=False):
    """Return the lease that a request asks for, or gets by default.

    :param required: whether there must be one.
    :returns: seconds, or None for a reservation without end.
    :raises: InvalidInput when there is none, or when it exceeds
        [reservations] max_lease.
    """
    longest, seconds = conf.CONF.reservations.max_lease, body.get('expires_in')
    if seconds is None:
        seconds = min(conf.CONF.reservations.default_lease, longest) or None
        if required and seconds is None:
            raise exception.InvalidInput('expires_in',
                                         f'must be given, {_most(longest)}')
        return seconds
    return _lease(seconds)


def _lease(seconds):
    longest = conf.CONF.reservations.max_lease
    if seconds is None or seconds > longest:
        raise exception.InvalidInput('expires_in', f'must be {_most(longest)}')
    return int(seconds)


def _most(longest):
    return (f'at most {longest} ({text.format_duration(longest)}), see '
            f'[reservations] max_lease')


def changes(body, required=False):
    """Return what a JSON Patch makes of a reservation.

    :param body: the operations, as ``bodies.update`` lets them pass.
    :param required: whether there must be a lease.
    :returns: dict of ``host``, and of ``lease`` in seconds, which is None for
        no end: those of them that change.
    :raises: InvalidInput.
    """
    found = {}
    for number, each in enumerate(body):
        name = each['path'][1:]
        if each['op'] == 'remove' and name != 'expires_in':
            raise exception.InvalidInput(f'{number}.op', 'must be replace')
        if each['op'] != 'remove' and 'value' not in each:
            raise exception.InvalidInput(f'{number}.value', 'must be given')
        found[name] = None
        if each['op'] != 'remove':
            found |= bodies.values({name: each['value']})
    if 'expires_in' in found:
        seconds = found.pop('expires_in')
        if required or seconds is not None:
            seconds = _lease(seconds)
        found['lease'] = seconds
    return found


def fields(value):
    """Return the names of the fields that a query asks for.

    :param value: names separated by commas, or None.
    :returns: list of names that differ, or None for all.
    :raises: InvalidInput for a field that a reservation does not have.
    """
    if value is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in value.split(',')))
    for name in names:
        if name not in types.FIELDS:
            raise exception.InvalidInput(
                'fields', f'must be of {", ".join(types.FIELDS)}')
    return names


def order(query):
    """Take out of a query how its rows are to be sorted.

    :param query: dict, validated. A key without a direction is sorted as the
        key before.
    :returns: dict of directions by key, the key that decides first first.
        ``id`` is one of them, so that no two rows are equal.
    :raises: InvalidInput for a key twice, or a direction without a key.
    """
    keys = query.pop('sort_key', 'id').split(',')
    directions = query.pop('sort_dir', 'asc').split(',')
    if len(set(keys)) < len(keys):
        raise exception.InvalidInput('sort_key', 'must be keys that differ')
    if len(directions) > len(keys):
        raise exception.InvalidInput('sort_dir',
                                     'must be at most one for each sort_key')
    directions += directions[-1:] * (len(keys) - len(directions))
    order = dict(zip(keys, directions, strict=True))
    order.setdefault('id', directions[-1])
    return order
