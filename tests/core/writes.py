# SPDX-License-Identifier: Apache-2.0
"""All writes of this project and of Ironic, on one small fleet.

Each node has its own size, so that no choice of a node is a tie. A write is a
list of steps: calls that return what the caller sees. Its name says what it
does to which node.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import datetime
import functools
import itertools
from typing import Any
import uuid

from oslo_db import exception as db_exc
import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import group_updates
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import notice_updates
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import pool_nodes
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import targets
from ironic_reservations.reservations import updates
from tests.common import fleets

DAY = datetime.timedelta(days=1)
P, Q = 'p' * 32, 'q' * 32
NO_LIMITS = quotas.Limits()
LIMITS = quotas.Limits(P, {'baremetal_reservations': 7})
OPERATOR = targets.Authority(lambda node: True, lambda node: True, values.ALL)
REPORTER = targets.Authority(lambda node: False, lambda node: True,
                             values.Ownership(P, 'project'))


def ident(name):
    """Return the UUID of a node, an instance, a group, a pool or a process."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


#: The nodes and their sizes: columns, and the rack. The first four are free.
NODES: dict[str, dict[str, Any]] = {
    'free-1': {'owner': P, 'shard': 's', 'traits': ('CUSTOM_FAST',)},
    'free-2': {}, 'free-3': {'traits': ('CUSTOM_FAST',)}, 'free-4': {},
    'hosted': {}, 'unhosted': {}, 'expired': {}, 'stale': {},
    'deployed': {'provision_state': 'active'},
    'unreserved': {'provision_state': 'active'},
    'member-1': {}, 'pooled': {}, 'member-2': {}, 'in-use': {},
    'in an expired pool': {}, 'cordoned': {}, 'planned': {}, 'apart': {},
    'last': {},
}

#: Reservations: project, host, and days until they expire.
RESERVED: dict[str, tuple[str | None, str | None, int | None]] = {
    'hosted': (P, 'compute-1', 10), 'unhosted': (P, None, 10),
    'expired': (P, None, -1), 'deployed': (P, 'compute-1', None),
    'member-1': (P, None, 10), 'member-2': (P, None, 10),
    'in-use': (P, None, 10), 'stale': (P, None, None), 'apart': (Q, None, 10),
}


def size(name):
    """Return the memory of a node in MiB."""
    return 1000 * (1 + list(NODES).index(name))


def rack(name):
    return f'r{list(NODES).index(name) % 2}'


GROUP = values.GroupRequest(ident('group'), 'pack', 'capability:rack',
                            project_id=P)
TEAM = values.GroupRequest(ident('team'), 'spread', 'capability:rack',
                           project_id=P)
APART = values.GroupRequest(ident('apart'), 'spread', 'capability:rack',
                            project_id=Q)
DIGEST = 'digest'

#: The groups of reservations.
GROUPS = {'member-1': GROUP, 'member-2': GROUP, 'apart': APART}


def spec(name):
    """Return the body of a request that this node, and larger ones, satisfy.
    """
    return {'resource_class': 'gold', 'memory_mb': size(name)}


