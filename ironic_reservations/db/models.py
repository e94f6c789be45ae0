# SPDX-License-Identifier: Apache-2.0
"""The tables: ours, and what we use of Ironic's."""

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

# Ironic's tables, only the columns that we stand on. They are Ironic's to
# create and migrate, hence a metadata of their own; ``engine`` checks at
# start that the database has them.
ironic = sa.MetaData()

#: Marks, in its ``info``, a table or a column that some releases of Ironic
#: lack. A statement names a column through ``functions.optional``.
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
    # The host name of the conductor that holds the node's lock.
    sa.Column('reservation', sa.String(255)),
    sa.Column('allocation_id', sa.Integer),
    sa.Column('parent_node', sa.String(36)),
    sa.Column('resource_class', sa.String(80)),
    sa.Column('conductor_group', sa.String(255)),
    sa.Column('shard', sa.String(255)),
    sa.Column('owner', sa.String(255)),
    sa.Column('lessee', sa.String(255)),
    # JSON, read and compared as the text that it is.
    sa.Column('properties', sa.Text),
    sa.Column('instance_info', sa.Text),
    sa.Column('updated_at', sa.DateTime),
    sa.Column('health', sa.String(32), info={OPTIONAL: True}),
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
    # In which provision state the node was then.
    sa.Column('state', sa.String(255), info={OPTIONAL: True}),
)

# Actions that Ironic runs between two steps, without the node's lock: planned
# for a release after 39.
deferred_actions = sa.Table(
    'deferred_actions', ironic,
    sa.Column('node_id', sa.Integer),
    sa.Column('state', sa.String(255)),
    info={OPTIONAL: True},
)


# In this collation names differ by case and accents, as they do elsewhere.
_MYSQL = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


class Base(orm.DeclarativeBase):
    pass


class Reservation(Base):
    """A node held for an instance.

    It counts only while the node ``node_id`` carries ``instance_uuid``. There
    is no foreign key into Ironic's tables: an extension must never make one
    of Ironic's own statements fail.
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
            # An id that came back would let a late clean-up of a stale row
            # hit the row that follows it.
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
    expires_at = sa.Column(sa.DateTime)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)
    # The group that it is a member of, and the domain that its node stated
    # when it was held: see group_policy.find_domain.
    group_id = sa.Column(sa.Integer)
    domain = sa.Column(sa.Text)


class Group(Base):
    """Reservations with one policy.

    Its members are the reservations that count and name its id. The row goes
    in the transaction that deletes the last row of a member.
    """

    __tablename__ = 'reservations_groups'
    __table_args__ = (
        sa.UniqueConstraint('uuid', name='uniq_reservations_groups0uuid'),
        sa.Index('reservations_groups_project_id_idx', 'project_id'),
        {
            # The members of a group that is gone are never another's.
            'sqlite_autoincrement': True,
            **_MYSQL,
        },
    )

    id = sa.Column(sa.Integer, primary_key=True)
    uuid = sa.Column(sa.String(36), nullable=False)
    # One of constants.POLICIES, and what the domains are; NULL and NULL for
    # members that have nothing in common.
    policy = sa.Column(sa.String(16))
    by = sa.Column(sa.String(300))
    project_id = sa.Column(sa.String(255))
    # Grows whenever a member is added or taken out. Who adds one compares it
    # before: of two holds that have read the same members, one begins again.
    generation = sa.Column(sa.BigInteger, nullable=False)
    # SHA-256, in hexadecimal: what was asked for where all members were held
    # at once, to tell a repeated request.
    request_digest = sa.Column(sa.String(64))
    created_at = sa.Column(sa.DateTime, nullable=False)


class Project(Base):
    """A project whose reservations are limited.

    A request that holds a node for it writes its row before it counts the
    project's reservations, and so waits for other requests that do the same.
    """

    __tablename__ = 'reservations_projects'
    __table_args__ = _MYSQL

    project_id = sa.Column(sa.String(255), primary_key=True)
    # Grows with every write: see HostLease.serial.
    serial = sa.Column(sa.BigInteger, nullable=False)


class HostLease(Base):
    """Which process is a compute host, and until when."""

    __tablename__ = 'reservations_hosts'
    __table_args__ = _MYSQL

    host = sa.Column(sa.String(255), primary_key=True)
    holder = sa.Column(sa.String(36), nullable=False)
    expires_at = sa.Column(sa.DateTime, nullable=False)
    # Grows with every write. A Galera cluster does not learn of an UPDATE
    # that leaves a row as it was, and so could not tell that two of them meet.
    serial = sa.Column(sa.BigInteger, nullable=False)
    # When this holder has taken the lease, and renewed it last.
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime)


class Standby(Base):
    """A process that waits to be a compute host, as long as it is noted.

    Each refusal notes it, in a table of its own, because a write to the
    host's lease would wait for the writes of its holder, and they for it.
    """

    __tablename__ = 'reservations_standbys'
    __table_args__ = _MYSQL

    host = sa.Column(sa.String(255), primary_key=True)
    holder = sa.Column(sa.String(36), primary_key=True)
    expires_at = sa.Column(sa.DateTime, nullable=False)


reservations, groups, projects, host_leases, standbys = (
    Base.metadata.tables[model.__tablename__]
    for model in (Reservation, Group, Project, HostLease, Standby))

#: Where alembic keeps our revision; Ironic's stays in alembic_version.
VERSION_TABLE = 'reservations_alembic_version'
