# SPDX-License-Identifier: Apache-2.0
"""Facts of nodes, and conditions on nodes and reservations."""

from collections.abc import Iterable
from typing import Any

from oslo_utils import uuidutils
import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql.compiler import SQLCompiler

from ironic_reservations import conf
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
notices = models.notices
pools = models.pools
pool_nodes = models.pool_nodes

#: The row of a pool's node is of the node: see NOTICE_ON_NODE.
IN_POOL = sa.and_(nodes.c.id == pool_nodes.c.node_id,
                  nodes.c.uuid == pool_nodes.c.node_uuid)

#: The pool has not expired. From ``expires_at`` on it does not exist for any
#: request.
POOL_LIVE = sa.or_(pools.c.expires_at.is_(None),
                   pools.c.expires_at > functions.utcnow())

#: The node is in the pool.
POOL_OF_NODE = sa.and_(IN_POOL, pools.c.id == pool_nodes.c.pool_id,
                       POOL_LIVE)

#: The node is in a pool.
POOLED = sa.exists().where(POOL_OF_NODE).correlate(nodes)

#: The project that has the node in a pool, or NULL.
POOL_PROJECT = sa.select(pools.c.project_id).where(
    POOL_OF_NODE).correlate(nodes).scalar_subquery()

#: All columns that matching reads, by the names of ``matching.Node``.
FACTS = (nodes.c.id, nodes.c.uuid, nodes.c.name, nodes.c.properties,
         nodes.c.resource_class, nodes.c.conductor_group, nodes.c.shard,
         nodes.c.owner, nodes.c.lessee, POOL_PROJECT.label('pool_project_id'),
         functions.trait_set().label('traits'))

#: The facts that make a hardware profile: no request can tell apart two nodes
#: with equal values of all of them.
PROFILE: dict[str, sa.ColumnElement[Any]] = {
    **{name: nodes.c[name] for name in
       ('resource_class', 'conductor_group', 'shard', 'owner', 'lessee')},
    **{name: functions.property_text(nodes.c.properties,
                                     sa.literal_column(f"'$.{name}'"))
       for name in ('memory_mb', 'cpus', 'local_gb', 'cpu_arch',
                    'capabilities')},
    'traits': functions.trait_set(),
    'irregular_properties': functions.irregular_properties(nodes.c.properties),
}

UNLOCKED = nodes.c.reservation.is_(None)

#: The health of the node; NULL if Ironic has no such column.
HEALTH = functions.optional(nodes.c.health)

#: The node's health is one of [reservations] refuse_health, which is read when
#: a statement is executed. COALESCE keeps SQLAlchemy from making a NOT IN of
#: its negation: in a statement with both, it expands an empty list as that of
#: the last one.
UNHEALTHY = sa.func.coalesce(HEALTH.in_(sa.bindparam(
    'refuse_health', expanding=True, type_=sa.String,
    callable_=lambda: conf.CONF.reservations.refuse_health)), sa.false())

#: Ironic has an unfinished action for the node.
DEFERRED = functions.if_present(
    sa.exists().where(
        models.deferred_actions.c.node_id == nodes.c.id,
        sa.func.coalesce(models.deferred_actions.c.state, '').not_in(
            ('COMPLETED', 'FAILED'))).correlate(nodes),
    sa.literal_column('deferred_actions.state'))

#: Ironic reports a problem with the node's health.
AILING = sa.func.coalesce(HEALTH, 'OK') != 'OK'

#: The notice belongs to the node. SQLite gives the id of a deleted node to a
#: new one, so the UUID is also compared.
NOTICE_ON_NODE = sa.and_(nodes.c.id == notices.c.node_id,
                         nodes.c.uuid == notices.c.node_uuid)

#: The notice is planned or open. The state of a notice is never stored.
NOTICE_ENDS_LATER = sa.or_(notices.c.ends_at.is_(None),
                           notices.c.ends_at > functions.utcnow())
_STARTED = sa.or_(
    notices.c.starts_at <= functions.utcnow(),
    # By the clock of the server that wrote it; that of another member of a
    # cluster may be behind.
    notices.c.starts_at <= sa.func.coalesce(notices.c.updated_at,
                                            notices.c.created_at))
NOTICE_PLANNED = sa.and_(NOTICE_ENDS_LATER, sa.not_(_STARTED))
NOTICE_OPEN = sa.and_(NOTICE_ENDS_LATER, _STARTED)

#: The node has a planned or open notice.
NOTICED = sa.exists().where(NOTICE_ON_NODE, NOTICE_ENDS_LATER).correlate(nodes)

#: The notice keeps new reservations off its node.
IS_CORDON = sa.and_(notices.c.cordon == sa.true(), NOTICE_OPEN)

#: The node has such a notice.
CORDONED = sa.exists().where(NOTICE_ON_NODE, IS_CORDON).correlate(nodes)