def fill(fleet, with_nodes_alone=False):
    """Create the fleet, with reservations, groups, pools and notices."""
    fleet.add(*({
        'uuid': ident(name), 'name': name,
        'instance_uuid': (
            ident(f'instance {name}') if name in RESERVED and name != 'stale'
            or name == 'unreserved' else None), **columns,
        **({'instance_uuid': None, 'provision_state': 'available'}
           if with_nodes_alone else {}),
        'properties': {'memory_mb': size(name),
                       'capabilities': f'rack:{rack(name)}'}}
        for name, columns in NODES.items()))
    if with_nodes_alone:
        return
    fleet.add_allocation()
    ids = {row.name: row.id for row in fleet.execute(sa.select(models.nodes))}
    for group in GROUP, APART:
        fleet.execute(sa.insert(models.groups).values(
            uuid=group.uuid, policy=group.policy, by=group.by,
            project_id=group.project_id, generation=2, request_digest=DIGEST,
            created_at=functions.utcnow()))
    group_ids = {row.uuid: row.id for row in fleet.group_rows}
    for name, (project, host, days) in RESERVED.items():
        fleet.execute(sa.insert(models.reservations).values(
            instance_uuid=ident(f'instance {name}'), node_id=ids[name],
            node_uuid=ident(name), host=host, project_id=project,
            request_spec=request_spec.RequestSpec.from_dict(
                spec(name)).canonical,
            created_at=functions.utcnow(),
            expires_at=None if days is None
            else functions.seconds_from_now(86400 * days),
            **({'group_id': group_ids[GROUPS[name].uuid], 'domain': rack(name)}
               if name in GROUPS else {})))
    for name, days, nodes in (('pool', None, ('pooled', 'in-use')),
                              ('expired pool', -1, ('in an expired pool',))):
        fleet.execute(sa.insert(models.pools).values(
            uuid=ident(name), project_id=P, generation=0, request_digest='',
            request_spec=request_spec.RequestSpec.from_dict(
                {'resource_class': 'gold'}).canonical,
            created_at=functions.utcnow(), expires_at=None if days is None
            else functions.seconds_from_now(86400 * days)))
        [(pool_id,)] = fleet.execute(sa.select(models.pools.c.id).where(
            models.pools.c.uuid == ident(name)))
        for node in nodes:
            fleet.execute(sa.insert(models.pool_nodes).values(
                node_id=ids[node], node_uuid=ident(node), pool_id=pool_id,
                created_at=functions.utcnow()))
    for name, days, last in (('cordoned', -1, None), ('planned', 10, None),
                             ('deployed', 10, 20)):
        fleet.execute(sa.insert(models.notices).values(
            uuid=ident(f'notice {name}'), number=0, kind='maintenance',
            cordon=True, node_id=ids[name], node_uuid=ident(name),
            node_name=name, starts_at=functions.seconds_from_now(86400 * days),
            latest_start=last and functions.seconds_from_now(86400 * last),
            is_failed_build=False, request_digest='',
            created_at=functions.utcnow()))
    fleet.execute(sa.insert(models.notices).values(
        uuid=ident('notice reported'), number=0, kind='fault', cordon=False,
        node_id=ids['deployed'], node_uuid=ident('deployed'), project_id=P,
        node_name='deployed', starts_at=functions.seconds_from_now(-86400),
        is_failed_build=False, request_digest='',
        created_at=functions.utcnow()))
    for host, days in (('compute-1', 10), ('compute-2', -1)):
        fleet.execute(sa.insert(models.host_leases).values(
            host=host, holder=ident(host), serial=0,
            created_at=functions.utcnow(),
            expires_at=functions.seconds_from_now(86400 * days)))
    fleet.execute(sa.insert(sa.table(
        'ports', *map(sa.column, ('uuid', 'address', 'node_id')))).values(
            uuid=ident('port'), address='52:54:00:00:00:01',
            node_id=ids['expired']))


@dataclasses.dataclass(frozen=True)
class Write:
    """A write.

    :param steps: makes the steps of one request.
    :param has_old_count: whether its process has counted the fleet before the
        pools, the cordons and the holds.
    :param calls: of Ironic's database API; ``steps`` takes their statements.
    :param then: a node that the client gets afterwards.
    :param parts: names of the writes of which it consists, if it is several
        transactions. Another write may come between them.
    :param shows_last: whether its caller sees the result of the last part, and
        otherwise those of all.
    """

    steps: Callable[..., list[Callable[[], Any]]]
    has_old_count: bool = False
    calls: tuple[Any, ...] = ()
    then: str | None = None
    parts: tuple[str, ...] = ()
    shows_last: bool = False


# Our own writes

def hold(name='free-1', instance='new', host=None, holder=None, lease=None,
         group=None, project=P, limits=NO_LIMITS, reach=values.ALL,
         patterns=(), **body):
    """POST of a reservation; returns whether it is new, and the node."""
    reservation, is_new = holds.hold_node(
        dataclasses.replace(
            fleets.matcher(reach.project_id, ownership=reach,
                           **(body or spec(name))), dedicated=patterns),
        obtain.Request((ident(f'instance {instance}'),), values.Assignment(
            host, project_id=project), lease, holder=holder, group=group,
            limits=limits))
    return is_new, reservation.node_name


