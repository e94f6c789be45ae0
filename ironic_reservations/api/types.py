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
        values = {
            'request_spec': json.loads(reservation.request_spec),
            'group': _group(reservation),
            'expires_at': _utc(reservation.ends_at),
            'links': [Link(rel='self',
                           href=f'{url}/{reservation.instance_uuid}')]}
        for name in FIELDS:
            if fields is not None and name not in (*fields, 'links'):
                values.pop(name, None)
            elif name not in values:
                values[name] = _utc(getattr(reservation, name))
        return cls(**values)


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


class Group(wtypes.Base):
    """Reservations with one policy."""

    uuid = wtypes.text
    policy = wtypes.text
    by = wtypes.text
    project_id = wtypes.text
    created_at = datetime.datetime
    reservations = [Reservation]

    @classmethod
    def present(cls, group, url):
        """Make the answer of a ``groups.Group``.

        :param url: the URL of the collection of reservations.
        """
        return cls(
            reservations=[Reservation.present(member, url)
                          for member in group.members],
            **{name: _utc(getattr(group, name)) for name in
               ('uuid', 'policy', 'by', 'project_id', 'created_at')})


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
