# SPDX-License-Identifier: Apache-2.0
"""The WSME types of the answers, and how a value becomes one.

Requests are not parsed with WSME but validated by a JSON schema, because WSME
accepts ``true``, ``"3"`` and ``1.5`` as integers and answers a body that is
not an object with 500.
"""

import datetime
import functools
import json

from wsme import types as wtypes


class Json(wtypes.UserType):
    """Any JSON value, given out as it is."""

    basetype = str
    name = 'json'

    @staticmethod
    def validate(value):
        return value


class Computed(wtypes.wsattr):
    """An attribute of an answer that is not simply one of the value's.

    :param make: makes it of the value; Unset for one that is not shown. It is
        None where the value has the attribute itself, or where only the call
        can add it.
    :param of: the names of the value's attributes that must be read for it.
    """

    def __init__(self, datatype, make, of=()):
        super().__init__(datatype)
        self.make = make
        self.of = of


def present(declared, value, fields=None):
    """Return a value as JSON, a dict.

    :param declared: the WSME type of the answer. What the value lacks of its
        attributes is left out.
    :param value: an object or a dict.
    :param fields: the names of the attributes to show, None for all.
    """
    read = value.get if isinstance(value, dict) else functools.partial(
        getattr, value)
    shown = {}
    for name, make, to_json in _attributes(declared):
        if fields is None or name in fields:
            found = make(value) if make else read(name, wtypes.Unset)
            if found is not wtypes.Unset:
                shown[name] = to_json(found) if to_json and (
                    found is not None) else found
    return shown


@functools.cache
def _attributes(declared):
    """How each attribute of a WSME type is presented.

    :returns: list of the name, the function that makes it of the value or
        None, and the function that makes JSON of it or None. What a type
        inherits comes first; WSME itself puts it last.
    """
    found = {attribute.name: attribute
             for base in reversed(declared.__mro__)
             for attribute in vars(base).get('_wsme_attributes', ())}
    return [(name, getattr(attribute, 'make', None),
             _to_json(attribute.datatype))
            for name, attribute in found.items()]


def _to_json(datatype):
    """The function that makes JSON of a WSME datatype, or None."""
    if datatype is datetime.datetime:
        return _utc
    if wtypes.iscomplex(datatype):
        return functools.partial(present, datatype)
    if wtypes.isarray(datatype):
        inner = _to_json(datatype.item_type)
        return inner and (lambda values: [inner(each) for each in values])
    return None


def _utc(time):
    """The times of the database are UTC without saying so."""
    return time.replace(tzinfo=datetime.UTC).isoformat()


class Link(wtypes.Base):
    """A link of an answer to something else in the API."""

    href = wtypes.text
    rel = wtypes.text


def _group(reservation):
    """Of which group it is a member; a reservation of none does not say."""
    if reservation.group_uuid is None:
        return wtypes.Unset
    return {'uuid': reservation.group_uuid,
            'policy': reservation.group_policy, 'by': reservation.group_by,
            'domain': reservation.domain}


class Reservation(wtypes.Base):
    """A node held for an instance: a ``values.Reservation``."""

    instance_uuid = wtypes.text
    node_uuid = wtypes.text
    node_name = wtypes.text
    host = wtypes.text
    state = Computed(wtypes.text, lambda found: found.state,
                     ['provision_state'])
    provision_state = wtypes.text
    resource_class = wtypes.text
    project_id = wtypes.text
    user_id = wtypes.text
    request_spec = Computed(
        Json(), lambda found: json.loads(found.request_spec),
        ['request_spec'])
    group = Computed(Json(), _group,
                     ['group_uuid', 'group_policy', 'group_by', 'domain'])
    # It is none where the lease counts no more.
    expires_at = Computed(datetime.datetime, lambda found: found.ends_at,
                          ['expires_at', 'provision_state'])
    created_at = datetime.datetime
    updated_at = datetime.datetime
    links = Computed([Link], None, ['instance_uuid'])


FIELDS = tuple(attribute.name
               for attribute in wtypes.list_attributes(Reservation))

#: What a list shows of each unless it is asked for else, and a group of its
#: members. Request specs may be a thousand times as long as all the rest.
LISTED = tuple(name for name in FIELDS if name != 'request_spec')


def made_of(fields):
    """Return what must be read of a reservation to present some fields.

    :returns: set of the names of attributes of a ``Reservation``.
    """
    return {name for attribute in wtypes.list_attributes(Reservation)
            if attribute.name in fields
            for name in getattr(attribute, 'of', [attribute.name])}


class _OfGroup(wtypes.Base):
    """What every answer says of a group."""

    uuid = wtypes.text
    policy = wtypes.text
    by = wtypes.text
    project_id = wtypes.text
    created_at = datetime.datetime


class Group(_OfGroup):
    """Reservations with one policy: a ``membership.Group``."""

    reservations = [Reservation]
    # Of more of them, where one answer has no room for all.
    next = wtypes.text


def _domains(group):
    """How many members are in each domain, most members first."""
    return [{'value': value, 'nodes': nodes} for value, nodes in sorted(
        group.domains.items(), key=lambda item: (-item[1], str(item[0])))
    ] if group.by else []


class ListedGroup(_OfGroup):
    """How many members a group has, and where: a ``membership.Group``."""

    members = Computed(int, lambda group: group.domains.total())
    domains = Computed(Json(), _domains)


class Host(wtypes.Base):
    """Which process is a compute host: a ``hosts.Lease``."""

    host = wtypes.text
    holder = wtypes.text
    live = bool
    expires_at = datetime.datetime
    created_at = datetime.datetime
    updated_at = datetime.datetime
    since = datetime.datetime
    standbys = int
    reservations = int


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
    reserved = int
    taken = int
    out_of_service = int
    claimable = int
    # Only where the request names a host.
    held = int


class DryRun(wtypes.Base):
    """What a request would find: what ``dry_runs.dry_run`` returns."""

    matching_nodes = int
    profiles = [Profile]
    explanation = Json()
    # Of a group that is to be held at once.
    members = Json()
    domains = Json()
    # Where nothing else is in the way.
    quota = Json()
    # Keys of extra specs that are not compared with nodes, if there are any.
    ignored = Json()
