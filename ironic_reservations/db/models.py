# SPDX-License-Identifier: Apache-2.0
"""Our tables, and the columns of Ironic's tables that we use."""

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

# Ironic's tables have separate metadata, because Ironic creates and migrates
# them. ``engine`` checks at the start that the database has these columns.
ironic = sa.MetaData()

#: Key in the ``info`` of a table or column that some releases of Ironic lack.
#: Statements refer to such a column by ``functions.optional``.
OPTIONAL = 'optional'

nodes = sa.Table(
    'nodes', ironic,
    sa.Column('id', sa.Integer, primary_key=True),
    sa.Column('uuid', sa.String(36)),
    sa.Column('name', sa.String(255)),
    sa.Column('instance_uuid', sa.String(36)),
    sa.Column('provision_state', sa.String(15)),
    sa.Column('power_state', sa.String(15)),
    sa.Column('maintenance', sa.Boolean),
    sa.Column('retired', sa.Boolean),
    # Host name of the conductor that has the node's lock.
    sa.Column('reservation', sa.String(255)),
    sa.Column('allocation_id', sa.Integer),
    sa.Column('parent_node', sa.String(36)),
    sa.Column('resource_class', sa.String(80)),
    sa.Column('conductor_group', sa.String(255)),
    sa.Column('shard', sa.String(255)),
    sa.Column('owner', sa.String(255)),
    sa.Column('lessee', sa.String(255)),
    # JSON, read and compared as text.
    sa.Column('properties', sa.Text),
    sa.Column('instance_info', sa.Text),
    sa.Column('updated_at', sa.DateTime),
    sa.Column('health', sa.String(32), info={OPTIONAL: True}),
    # Since API 1.104. See expressions.UpdateNode.
    sa.Column('instance_name', sa.String(255), info={OPTIONAL: True}),
)

node_traits = sa.Table(
    'node_traits', ironic,
    sa.Column('node_id', sa.Integer, primary_key=True),
    sa.Column('trait', sa.String(255), primary_key=True),
)


ports, portgroups = (
    sa.Table(
        name, ironic,
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36)),
        sa.Column('node_id', sa.Integer),
        sa.Column('internal_info', sa.Text),
        sa.Column('extra', sa.Text),
    ) for name in ('ports', 'portgroups'))

volume_targets = sa.Table(
    'volume_targets', ironic,
    sa.Column('id', sa.Integer, primary_key=True),
    sa.Column('uuid', sa.String(36)),
    sa.Column('node_id', sa.Integer),
)

node_history = sa.Table(
    'node_history', ironic,
    sa.Column('id', sa.Integer, primary_key=True),
    sa.Column('node_id', sa.Integer),
    sa.Column('severity', sa.String(255)),
    sa.Column('created_at', sa.DateTime),
    sa.Column('event_type', sa.String(255)),
    # The node's provision state at that time.
    sa.Column('state', sa.String(255), info={OPTIONAL: True}),
)

# Actions that Ironic runs between two steps, without the node's lock. Planned
# for a release after 39.
deferred_actions = sa.Table(
    'deferred_actions', ironic,
    sa.Column('node_id', sa.Integer),
    sa.Column('state', sa.String(255)),
    info={OPTIONAL: True},
)


# This collation distinguishes case and accents, as all our other code does.
_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


class Base(orm.DeclarativeBase):
    pass


class Reservation(Base):
    """A node held for an instance.

    It is stale unless the node ``node_id`` carries ``instance_uuid``. There is
    no foreign key to Ironic's tables: an extension must never make one of
    Ironic's statements fail.
    """

    __tablename__ = 'reservations'
    __table_args__ = (
        sa.UniqueConstraint('instance_uuid',
                            name='uniq_reservations0instance_uuid'),
        sa.UniqueConstraint('node_id', name='uniq_reservations0node_id'),
        sa.Index('reservations_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_host_idx', 'host'),
        sa.Index('reservations_project_id_idx', 'project_id'),
        sa.Index('reservations_expires_at_idx', 'expires_at'),
        sa.Index('reservations_group_id_idx', 'group_id'),
        {
            # Ids must not be reused: a late deletion of a stale row would
            # delete the row with the same id.
            'sqlite_autoincrement': True,
            **_MYSQL,
        },
    )

    id = sa.Column(sa.Integer, primary_key=True)
    instance_uuid = sa.Column(sa.String(36), nullable=False)
    node_id = sa.Column(sa.Integer, nullable=False)
    node_uuid = sa.Column(sa.String(36), nullable=False)
    host = sa.Column(sa.String(255))
    project_id = sa.Column(sa.String(255))
    user_id = sa.Column(sa.String(255))
    request_spec = sa.Column(
        sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb'),
        nullable=False)
    description = sa.Column(sa.String(255))
    expires_at = sa.Column(sa.DateTime)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)
    # Its group, and the domain of its node at the time of the hold: see
    # group_policy.Levels.join_domain.
    group_id = sa.Column(sa.Integer)
    domain = sa.Column(sa.Text)
    # Number of its segment, in a group that has segments.
    segment = sa.Column(sa.Integer)