def claim(name, instance='new', host='compute-1', holder=None,
          size_of='unhosted'):
    reservation, is_new = claims.claim_reservation(
        ident(name), fleets.matcher(use=matching.TO_CLAIM, **spec(size_of)),
        obtain.Request((ident(f'instance {instance}'),), values.Assignment(
            host, project_id=P), holder=holder), context.allow_all)
    return is_new, reservation.node_name


def create_group(group, *members, lease=None, size_of='free-1'):
    group, is_new = groups.create_group(
        fleets.matcher(**spec(size_of)), obtain.Request(
            tuple(ident(f'instance {member}') for member in members),
            values.Assignment(project_id=P), lease, group=group,
            digest=DIGEST))
    return is_new, sorted(member.node_name for member in group.members)


def release(name, **more):
    releases.release_reservation(ident(f'instance {name}'), **more)


def update(name, **changes):
    return updates.update_reservation(
        ident(f'instance {name}'), changes).node_name


def authorize(anything):
    """Authorize every caller."""


def make_pool(size_of='free-1', members=1):
    pool, is_new = pools.create_pool(
        fleets.matcher(use=matching.to_join(Q), **spec(size_of)),
        pools.Request(values.GroupRequest(ident('new pool'), project_id=Q),
                      members, None, DIGEST))
    return is_new, sorted(node.name for node in pool.nodes)


def list_nodes(pool):
    return sorted(node.name for node in pool.nodes)


def add_to_pool(name):
    return list_nodes(pool_nodes.add_node(ident('pool'), name, authorize))


def replace_in_pool(name, must_be_idle=False):
    return list_nodes(pool_nodes.replace_node(
        pools.get_pool(ident('pool')), name, fleets.matcher(
            use=matching.to_join(P), **spec('free-1')), must_be_idle))


def report(name, authority=OPERATOR, **fields):
    """POST of notices."""
    times = {name: fields.pop(name) for name in notices.TIMES & fields.keys()}
    rows, is_new = notices.create_notices(notices.Request(**{
        'uuid': ident(f'new notice {name}'), 'kind': 'fault', 'cordon': False,
        'nodes': (ident(name),), 'domain': None, 'times': times,
        'texts': values.NoticeTexts(), 'digest': DIGEST, 'created_by': None,
        **fields}),
        authority)
    return is_new, [row.node_name for row in rows]


def change_notice(name, authority=OPERATOR, **changes):
    return [row.state for row in notice_updates.update_notices(
        ident(f'notice {name}'), None, changes, authority)]


def list_reservations():
    return sorted((row.instance_uuid, row.node_name)
                  for row in lookup.find_reservations())


def adopt(name, group=None, holder=None):
    reservation, is_new = adoption.adopt_instance(
        ident(f'instance {name}'), request_spec.RequestSpec.from_dict(
            spec(name)), values.Assignment('compute-1', project_id=P),
        holder, group)
    return is_new, reservation.node_name


def acquire(host, holder):
    return host_leases.acquire_lease(host, ident(holder), 864000).holder


def switch():
    """Let a standby take over from the process that gives up its lease."""
    host_leases.give_up_lease('compute-1', ident('compute-1'))
    return acquire('compute-1', 'standby')


def sweep():
    expiry.sweep()
    pools.purge()
    notices.sweep()


def check_fence(name):
    """A request to Ironic with the header; returns whether it passes."""
    reservation, is_host = _find_fenced(name)
    return reservation is not None and is_host


@engine.retry
def _find_fenced(name):
    return lookup.find_fenced(
        ident(f'instance {name}'), ident(name), None,
        values.Actor('compute-1', ident('compute-1')))


@engine.retry
def get_node(name):
    """GET of a node; returns its instance, and that of its reservation."""
    return [tuple(row) for row in engine.fetch_rows(sa.select(
        models.nodes.c.instance_uuid, models.reservations.c.instance_uuid
    ).outerjoin_from(
        models.nodes, models.reservations,
        models.nodes.c.id == models.reservations.c.node_id
    ).where(models.nodes.c.uuid == ident(name)))]