#: Ironic has no reason to keep instances off the node, except that one may
#: already have it. This is its rule for allocations, and "not retired".
ALLOWED = (
    nodes.c.provision_state == 'available',
    nodes.c.allocation_id.is_(None),
    sa.or_(nodes.c.maintenance.is_(None), nodes.c.maintenance == sa.false()),
    sa.or_(nodes.c.retired.is_(None), nodes.c.retired == sa.false()),
    nodes.c.power_state.is_not(None),
    nodes.c.parent_node.is_(None),
    sa.not_(UNHEALTHY),
    sa.not_(DEFERRED),
)

#: The node can be held, except that an instance may already have it.
ELIGIBLE = (*ALLOWED, sa.not_(CORDONED))


def carries(instance_uuid: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a node carries an instance.

    No index on ``instance_uuid`` supports it: the statement must find the node
    in another way, or use ``is_uuid`` as well.

    :param instance_uuid: UUID in lower case, or an expression.
    """
    condition: sa.ColumnElement[bool] = (
        sa.func.lower(nodes.c.instance_uuid) == instance_uuid)
    return condition


def list_spellings(uuid: str) -> list[str]:
    """Return the spellings in which Ironic may have stored a UUID.

    Ironic stores UUIDs as its clients sent them. With these spellings, an
    index finds a UUID even if the database distinguishes case.
    """
    return list(dict.fromkeys((uuid, uuid.lower(), uuid.upper())))


def is_uuid(column: sa.Column[Any], *uuids: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column of Ironic has one of some UUIDs."""
    return column.in_([spelling for uuid in uuids
                       for spelling in list_spellings(uuid)])


#: The node carries the reservation's instance; otherwise the row is stale. Our
#: table has UUIDs in lower case.
CARRIED = sa.and_(nodes.c.id == reservations.c.node_id,
                  carries(reservations.c.instance_uuid))


class UpdateNode(sa.Update):
    """An UPDATE of a node that changes its ``instance_uuid``.

    It also clears ``instance_name`` where Ironic has that column, because the
    next holder of the node must not read the name of the previous instance.
    """

    inherit_cache = True


@compiler.compiles(UpdateNode)
def _compile_update_node(statement: UpdateNode, compiler: SQLCompiler,
                         **kw: Any) -> str:
    if not functions.is_missing(nodes.c.instance_name, compiler):
        statement = statement.values(instance_name=sa.null())
    return compiler.visit_update(statement, **kw)


def _has_row(table: sa.Table,
             *where: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition that the node has a row in a table.

    It is not an EXISTS, because MariaDB would turn that into a join with the
    whole table.

    ``correlate`` makes it the node of the outermost statement. Otherwise
    SQLAlchemy would add ``nodes`` to a subquery of a subquery, which would
    then match rows of any node, and which MySQL refuses in an UPDATE of
    ``nodes`` (error 1093).
    """
    return sa.select(sa.literal_column('1')).where(
        table.c.node_id == nodes.c.id, *where
    ).limit(1).correlate(nodes).scalar_subquery().is_not(None)


def is_in_pool(project_id: sa.BindParameter[str],
               other_projects: bool = False) -> sa.ColumnElement[bool]:
    """Return the condition that the node is in a pool of a project.

    :param other_projects: in one of any other project instead.
    """
    has_project = functions.same_text(pools.c.project_id, project_id)
    return _has_row(pool_nodes, POOL_OF_NODE,
                    sa.not_(has_project) if other_projects else has_project)


def _has_text(column: sa.Column[Any], key: str) -> sa.ColumnElement[bool]:
    """Return whether a key of a JSON object has a text that is not empty.

    The key may also occur inside a value, so the JSON is parsed, but only if
    it is plain: other JSON can be an error in an UPDATE, and is searched.
    Ironic writes a space after a colon, other programs may not.
    """
    text = sa.func.replace(functions.as_bytes(column), ' ', '')
    value = functions.property_text(column, sa.literal_column(f"'$.{key}'"))
    return sa.and_(
        sa.func.instr(text, f'"{key}":"') > 0,
        sa.case((functions.is_plain(column), value != ''),
                else_=sa.func.instr(text, f'"{key}":""') == 0))


def _has_vif(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition that a port or port group has a tenant's VIF.

    Ironic may leave its own keys, such as ``cleaning_vif_port_id``, which no
    API removes.
    """
    return sa.or_(_has_text(table.c.internal_info, 'tenant_vif_port_id'),
                  _has_text(table.c.extra, 'vif_port_id'))


def _mentions_vif(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return a condition that is true if ``_has_vif`` is true.

    It is also true for Ironic's own keys.
    """
    return sa.or_(*(
        sa.func.instr(column, sa.literal_column("'vif_port_id'")) > 0
        for column in (table.c.internal_info, table.c.extra)))


#: Rows of other tables that prepare their node for a tenant, by the table.
PREPARATIONS: dict[sa.Table, sa.ColumnElement[bool]] = {
    models.ports: _has_vif(models.ports),
    models.portgroups: _has_vif(models.portgroups),
    models.volume_targets: sa.true(),
}


def has_instance_info(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a node has an ``instance_info``.

    A JSON object that is not empty has a quotation mark.

    :param table: ``nodes`` or an alias of it.
    """
    return sa.func.coalesce(sa.func.instr(table.c.instance_info, '"'), 0) > 0


#: The node carries something of a tenant.
PREPARED = sa.or_(has_instance_info(nodes), *(
    _has_row(table, condition) for table, condition in PREPARATIONS.items()))

#: A port or port group of the node may have a VIF.
MENTIONS_VIF = sa.or_(*(_has_row(table, _mentions_vif(table))
                        for table in (models.ports, models.portgroups)))

#: ``PREPARED``, or ``MENTIONS_VIF``. It parses no JSON: to read the rest of
#: ``PREPARED`` takes MariaDB a quarter of the time of a hold's UPDATE.
MAYBE_PREPARED = sa.or_(has_instance_info(nodes), MENTIONS_VIF,
                        _has_row(models.volume_targets))

#: The node can be held. ``instance_uuid`` is NULL earlier, because tear-down
#: clears it before the node is available again.
FREE = (nodes.c.instance_uuid.is_(None), *ELIGIBLE, sa.not_(PREPARED))

#: Work has begun on the held node. Its reservation does not expire, because a
#: node that is partly prepared for one tenant must not go to another.
TOUCHED = sa.or_(
    sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    nodes.c.reservation.is_not(None), PREPARED,
)

#: The reservation is past its lease.
PAST_LEASE = reservations.c.expires_at <= functions.utcnow()

#: The reservation has expired: it is past its lease, and no work has begun on
#: its node. No read returns it, and the node counts as free.
EXPIRED = sa.and_(CARRIED, PAST_LEASE, ~TOUCHED)

#: The reservation has not expired.
LIVE = sa.or_(reservations.c.expires_at.is_(None), ~PAST_LEASE, TOUCHED)

#: An instance may claim the reservation: see ``claims``.
CLAIMABLE = sa.and_(CARRIED, LIVE, reservations.c.host.is_(None))

#: The reservation with the id ``:claimed`` is claimable. By its primary key a
#: database would read it before it waits for the node's row; at READ COMMITTED
#: the statement would then not see a cordon that is committed during the wait.
CLAIMABLE_BY_ID = sa.exists().where(
    CLAIMABLE, sa.func.coalesce(reservations.c.id, 0) == sa.bindparam(
        'claimed', type_=sa.Integer)).correlate(nodes)


def select_old(time: sa.Column[Any], days: int, limit: int) -> sa.Select[Any]:
    """Select the ids of rows whose time is some days ago."""
    return sa.select(time.table.c.id).where(
        time < functions.seconds_from_now(-days * 86400)).limit(limit)


def delete_ids(column: sa.Column[Any], ids: Iterable[int]) -> sa.Delete:
    """Delete the rows with some ids from the table of a column."""
    table: Any = column.table
    return sa.delete(table).where(table.c.id.in_(ids))


def is_node(ident: str, uuid: sa.Column[Any] = nodes.c.uuid,
            name: sa.Column[Any] = nodes.c.name) -> sa.ColumnElement[bool]:
    """Return the condition that a node has this UUID or name.

    :param uuid: column of UUIDs.
    :param name: column of names.
    """
    # No name is a UUID.
    return (is_uuid(uuid, ident) if uuidutils.is_uuid_like(ident)
            else equals_text(name, ident))


def equals_text(column: sa.Column[Any],
                text: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a column has exactly this text.

    The first comparison uses the column's index. The second is needed even for
    our tables, because utf8mb4_bin ignores trailing spaces.

    :param text: a text or an expression.
    """
    same = functions.same_text(column, text)
    if column.table is nodes and isinstance(text, str) and not _is_bmp(text):
        return same
    return sa.and_(column == text, same)


def _is_bmp(text: str) -> bool:
    """Return whether MySQL's utf8mb3 has all characters of a text.

    In an old cloud, Ironic's columns have that character set. MySQL refuses to
    compare them with other characters (error 3854); MariaDB does not.
    """
    return all(character <= '\uffff' for character in text)


def is_named(candidates: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a node's UUID or name is a candidate.

    The database may ignore the case of names. Names of nodes in Ironic have
    only letters, digits and ``-._~``, and are no UUIDs.
    """
    names = list(filter(_is_bmp, candidates))
    uuids = set(filter(uuidutils.is_uuid_like, names))
    conditions = []
    if uuids:
        conditions.append(is_uuid(nodes.c.uuid, *uuids))
    if len(uuids) < len(names):
        conditions.append(nodes.c.name.in_(
            [name for name in names if name not in uuids]))
    return sa.or_(sa.false(), *conditions)