class Group(Base):
    """A group of reservations that share a placement policy.

    Its members are the live reservations with its id. It is deleted in the
    transaction that deletes the last row of a member.
    """

    __tablename__ = 'reservations_groups'
    __table_args__ = (
        sa.UniqueConstraint('uuid', name='uniq_reservations_groups0uuid'),
        sa.Index('reservations_groups_project_id_idx', 'project_id'),
        {
            # A new group must not get the members of a deleted one.
            'sqlite_autoincrement': True,
            **_MYSQL,
        },
    )

    id = sa.Column(sa.Integer, primary_key=True)
    uuid = sa.Column(sa.String(36), nullable=False)
    # One of constants.POLICIES, and the key of the domains; both NULL for
    # members that have nothing in common.
    policy = sa.Column(sa.String(16))
    by = sa.Column(sa.String(300))
    project_id = sa.Column(sa.String(255))
    description = sa.Column(sa.String(255))
    # Incremented whenever a member joins or leaves. Adding a member requires
    # the value that was read, so one of two concurrent holds must start over.
    generation = sa.Column(sa.BigInteger, nullable=False)
    # JSON list of the levels, and the number of segments; NULL for a group
    # without segments.
    segment_levels = sa.Column(sa.Text)
    segments = sa.Column(sa.Integer)
    # SHA-256 in hexadecimal of the request that held all members at once, for
    # recognizing its repetitions.
    request_digest = sa.Column(sa.String(64))
    created_at = sa.Column(sa.DateTime, nullable=False)


class Project(Base):
    """A project whose reservations are limited.

    Requests that hold a node for it write this row before they count the
    project's reservations, and so wait for each other.
    """

    __tablename__ = 'reservations_projects'
    __table_args__ = _MYSQL

    project_id = sa.Column(sa.String(255), primary_key=True)
    # Incremented by every write: see HostLease.serial.
    serial = sa.Column(sa.BigInteger, nullable=False)


class HostLease(Base):
    """The host lease of a process: which host it serves, and until when."""

    __tablename__ = 'reservations_hosts'
    __table_args__ = _MYSQL

    host = sa.Column(sa.String(255), primary_key=True)
    holder = sa.Column(sa.String(36), nullable=False)
    expires_at = sa.Column(sa.DateTime, nullable=False)
    # Incremented by every write. A Galera cluster does not replicate an UPDATE
    # that changes nothing, and so could not detect conflicts between two.
    serial = sa.Column(sa.BigInteger, nullable=False)
    # When this holder acquired the lease, and when it last renewed it.
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)


class Standby(Base):
    """A standby process that waits for a host lease.

    Each refused PUT writes or renews a row. The table is separate, because a
    write to the host lease would wait for the writes of its holder, and they
    for it.
    """

    __tablename__ = 'reservations_standbys'
    __table_args__ = _MYSQL

    host = sa.Column(sa.String(255), primary_key=True)
    holder = sa.Column(sa.String(36), primary_key=True)
    expires_at = sa.Column(sa.DateTime, nullable=False)


class Notice(Base):
    """What is wrong with a node, or will be done to it.

    The notices of one request share its ``uuid``. There is no foreign key to
    Ironic's tables, as in ``Reservation``; notices outlive their nodes.
    """

    __tablename__ = 'reservations_notices'
    __table_args__ = (
        sa.UniqueConstraint('uuid', 'number',
                            name='uniq_reservations_notices0uuid0number'),
        sa.Index('reservations_notices_node_id_idx', 'node_id'),
        sa.Index('reservations_notices_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_notices_project_id_idx', 'project_id'),
        sa.Index('reservations_notices_ends_at_idx', 'ends_at'),
        {
            # Pages of a list begin after an id.
            'sqlite_autoincrement': True,
            **_MYSQL,
        },
    )

    id = sa.Column(sa.Integer, primary_key=True)
    uuid = sa.Column(sa.String(36), nullable=False)
    # 0, 1, ... in a request. Each has a 0, so the unique key lets only one of
    # two requests with a UUID create notices.
    number = sa.Column(sa.Integer, nullable=False)
    # SQLite gives the id of a deleted node to a new one, so the UUID counts,
    # too. The name is the node's at the time of the request.
    node_id = sa.Column(sa.Integer, nullable=False)
    node_uuid = sa.Column(sa.String(36), nullable=False)
    node_name = sa.Column(sa.String(255))
    # One of constants.NOTICE_KINDS.
    kind = sa.Column(sa.String(16), nullable=False)
    cordon = sa.Column(sa.Boolean, nullable=False)
    starts_at = sa.Column(sa.DateTime, nullable=False)
    ends_at = sa.Column(sa.DateTime)
    due_at = sa.Column(sa.DateTime)
    latest_start = sa.Column(sa.DateTime)
    # When a project has chosen starts_at.
    scheduled_at = sa.Column(sa.DateTime)
    category = sa.Column(sa.String(64))
    description = sa.Column(sa.String(255))
    ticket = sa.Column(sa.String(255))
    action = sa.Column(sa.String(255))
    # Project of the report of a holder; NULL for a notice of an operator, or
    # of the project that owns the node.
    project_id = sa.Column(sa.String(255))
    # Whether a compute service has recorded a failed build: see notices.
    is_failed_build = sa.Column(sa.Boolean, nullable=False)
    created_by = sa.Column(sa.String(255))
    # SHA-256 in hexadecimal of the request, for recognizing its repetitions.
    request_digest = sa.Column(sa.String(64), nullable=False)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)