# Ironic's writes: see record_ironic. A conductor locks the node first, and
# then decides by what it reads.

def by_ironic(name, check, *calls, then=None):
    """Return a Write of Ironic's, and the calls to record.

    :param check: whether the conductor accepts the row of the node.
    :param calls: of Ironic's database API, on the locked node.
    """
    return Write(functools.partial(_replay, name, check, then), calls=(
        ('reserve_node', 'conductor', ident(name)),
        ('release_node', 'conductor', ident(name)), *calls), then=then)


def _replay(name, check, then, records):
    """Return the steps of a write.

    :param records: the statements of its calls.
    """
    lock, unlock, *changes = records
    state = {'is_locked': False, 'is_accepted': False}

    def begin():
        state['is_locked'] = _run(lock) == [1]
        state['is_accepted'] = state['is_locked'] and all(
            map(check, _read_node(name)))
        return state['is_accepted']

    def change(statements):
        if state['is_accepted']:
            _run(statements)

    def end():
        if state['is_locked']:
            _run(unlock)

    return [begin, *(functools.partial(change, statements)
                     for statements in changes), end,
            *([functools.partial(get_node, then)] if then else [])]


@engine.retry
def _read_node(name):
    return engine.fetch_rows(sa.select(models.nodes).where(
        models.nodes.c.uuid == ident(name)))


def store(name, *changes):
    return [('update_node', ident(name), columns) for columns in changes]


def delete(name):
    return by_ironic(name, is_removable, ('destroy_node', ident(name)))


def enrol(name, uuid=None):
    """Return a Write that enrols a node again, by default under its UUID."""
    return Write(lambda records: [functools.partial(_enrol, records[1])],
                 calls=(('destroy_node', ident(name)), ('create_node', {
                     'uuid': uuid or ident(name), 'name': name,
                     'driver': 'fake-hardware', 'maintenance': False,
                     'provision_state': 'available',
                     'power_state': 'power off', 'resource_class': 'gold',
                     'properties': {'memory_mb': size(name), 'capabilities':
                                    f'rack:{rack(name)}'}})))


def _enrol(statements):
    with contextlib.suppress(db_exc.DBDuplicateEntry):
        _run(statements)


@engine.retry
def _run(statements):
    """Run the statements of a call; return the numbers of changed rows."""
    with engine.transaction() as connection:
        return [connection.exec_driver_sql(
            statement, tuple(parameters)).rowcount
            for statement, parameters in statements]


def chain(*names):
    """Return a Write of several parts of Ironic's, one after the other."""
    parts = [PARTS[name] for name in names]

    def make_steps(records):
        records = iter(records)
        return [step for part in parts for step in part.steps(
            list(itertools.islice(records, len(part.calls))))]

    return Write(make_steps, calls=tuple(
        call for part in parts for call in part.calls), parts=names)


def always(node):
    return True


def has_instance(node):
    return node.instance_uuid is not None


def is_available(node):
    return has_instance(node) and node.provision_state == 'available'


def is_removable(node):
    return not has_instance(node)


DEPLOY = ({'provision_state': 'deploying', 'instance_info': {'image': 'x'}},
          {'provision_state': 'active'})
TEAR_DOWN = ({'provision_state': 'deleting'},
             {'provision_state': 'cleaning', 'instance_uuid': None,
              'instance_info': {}}, {'provision_state': 'available'})


def call(function, *args, then=None, old=False, parts=(), **more):
    """Return a Write of one call of our own."""
    steps = [functools.partial(function, *args, **more)]
    if then:
        steps.append(functools.partial(get_node, then))
    return Write(lambda: steps, old, (), then, parts, True)


#: Parts of writes that are several transactions.
PARTS = {
    'renew member-1': call(update, 'member-1', lease=20 * 86400),
    'renew member-2': call(update, 'member-2', lease=20 * 86400),
    'get the group': call(lambda: (False, sorted(
        member.node_name for member in groups.get_group(
            ident('group')).members))),
    **{f'Ironic: delete {name}': delete(name)
       for name in ('pooled', 'cordoned', 'last')},
    **{f'Ironic: enrol {name}': enrol(name)
       for name in ('pooled', 'cordoned')},
    'Ironic: enrol another': enrol('last', ident('another')),
}


