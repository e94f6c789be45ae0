# SPDX-License-Identifier: Apache-2.0
"""Handles requests for pools: /v1/reservations/pools."""

import hashlib
import json
from typing import Any

from oslo_utils import uuidutils
from wsme import types as wtypes

from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.api import markers
from ironic_reservations.api import patches
from ironic_reservations.api import requests
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import schema
from ironic_reservations.api import specs
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import pool_nodes
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import quotas
from ironic_reservations.shared import constants

LIST_QUERY = schema.query_validator(
    project_id=schema.IDENT, node=schema.IDENT, limit=schema.POSITIVE,
    marker=schema.MARKER)
SHOW_QUERY = schema.query_validator(marker=schema.MARKER)
CREATE_QUERY = schema.query_validator(dry_run=schema.BOOLEAN)

#: The numbers of the nodes of a pool.
SUMMARY = ('total', *constants.NODE_STATES, 'healthy')


class PoolNode(wtypes.Base):
    """A node of a pool; see ``values.PoolNode``."""

    uuid = wtypes.text
    name = responses.NULLABLE_TEXT
    resource_class = responses.NULLABLE_TEXT
    domain = responses.Json(**responses.DOMAIN)
    segment = responses.Json(type=['integer', 'null'])
    joined_at = responses.Time()
    reason = responses.Json(enum=list(constants.POOL_REASONS))
    replaces = responses.NULLABLE_TEXT
    state = responses.Json(enum=list(constants.NODE_STATES))
    health = responses.NULLABLE_TEXT
    instance_uuid = responses.NULLABLE_TEXT
    notices = [resources.Notice]
    more_notices = responses.COUNT


class Pool(wtypes.Base):
    """A pool; see ``values.Pool``."""

    uuid = wtypes.text
    project_id = wtypes.text
    policy = responses.Json(**schema.POLICY)
    by = responses.NULLABLE_TEXT
    # Only of a pool with segments; otherwise null.
    levels = responses.Json(type=['array', 'null'], items=schema.LEVEL)
    description = responses.settable_text()
    expires_at = responses.SETTABLE_TIME
    created_at = responses.Time()
    updated_at = responses.NULLABLE_TIME
    summary = responses.Json(**responses.whole_object(
        **dict.fromkeys(SUMMARY, responses.COUNT.schema)))
    # Not in a list.
    request = responses.Json(type='object', properties=specs.omit_keys(
        *specs.ENVELOPE, 'group'))
    nodes = [PoolNode]
    next = wtypes.text


#: Schemas of the keys that PATCH can change.
CHANGEABLE = responses.list_settable(Pool)

CREATE_BODY = schema.Validator(schema.closed_object({
    'uuid': schema.UUID_OR_NULL,
    'project_id': schema.IDENT,
    # _read_request() checks [reservations] max_members.
    'members': {**schema.INTEGER, 'type': 'integer', 'minimum': 1},
    **specs.NODES,
    **CHANGEABLE,
}, required=['members', 'project_id', 'request']), 'body')

PATCH_BODY = patches.make_body(CHANGEABLE)

PATCH_VALUES = patches.make_values(CHANGEABLE)

NODES_BODY = schema.Validator(schema.closed_object(
    dict.fromkeys(('node', 'replaces'), schema.IDENT_OR_NULL)), 'body')


def create_pool() -> dict[str, Any]:
    """POST /v1/reservations/pools"""
    query, caller = requests.read_query(CREATE_QUERY), requests.get_caller()
    body = requests.read_body(CREATE_BODY)
    caller.authorize('pools', values.Reservation(
        project_id=body['project_id']))
    matcher, request = _read_request(caller, body)
    if requests.is_true(query, 'dry_run'):
        pools.check_expiry(request.expires_at)
        return resources.present_dry_run(dry_runs.dry_run(
            matcher, quotas.Limits(), request.group, request.members))
    pool, is_new = pools.create_pool(matcher, request)
    responses.set_created(is_new, responses.make_url(f'/pools/{pool.uuid}'))
    return _present(caller, pool) | responses.show_ignored(matcher.spec)


def _read_request(caller: context.RequestContext, body: dict[str, Any]
                  ) -> tuple[matching.Matcher, pools.Request]:
    """Return the Matcher of the nodes in a body, and the request.

    :raises: InvalidInput, NotAuthorized.
    """
    project_id, members = body['project_id'], int(body['members'])
    limit = conf.CONF.reservations.max_members
    if members > limit:
        raise exception.InvalidInput(
            'members', f'must be at most {limit}, see [reservations] '
                       f'max_members; got {members}')
    reach = caller.get_reach('create_restricted')
    spec = body['request']
    if reach.is_limited:
        # Replacements satisfy it, too, for any caller.
        spec = {**spec, 'ownership': spec.get('ownership') or 'project'}
    with requests.prefix_field('request'):
        matcher = _make_matcher(reach, project_id, spec)
    uuid = (body.get('uuid') or uuidutils.generate_uuid()).lower()
    group = specs.read_group(body, uuid, project_id)
    if body.get('levels') is not None:
        group = specs.read_levels(body['levels'], group, members)
    identity = [project_id, members, group.policy, group.by,
                group.segment_levels, matcher.spec.canonical]
    return matcher, pools.Request(
        group, members, requests.read_time('expires_at', body),
        hashlib.sha256(json.dumps(identity).encode()).hexdigest())