class Pool(Base):
    """Nodes that only one project may reserve, until a date.

    From ``expires_at`` on, it does not exist for any request. It is deleted
    with its last node.
    """

    __tablename__ = 'reservations_pools'
    __table_args__ = (
        sa.UniqueConstraint('uuid', name='uniq_reservations_pools0uuid'),
        sa.Index('reservations_pools_project_id_idx', 'project_id'),
        sa.Index('reservations_pools_expires_at_idx', 'expires_at'),
        {
            # A new pool must not get the nodes of a deleted one.
            'sqlite_autoincrement': True,
            **_MYSQL,
        },
    )

    id = sa.Column(sa.Integer, primary_key=True)
    uuid = sa.Column(sa.String(36), nullable=False)
    project_id = sa.Column(sa.String(255), nullable=False)
    # As in Group.
    policy = sa.Column(sa.String(16))
    by = sa.Column(sa.String(300))
    segment_levels = sa.Column(sa.Text)
    description = sa.Column(sa.String(255))
    # As in Reservation. Replacements satisfy it, too.
    request_spec = sa.Column(
        sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb'),
        nullable=False)
    # SHA-256 in hexadecimal of the request, for recognizing its repetitions.
    request_digest = sa.Column(sa.String(64), nullable=False)
    # Incremented by every write: see Group.
    generation = sa.Column(sa.BigInteger, nullable=False)
    expires_at = sa.Column(sa.DateTime)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)


class PoolNode(Base):
    """A node of a pool. The primary key keeps a node in one pool.

    There is no foreign key to Ironic's tables, as in ``Reservation``. SQLite
    gives the id of a deleted node to a new one, so the UUID counts, too.
    """

    __tablename__ = 'reservations_pool_nodes'
    __table_args__ = (
        sa.Index('reservations_pool_nodes_pool_id_idx', 'pool_id'), _MYSQL)

    node_id = sa.Column(sa.Integer, primary_key=True, autoincrement=False)
    node_uuid = sa.Column(sa.String(36), nullable=False)
    pool_id = sa.Column(sa.Integer, nullable=False)
    # The node's domain when it joined; a replacement has that of the old node.
    domain = sa.Column(sa.Text)
    segment = sa.Column(sa.Integer)
    created_at = sa.Column(sa.DateTime, nullable=False)
    # One of constants.POOL_REASONS; NULL if the node joined with the pool.
    reason = sa.Column(sa.String(16))
    # UUID of the node that it has replaced.
    replaces = sa.Column(sa.String(36))


class EndedReservation(Base):
    """A reservation that has ended, with its node at that moment.

    ``id`` is that of its row in ``reservations``, so there is at most one
    copy. The group is described here, because it may have been deleted.
    """

    __tablename__ = 'reservations_history'
    __table_args__ = (
        sa.Index('reservations_history_instance_uuid_idx', 'instance_uuid'),
        sa.Index('reservations_history_node_uuid_idx', 'node_uuid'),
        sa.Index('reservations_history_node_name_idx', 'node_name'),
        sa.Index('reservations_history_node_owner_idx', 'node_owner'),
        sa.Index('reservations_history_project_id_idx', 'project_id'),
        sa.Index('reservations_history_ended_at_idx', 'ended_at'),
        _MYSQL,
    )

    id = sa.Column(sa.Integer, primary_key=True, autoincrement=False)
    instance_uuid = sa.Column(sa.String(36), nullable=False)
    node_id = sa.Column(sa.Integer, nullable=False)
    node_uuid = sa.Column(sa.String(36), nullable=False)
    # NULL also if the node had been deleted.
    node_name = sa.Column(sa.String(255))
    node_owner = sa.Column(sa.String(255))
    host = sa.Column(sa.String(255))
    project_id = sa.Column(sa.String(255))
    user_id = sa.Column(sa.String(255))
    description = sa.Column(sa.String(255))
    group_uuid = sa.Column(sa.String(36))
    group_policy = sa.Column(sa.String(16))
    group_by = sa.Column(sa.String(300))
    group_segment_levels = sa.Column(sa.Text)
    domain = sa.Column(sa.Text)
    segment = sa.Column(sa.Integer)
    expires_at = sa.Column(sa.DateTime)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)
    ended_at = sa.Column(sa.DateTime, nullable=False)
    # One of constants.ENDS.
    ended_by = sa.Column(sa.String(16), nullable=False)


(reservations, groups, projects, host_leases, standbys, notices, pools,
 pool_nodes, history) = (
    Base.metadata.tables[model.__tablename__]
    for model in (Reservation, Group, Project, HostLease, Standby, Notice,
                  Pool, PoolNode, EndedReservation))

#: Alembic's table with our revision; Ironic's is alembic_version.
VERSION_TABLE = 'reservations_alembic_version'