OWN = values.Ownership(P, 'project')
FENCED = {'host': 'compute-1', 'holder': ident('compute-1')}

WRITES = {
    'hold': call(hold),
    'hold, old count': call(hold, old=True),
    'hold for another': call(hold, instance='other'),
    'hold a node by name': call(hold, instance='named', resource_class='gold',
                                candidate_nodes=['free-1']),
    'hold as a project': call(hold, instance='own', reach=OWN,
                              name='pooled'),
    'hold with a limit': call(hold, instance='limited', limits=LIMITS),
    'hold with a limit for another': call(hold, instance='limited-2',
                                          limits=LIMITS),
    'hold, fenced': call(hold, instance='fenced', **FENCED),
    'hold after expiry': call(hold, instance='expired', resource_class='gold',
                              candidate_nodes=['expired']),
    'hold after a stale one': call(hold, 'stale', 'stale'),
    'repeat': call(hold, 'hosted', 'hosted', 'compute-2', lease=20 * 86400),
    'repeat without a host': call(hold, 'unhosted', 'unhosted',
                                  lease=20 * 86400),
    'join': call(hold, instance='joined', group=GROUP),
    'join, old count': call(hold, instance='joined', group=GROUP, old=True),
    'join another': call(hold, instance='joined-2', group=GROUP),
    'begin a group': call(hold, instance='first', group=TEAM),
    'join the new group': call(hold, instance='second', group=TEAM),
    'renew': call(update, 'unhosted', lease=20 * 86400),
    'move': call(update, 'hosted', host='compute-2'),
    'move a member': call(update, 'member-1', host='compute-2'),
    'assign': call(update, 'unhosted', host='compute-2'),
    'release': call(release, 'unhosted', then='unhosted'),
    'release of a host': call(release, 'hosted', then='hosted',
                              actor=values.Actor('compute-1',
                                                 ident('compute-1'))),
    'release after expiry': call(release, 'expired'),
    'release a stale one': call(release, 'stale'),
    'release a member': call(release, 'member-1', then='member-1'),
    'release the other member': call(release, 'member-2'),
    'release in a pool': call(release, 'in-use', then='in-use'),
    'release a deployed node': call(release, 'deployed'),
    'sweep': call(sweep),
    'claim': call(claim, 'instance unhosted'),
    'claim, fenced': call(claim, 'instance unhosted', instance='fenced-claim',
                          **FENCED),
    'claim a member': call(claim, 'group'),
    'claim another member': call(claim, 'group', instance='claim-2'),
    'create a group': call(create_group, TEAM, 'a', 'b'),
    'create a group, old count': call(create_group, TEAM, 'a', 'b', old=True),
    'create a pack': call(create_group, dataclasses.replace(
        TEAM, policy='pack', uuid=ident('pack')), 'c', 'd'),
    'repeat of a group': call(
        create_group, GROUP, 'member-1', 'member-2', lease=20 * 86400,
        parts=('renew member-1', 'renew member-2', 'get the group')),
    'delete the group': call(group_releases.release_group, ident('group'),
                             authorize, values.ALL, then='member-1'),
    'change the group': call(
        lambda: sorted(member.node_name for member in
                       group_updates.update_group(
                           ident('group'), {'lease': 20 * 86400},
                           authorize).members if member.expires_at)),
    'describe the group': call(
        lambda: group_updates.update_group(
            ident('group'), {'description': 'text'}, authorize).description),
    'create a pool': call(make_pool, then='free-1'),
    'create a pool of two': call(make_pool, 'free-2', 2),
    'create a pool, old count': call(make_pool, old=True),
    'add to the pool': call(add_to_pool, 'free-1', then='free-1'),
    'add a reserved node to the pool': call(add_to_pool, 'unhosted'),
    'add an expired node to the pool': call(add_to_pool, 'expired'),
    'replace in the pool': call(replace_in_pool, 'pooled', then='free-1'),
    'replace an idle node': call(replace_in_pool, 'pooled', True),
    'remove from the pool': call(
        lambda: pool_nodes.remove_node(ident('pool'), 'pooled', authorize)),
    'remove the other from the pool': call(
        lambda: pool_nodes.remove_node(ident('pool'), 'in-use', authorize)),
    'delete the pool': call(pools.delete_pool, ident('pool'), authorize),
    'let the pool expire': call(
        lambda: list_nodes(pools.update_pool(
            ident('pool'), {'expires_at': 10 * DAY}, authorize))),
    'cordon': call(report, 'free-1', cordon=True, then='free-1'),
    'cordon a reserved node': call(report, 'unhosted', cordon=True),
    'cordon a rack': call(report, 'rack', nodes=(), cordon=True,
                          domain=('capability:rack', 'r0')),
    'report': call(report, 'in-use', REPORTER),
    'report again': call(report, 'in-use', REPORTER,
                         uuid=ident('second report')),
    'give back a machine of the pool': call(
        report, 'pooled', REPORTER, cordon=True, then='pooled'),
    'give back a reported machine': call(
        change_notice, 'reported', REPORTER, cordon=True),
    'schedule a notice': call(change_notice, 'deployed', REPORTER,
                              starts_at=15 * DAY),
    'schedule a notice at once': call(change_notice, 'deployed', REPORTER,
                                      starts_at=notices.AT_ONCE),
    'record a failed build': call(report, 'hosted', is_failed_build=True),
    'close a notice': call(change_notice, 'cordoned',
                           ends_at=notices.AT_ONCE),
    'begin a notice': call(change_notice, 'planned',
                           starts_at=notices.AT_ONCE, then='planned'),
    'end a notice later': call(change_notice, 'cordoned',
                               ends_at=20 * DAY),
    'adopt': call(adopt, 'unreserved'),
    'adopt into the group': call(adopt, 'unreserved', GROUP),
    'adopt into a new group': call(adopt, 'unreserved', TEAM),
    'adopt again': call(adopt, 'deployed'),
    'take over a host': call(acquire, 'compute-2', 'standby'),
    'acquire a host again': call(acquire, 'compute-2', 'compute-2'),
    'renew a host': call(acquire, 'compute-1', 'compute-1'),
    'wait for a host': call(acquire, 'compute-1', 'standby'),
    'give up a host': call(host_leases.give_up_lease, 'compute-1',
                           ident('compute-1'), then='free-1'),
    'delete an expired host': call(host_leases.delete_expired_lease,
                                   'compute-2'),
    'pass the fence': call(check_fence, 'hosted'),
    'Ironic: maintenance': by_ironic(
        'free-1', always, *store('free-1', {'maintenance': True})),
    'Ironic: another class': by_ironic(
        'free-1', always, *store('free-1', {'resource_class': 'silver'})),
    'Ironic: deploy': by_ironic(
        'hosted', is_available, *store('hosted', *DEPLOY)),
    'Ironic: deploy for nobody': by_ironic(
        'unhosted', is_available, *store('unhosted', *DEPLOY)),
    'Ironic: deploy after expiry': by_ironic(
        'expired', is_available, *store('expired', *DEPLOY)),
    'Ironic: deploy a member': by_ironic(
        'member-1', is_available, *store('member-1', *DEPLOY)),
    'Ironic: tear down': by_ironic(
        'deployed', has_instance, *store('deployed', *TEAR_DOWN)),
    'Ironic: tear down, unreserved': by_ironic(
        'unreserved', has_instance, *store('unreserved', *TEAR_DOWN)),
    'Ironic: attach a VIF': by_ironic('expired', has_instance, (
        'update_port', ident('port'),
        {'internal_info': {'tenant_vif_port_id': ident('vif')}})),
    'Ironic: delete': delete('free-1'),
    'Ironic: delete and enrol': chain(
        'Ironic: delete pooled', 'Ironic: enrol pooled'),
    'Ironic: delete and enrol a cordoned one': chain(
        'Ironic: delete cordoned', 'Ironic: enrol cordoned'),
}

