# SPDX-License-Identifier: Apache-2.0
"""WSME types of the answers."""

import datetime
import json

from wsme import types as wtypes


class Json(wtypes.UserType):
    """A JSON value, as it is."""

    basetype = str
    name = 'json'

    @staticmethod
    def validate(value):
        return value


class Link(wtypes.Base):
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
    expires_at = datetime.datetime
    created_at = datetime.datetime
    updated_at = datetime.datetime
    links = [Link]

    @classmethod
    def present(cls, reservation, url, fields=None):
        """The public face of a ``reservations.Reservation``.

        :param url: of the collection.
        :param fields: names to show, None for all; links are always shown.
        """
        values = {
            'request_spec': json.loads(reservation.request_spec),
            'links': [Link(rel='self',
                           href=f'{url}/{reservation.instance_uuid}')]}
        for name in FIELDS:
            if fields is not None and name not in (*fields, 'links'):
                values.pop(name, None)
            elif name not in values:
                value = getattr(reservation, name)
                if isinstance(value, datetime.datetime):
                    value = value.replace(tzinfo=datetime.UTC)
                values[name] = value
        return cls(**values)


FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation))


class Profile(wtypes.Base):
    """Nodes that no request can tell apart, counted."""

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


class Capacity(wtypes.Base):
    """What the fleet can give."""

    capacity = [Profile]

    @classmethod
    def present(cls, rows):
        return cls(capacity=[Profile(**row) for row in rows])


class DryRun(wtypes.Base):
    """What a request would find."""

    matching_nodes = int
    profiles = [Profile]
    explanation = Json()

    @classmethod
    def present(cls, verdict):
        return cls(**{**verdict, 'profiles': [
            Profile(**row) for row in verdict['profiles']]})
