# SPDX-License-Identifier: Apache-2.0
"""What the queries of requests may contain: a JSON schema for each call."""

from ironic_reservations import constants
from ironic_reservations.api import schema


def _query(**properties):
    """The Validator of a query."""
    return schema.Validator(schema.closed(properties), 'query')


find = _query(
    host=schema.name,
    node=schema.name,
    project_id=schema.name,
    resource_class=schema.name,
    state={'enum': list(constants.STATES)},
    fields=schema.name,
    limit=schema.positive,
    marker=schema.marker,
    sort_key=schema.sort_key,
    sort_dir=schema.sort_dir,
)

create = _query(dry_run=schema.boolean, adopt=schema.boolean)

#: The query of POST ?adopt=true, for a node that carries its instance.
adopt = _query(adopt=schema.boolean)

show = _query(fields=schema.name)

#: The query of PATCH and DELETE of one reservation.
write = _query(host=schema.name, holder=schema.uuid)

capacity = _query(
    host=schema.name,
    resource_class=schema.name,
    trait={**schema.trait, 'type': ['string', 'array'],
           'items': schema.trait},
    conductor_group=schema.text,
    shard=schema.name,
    by={**schema.row_key, 'type': ['string', 'array'],
        'items': schema.row_key},
    limit=schema.positive,
    marker=schema.marker,
)

find_groups = _query(limit=schema.positive, marker=schema.marker)

#: The query of POST /groups.
dry_run = _query(dry_run=schema.boolean)

show_group = _query(marker=schema.marker)

find_hosts = _query(host=schema.name, limit=schema.positive,
                    marker=schema.name)

give_up_host = _query(holder=schema.uuid)

#: Of calls that take no parameters.
nothing = _query()