def _make_matcher(reach: values.Ownership, project_id: str,
                  spec: dict[str, Any]) -> matching.Matcher:
    """Return the Matcher of nodes that are to join a pool.

    :param reach: that of the caller.
    :param project_id: project of the pool.
    :raises: NotAuthorized, InvalidInput.
    """
    return specs.make_matcher(
        reach, project_id, spec, matching.to_join(project_id))


def list_pools() -> dict[str, Any]:
    """GET /v1/reservations/pools"""
    query, caller = requests.read_query(LIST_QUERY), requests.get_caller()
    caller.authorize('list')
    reach = caller.get_reach('list_all')
    limit = responses.pop_limit(query)
    after = markers.decode(
        query.pop('marker', None), 'pools', [int],
        lambda uuid: pools.find_position(uuid, reach), 'the UUID of a pool')
    rows = pools.find_pools(query, reach, after[0] if after else None,
                            limit + 1)
    return responses.make_page(
        'pools', rows, limit, _present_alone,
        lambda pool: markers.encode('pools', [pool.id]), '/pools')


def show_pool(uuid: str) -> dict[str, Any]:
    """GET /v1/reservations/pools/{uuid}"""
    marker = requests.read_query(SHOW_QUERY).get('marker')
    caller = requests.get_caller()
    return _present(caller, pools.get_pool(
        uuid, requests.make_authorizer(caller, 'get')), marker)


def update_pool(uuid: str) -> dict[str, Any]:
    """PATCH /v1/reservations/pools/{uuid}"""
    requests.read_query(schema.NO_QUERY)
    caller = requests.get_caller()
    changes = patches.read_values(
        requests.read_body(PATCH_BODY), PATCH_VALUES)
    if 'expires_at' in changes:
        changes['expires_at'] = requests.read_time('expires_at', changes)
    return _present(caller, pools.update_pool(
        uuid, changes, requests.make_authorizer(caller, 'pools')))


def delete_pool(uuid: str) -> None:
    """DELETE /v1/reservations/pools/{uuid}"""
    requests.read_query(schema.NO_QUERY)
    pools.delete_pool(uuid, requests.make_authorizer(
        requests.get_caller(), 'pools'))
    responses.set_no_content()


def change_nodes(uuid: str) -> dict[str, Any]:
    """POST /v1/reservations/pools/{uuid}/nodes: add or replace a node."""
    requests.read_query(schema.NO_QUERY)
    caller = requests.get_caller()
    body = requests.read_body(NODES_BODY)
    node, replaces = body.get('node'), body.get('replaces')
    reach = caller.get_reach('create_restricted')
    if (node is None) == (replaces is None):
        raise exception.InvalidInput(
            'node', 'is required, or replaces instead; not both')
    if node is not None:
        return _present(caller, pool_nodes.add_node(
            uuid, node, requests.make_authorizer(caller, 'pools'),
            reach))
    pool = pools.get_pool(
        uuid, requests.make_authorizer(caller, 'pools_replace'))
    # The operator has chosen these nodes for the project, which may replace
    # one even if it cannot see others.
    matcher = _make_matcher(values.ALL, str(pool.project_id),
                            json.loads(pool.request_spec))
    try:
        return _present(caller, pool_nodes.replace_node(
            pool, replaces, matcher, must_be_idle=reach.is_limited))
    except exception.NoMatchingNode as error:
        if not reach.is_limited:
            raise
        # The explanation counts nodes that the project must not see.
        raise exception.NoMatchingNode(
            verdicts.Verdict(0, verdicts.Explanation(0, {}),
                             retry=error.verdict.retry),
            f'Node {replaces} cannot be replaced: no machine is free there '
            f'that fits.')


def remove_node(uuid: str, node: str) -> None:
    """DELETE /v1/reservations/pools/{uuid}/nodes/{node}"""
    requests.read_query(schema.NO_QUERY)
    pool_nodes.remove_node(uuid, node, requests.make_authorizer(
        requests.get_caller(), 'pools_replace'))
    responses.set_no_content()


def _present_alone(pool: values.Pool, **more: Any) -> dict[str, Any]:
    """Return a pool without its request and nodes as JSON."""
    attributes = {name: value for name, value in vars(pool).items()
                  if name not in ('nodes', 'summary')}
    return responses.make_json(Pool, attributes | {
        'levels': json.loads(pool.segment_levels or 'null'),
        'summary': {name: pool.summary[name] for name in SUMMARY}} | more)


def _present(caller: context.RequestContext, pool: values.Pool,
             marker: str | None = None) -> dict[str, Any]:
    """Return a pool and a page of its nodes as JSON.

    :param marker: marker of the last node of the previous page.
    :raises: InvalidInput if the marker's node is not in the pool.
    """
    reach = caller.get_reach('notices')
    by_node = notice_lookup.find_on_nodes(
        [node.id for node in pool.nodes], reach)
    levels = group_policy.find_levels(pool)

    def show(node: values.PoolNode) -> dict[str, Any]:
        return responses.make_json(PoolNode, {
            **vars(node),
            'domain': levels.show_domain(levels.split_domain(node.domain)),
            'instance_uuid': (node.instance_uuid if caller.may('get', node)
                              else None),
        }) | resources.present_on_node(
            by_node.get(node.id, values.NodeNotices()), reach)

    return responses.add_page(
        _present_alone(pool, request=json.loads(pool.request_spec)), 'nodes',
        pool.nodes, show, lambda node: (node.uuid, node.id), marker, '/pools',
        'the UUID of a node of the pool')
