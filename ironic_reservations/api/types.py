# SPDX-License-Identifier: Apache-2.0
"""The WSME types of the answers.

Requests are not parsed with WSME but validated by ``schema``, because WSME
accepts ``true``, ``"3"`` and ``1.5`` as integers and answers a body that is
not an object with 500.
"""

import datetime
import json

from wsme import types as wtypes


class Json(wtypes.UserType):
    """Any JSON value, given out as it is."""

    basetype = str
    name = 'json'

    @staticmethod
    def validate(value):
        return value


class Link(wtypes.Base):
    """A link of an answer to something else in the API."""

    href = wtypes.text
    rel = wtypes.text


class Reservation(wtypes.Base):
    """A node held for an instance."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = wtypes.text
    host = wtypes.text
    state = wtypes.text
    provision_state = wtypes.text
    resource_class = wtypes.text
    project_id = wtypes.text
    user_id = wtypes.text
    request_spec = Json()
    group = Json()
    expires_at = datetime.datetime
    created_at = datetime.datetime
    updated_at = datetime.datetime
    links = [Link]

    @classmethod
    def present(cls, reservation, url, fields=None):
        """Make the answer of a ``reservations.Reservation``.

        :param url: the URL of the collection of reservations.
        :param fields: the names of the attributes to show, None for all; the
            links are always shown.
        """
        fields = {*(FIELDS if fields is None else fields), 'links'}
        made = {
            'request_spec': lambda: json.loads(reservation.request_spec),
            'group': lambda: _group(reservation),
            'expires_at': lambda: _utc(reservation.ends_at),
            'links': lambda: [Link(
                rel='self', href=f'{url}/{reservation.instance_uuid}')]}
        return cls(**{
            name: made[name]() if name in made
            else _utc(getattr(reservation, name)) for name in fields})


def _group(reservation):
    """Of which group it is a member; a reservation of none does not say."""
    if reservation.group_uuid is None:
        return wtypes.Unset
    return {'uuid': reservation.group_uuid,
            'policy': reservation.group_policy, 'by': reservation.group_by,
            'domain': reservation.domain}


def _utc(value):
    """A column's value; its times are UTC without saying so."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC)
    return value


FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation))

#: What a list shows of each unless it is asked for else, and a group of its
#: members. Request specs may be a thousand times as long as all the rest.
LISTED = tuple(name for name in FIELDS if name != 'request_spec')

#: The attributes of a ``reservations.Reservation`` of which those are made
#: that are none themselves.
_MADE_OF = {'state': {'provision_state'}, 'links': {'instance_uuid'},
            'group': {'group_uuid', 'group_policy', 'group_by', 'domain'},
            # It is none where the lease counts no more.
            'expires_at': {'expires_at', 'provision_state'}}


def made_of(fields):
    """What must be read of a reservation to present these fields: a set."""
    return set().union(*(_MADE_OF.get(name, {name}) for name in fields))


class Group(wtypes.Base):
    """Reservations with one policy."""

    uuid = wtypes.text
    policy = wtypes.text
    by = wtypes.text
    project_id = wtypes.text
    created_at = datetime.datetime
    reservations = [Reservation]
    # Of more of them, where one answer has no room for all.
    next = wtypes.text

    @classmethod
    def present(cls, group):
        """Make the answer of a ``groups.Group``, but for the members."""
        return cls(**_of_group(group))


class ListedGroup(wtypes.Base):
    """A group with how many members it has, and where."""

    uuid = wtypes.text
    policy = wtypes.text
    by = wtypes.text
    project_id = wtypes.text
    created_at = datetime.datetime
    members = int
    domains = Json()

    @classmethod
    def present(cls, group):
        """Make the answer of a ``membership.Group``."""
        return cls(members=group.domains.total(), domains=[
            {'value': value, 'nodes': nodes} for value, nodes in sorted(
                group.domains.items(),
                key=lambda item: (-item[1], str(item[0])))
        ] if group.by else [], **_of_group(group))


def _of_group(group):
    return {name: _utc(getattr(group, name)) for name in (
        'uuid', 'policy', 'by', 'project_id', 'created_at')}


class Host(wtypes.Base):
    """Which process is a compute host."""

    host = wtypes.text
    holder = wtypes.text
    live = bool
    expires_at = datetime.datetime
    created_at = datetime.datetime
    updated_at = datetime.datetime

    @classmethod
    def present(cls, lease, fields=None):
        """Make the answer of a ``hosts.Lease``.

        :param fields: the names of the attributes to show, None for all.
        """
        return cls(**{name: _utc(value) for name, value in vars(lease).items()
                      if fields is None or name in fields})


class Profile(wtypes.Base):
    """A hardware profile: nodes that no request can distinguish, counted."""

    resource_class = wtypes.text
    memory_mb = Json()
    vcpus = Json()
    local_gb = Json()
    cpu_arch = wtypes.text
    capabilities = Json()
    traits = [wtypes.text]
    conductor_group = wtypes.text
    shard = wtypes.text
    owner = wtypes.text
    lessee = wtypes.text
    total = int
    free = int
    held = int
    claimable = int


class Capacity(wtypes.Base):
    """What the fleet can still give, by hardware profile."""

    capacity = [Profile]

    @classmethod
    def present(cls, rows):
        """Make the answer of the rows that ``capacity.capacity`` counts."""
        return cls(capacity=[Profile(**row) for row in rows])


class DryRun(wtypes.Base):
    """What a request would find if it were to hold a node."""

    matching_nodes = int
    profiles = [Profile]
    explanation = Json()
    # Of a group that is to be held at once.
    members = Json()
    domains = Json()
    # Where nothing else is in the way.
    quota = Json()

    @classmethod
    def present(cls, verdict):
        """Make the answer of what ``explanation.dry_run`` returns."""
        return cls(**{**verdict, 'profiles': [
            Profile(**row) for row in verdict['profiles']]})