#: Writes that differ from another one in their UUIDs alone. They interrupt the
#: others, and are not interrupted.
VARIANTS = {'hold for another', 'join another', 'claim another member',
            'release the other member', 'report again',
            'hold with a limit for another'}


def change(columns, of='free-1', check=always):
    """Return Ironic's change of columns of a node, and a GET of it."""
    return by_ironic(of, check, *store(of, columns), then=of)


def lock(records):
    """Return the steps of a conductor that keeps the lock of free-1."""
    first = WRITES['Ironic: maintenance'].steps(records)[0]
    return [first, functools.partial(get_node, 'free-1')]


@engine.retry
def execute(statement):
    """Run a statement on what belongs to free-1."""
    with engine.transaction() as connection:
        connection.execute(statement)


def on_node(statement):
    """Return the insertion or deletion of a row that belongs to free-1."""
    return call(execute, statement, then='free-1')


def insert(name, **columns):
    table = sa.table(name, *map(sa.column, [*columns, 'node_id']))
    return on_node(sa.insert(table).from_select(
        [*columns, 'node_id'],
        sa.select(*map(sa.literal, columns.values()), models.nodes.c.id).where(
            models.nodes.c.uuid == ident('free-1'))))


#: Further writes, for the conditions of a hold.
CHANGES = {
    'hold own': call(hold, instance='own', reach=OWN, resource_class='gold',
                     candidate_nodes=['free-1']),
    'hold in a group': call(hold, conductor_group='', **spec('free-1')),
    'hold in a shard': call(hold, shard='s', **spec('free-1')),
    'hold with a trait': call(hold, extra_specs={
        'trait:CUSTOM_FAST': 'required'}, **spec('free-1')),
    'hold without a trait': call(hold, extra_specs={
        'trait:CUSTOM_OTHER': 'forbidden'}, **spec('free-1')),
    'hold no dedicated one': call(hold, patterns=('CUSTOM_OTHER',)),
    'hold in a domain': call(hold, group=values.GroupRequest(
        ident('by trait'), 'spread', 'trait:CUSTOM_', project_id=P)),
    'join apart': call(hold, instance='apart-2', group=APART, project=Q),
    'join apart, too': call(hold, instance='apart-3', group=APART,
                            project=Q),
    'hold another with a limit': call(hold, 'free-2', 'limited-3',
                                      limits=LIMITS),
    'join with a limit': call(hold, instance='joined-3', group=GROUP,
                              limits=LIMITS),
    'adopt, fenced': call(adopt, 'unreserved', holder=ident('compute-1')),
    'switch to a standby': call(switch),
    'list reservations': call(list_reservations),
    'hold the last': call(hold, 'last'),
    'hold a suspect': call(hold, resource_class='gold',
                           candidate_nodes=['planned']),
    'plan': call(report, 'free-1', cordon=True, starts_at=10 * DAY,
                 then='free-1'),
    **{name: change(columns) for name, columns in {
        'state': {'provision_state': 'manageable'},
        'retired': {'retired': True}, 'power': {'power_state': None},
        'parent': {'parent_node': ident('free-2')},
        'health': {'health': 'Critical'}, 'owner': {'owner': Q},
        'group': {'conductor_group': 'other'}, 'shard': {'shard': 'other'},
        'name': {'name': 'other'}, 'info': {'instance_info': {'a': 1}},
        'class': {'resource_class': 'silver'},
        'maintenance': {'maintenance': True},
        'properties': {'properties': {'memory_mb': 1}},
    }.items()},
    'instance': change({'instance_uuid': ident('x')}, check=is_removable),
    'allocation': change({'allocation_id': 1}, 'unhosted'),
    'instance again': change({'instance_uuid': ident('instance stale')},
                             'stale', is_removable),
    'lock': Write(lock, calls=WRITES['Ironic: maintenance'].calls,
                  then='free-1'),
    'target': insert('volume_targets', uuid=ident('target'), boot_index=0,
                     volume_type='iscsi', volume_id='1'),
    'port': insert('ports', uuid=ident('new port'), extra='{"vif_port_id": '
                   '"1"}', address='52:54:00:00:00:02'),
    'trait': insert('node_traits', trait='CUSTOM_OTHER', version='1.0'),
    'no trait': on_node(sa.delete(models.node_traits).where(
        models.node_traits.c.trait == 'CUSTOM_FAST')),
    'replace the last': chain('Ironic: delete last', 'Ironic: enrol another'),
}
