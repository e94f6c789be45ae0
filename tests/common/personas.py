# SPDX-License-Identifier: Apache-2.0
"""Callers with different roles, and the requests that each may send.

There are eight nodes: two unowned, two of project A, two leased to A, two of
project B. Before each test one is reserved for A, one for B and one for no
project, and an operator has created notices of the first and the last.
"""

import re

from tests.common import contract

OURS = '/v1/reservations'

#: Headers that only the middleware may set, sent by a caller.
FORGED = {'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin,member,reader',
          'OpenStack-System-Scope': 'all', 'X-Is-Admin-Project': 'True',
          'X-User-Id': 'forged', 'X-Project-Id': 'forged',
          'X-Service-Roles': 'service'}
ORIGIN = 'http://dashboard.example'
KEYSTONE = 'http://keystone.test/v3'

# Role and scope of each user.
PERSONAS = {
    'system-admin': ('admin', 'system'),
    'system-member': ('member', 'system'),
    'system-reader': ('reader', 'system'),
    'system-service': ('service', 'system'),
    'a-admin': ('admin', 'a'),
    'a-member': ('member', 'a'),
    'a-reader': ('reader', 'a'),
    'b-member': ('member', 'b'),
    'service': ('service', 'service'),
    'domain-admin': ('admin', 'domain'),
    'domain-manager': ('manager', 'domain'),
    'domain-member': ('member', 'domain'),
    'domain-reader': ('reader', 'domain'),
    'system-manager': ('manager', 'system'),
    'a-manager': ('manager', 'a'),
    'a-service': ('service', 'a'),
    'b-admin': ('admin', 'b'),
    'b-manager': ('manager', 'b'),
    'b-reader': ('reader', 'b'),
    'service-admin': ('admin', 'service'),
    'service-member': ('member', 'service'),
    'service-reader': ('reader', 'service'),
    'unscoped': ('admin', None),
}

# The nodes that Ironic's own list shows to each, and that each may reserve.
ALL = {'free', 'of-a', 'leased-to-a', 'of-b'}

NODES = {
    'system-admin': ALL,
    'system-member': ALL,
    'system-reader': ALL,
    'system-service': ALL,
    'a-admin': {'of-a', 'leased-to-a'},
    'a-member': {'of-a', 'leased-to-a'},
    'a-reader': {'of-a', 'leased-to-a'},
    'b-member': {'of-b'},
    'service': set(),
    'elevated-service': ALL,
}

#: The process that has the lease of the host of all reservations.
HOLDER = '77777777-2222-4333-8444-555555555555'

# {a}, {b}, {none}: the instances reserved for A, for B and for no project.
ANY = {'memory_mb': 1}

CALLS_OF_RESERVATIONS = {
    'list': ('GET', OURS),
    'list-b': ('GET', f'{OURS}?project_id={{project_b}}'),
    'capacity': ('GET', f'{OURS}/capacity'),
    'show-a': ('GET', f'{OURS}/{{a}}'),
    'show-b': ('GET', f'{OURS}/{{b}}'),
    'show-none': ('GET', f'{OURS}/{{none}}'),
    'dry-run': ('POST', f'{OURS}?dry_run=true', ANY),
    'create': ('POST', OURS, ANY),
    'create-for': ('POST', OURS, {**ANY, 'host': 'h', 'project_id': 'p',
                                  'user_id': 'u'}),
    'delete-a': ('DELETE', f'{OURS}/{{a}}'),
    'delete-b': ('DELETE', f'{OURS}/{{b}}'),
    'delete-none': ('DELETE', f'{OURS}/{{none}}'),
    'extend-a': ('PATCH', f'{OURS}/{{a}}', [
        {'op': 'replace', 'path': '/expires_in', 'value': 60}]),
    'move-a': ('PATCH', f'{OURS}/{{a}}', [
        {'op': 'replace', 'path': '/host', 'value': 'other'}]),
}

CALLS_OF_HOSTS = {
    'hosts': ('GET', f'{OURS}/hosts'),
    'acquire': ('PUT', f'{OURS}/hosts/other', {'holder': HOLDER, 'ttl': 30}),
    'give-up': ('DELETE', f'{OURS}/hosts/h?holder={HOLDER}'),
}

#: The reservations for A and for B are the only members of these groups.
GROUP_A = '88888888-2222-4333-8444-555555555555'
GROUP_B = '99999999-2222-4333-8444-555555555555'

CALLS_OF_GROUPS = {
    'groups': ('GET', f'{OURS}/groups'),
    'show-group-a': ('GET', f'{OURS}/groups/{GROUP_A}'),
    'show-group-b': ('GET', f'{OURS}/groups/{GROUP_B}'),
    'group': ('POST', f'{OURS}/groups', {'members': 1, 'request': ANY}),
    'group-for': ('POST', f'{OURS}/groups', {
        'members': 1, 'request': ANY, 'project_id': 'p'}),
    'describe-group-a': ('PATCH', f'{OURS}/groups/{GROUP_A}', [
        {'op': 'add', 'path': '/description', 'value': 'x'}]),
    'delete-group-a': ('DELETE', f'{OURS}/groups/{GROUP_A}'),
    'delete-group-b': ('DELETE', f'{OURS}/groups/{GROUP_B}'),
    'join-group-a': ('POST', OURS, {**ANY, 'group': {'uuid': GROUP_A}}),
    # Its only member has a host.
    'claim-group-a': ('POST', OURS, {**ANY, 'claim': GROUP_A}),
}

#: The notices of the nodes that are reserved for A and for no project.
NOTICE_A = 'aaaaaaaa-2222-4333-8444-555555555555'
NOTICE_NONE = 'bbbbbbbb-2222-4333-8444-555555555555'

_DESCRIBE = [{'op': 'add', 'path': '/description', 'value': 'x'}]

CALLS_OF_NOTICES = {
    'notices': ('GET', f'{OURS}/notices'),
    'notice-a': ('POST', f'{OURS}/notices', {
        'kind': 'maintenance', 'nodes': ['of-a-1']}),
    'report-b': ('POST', f'{OURS}/notices', {
        'kind': 'fault', 'nodes': ['of-b-1']}),
    'describe-notice-a': ('PATCH', f'{OURS}/notices/{NOTICE_A}', _DESCRIBE),
    'describe-notice-none': (
        'PATCH', f'{OURS}/notices/{NOTICE_NONE}', _DESCRIBE),
    'history': ('GET', f'{OURS}/history'),
}

# There is no pool: who sees one depends on its nodes, too. See
# test_pool_access.
_POOL = f'{OURS}/pools/aaaaaaaa-3333-4333-8444-555555555555'

CALLS_OF_POOLS = {
    'pools': ('GET', f'{OURS}/pools'),
    'create-pool': ('POST', f'{OURS}/pools', {
        'project_id': 'p', 'members': 1,
        'request': {'resource_class': 'nonsense'}}),
    'pool': ('GET', _POOL),
    'describe-pool': ('PATCH', _POOL, _DESCRIBE),
    'delete-pool': ('DELETE', _POOL),
    'add-to-pool': ('POST', f'{_POOL}/nodes', {'node': 'of-a-1'}),
    'remove-from-pool': ('DELETE', f'{_POOL}/nodes/of-a-1'),
}

CALLS = (CALLS_OF_RESERVATIONS | CALLS_OF_HOSTS | CALLS_OF_GROUPS
         | CALLS_OF_NOTICES | CALLS_OF_POOLS)

MATRIX = """
                       capacity            dry-run        delete-a    extend-a
                  list   |          show     |  create      |   -b      |
                   |  list-b  -a  -b  -none  |   |  -for    |   |  -none|
                   |   |   |   |   |   |     |   |   |      |   |   |  move-a
                   |   |   |   |   |   |     |   |   |      |   |   |   |   |
no-token          401 401 401 401 401 401   401 401 401    401 401 401 401 401
bad-token         401 401 401 401 401 401   401 401 401    401 401 401 401 401
unscoped          403 403 403 404 404 404   403 403 403    404 404 404 404 403
domain-admin      403 403 403 404 404 404   403 403 403    404 404 404 404 403
domain-manager    403 403 403 404 404 404   403 403 403    404 404 404 404 403
domain-member     403 403 403 404 404 404   403 403 403    404 404 404 404 403
domain-reader     403 403 403 404 404 404   403 403 403    404 404 404 404 403
system-admin      200 200 200 200 200 200   200 201 201    204 204 204 200 200
system-manager    200 200 200 200 200 200   200 201 201    204 204 204 200 200
system-member     200 200 200 200 200 200   200 201 201    204 204 204 200 200
system-service    200 200 200 200 200 200   200 201 201    204 204 204 200 200
system-reader     200 200 200 200 200 200   403 403 403    403 403 403 403 403
a-admin           200 403 200 200 404 404   200 201 403    409 404 404 409 403
a-manager         200 403 200 200 404 404   200 201 403    409 404 404 409 403
a-member          200 403 200 200 404 404   200 201 403    409 404 404 409 403
a-service         200 403 200 403 404 404   403 403 403    403 404 404 403 403
a-reader          200 403 200 200 404 404   403 403 403    403 404 404 403 403
b-admin           200 200 200 404 200 404   200 201 403    404 409 404 404 403
b-manager         200 200 200 404 200 404   200 201 403    404 409 404 404 403
b-member          200 200 200 404 200 404   200 201 403    404 409 404 404 403
b-reader          200 200 200 404 200 404   403 403 403    404 403 404 404 403
service-admin     200 403 200 404 404 404   200 422 403    404 404 404 404 403
service-member    200 403 200 404 404 404   200 422 403    404 404 404 404 403
service-reader    200 403 200 404 404 404   403 403 403    404 404 404 404 403
service           200 403 200 404 404 404   403 403 403    404 404 404 404 403
elevated-service  200 200 200 200 200 200   200 201 201    204 204 204 200 200
"""

MATRIX_OF_HOSTS_AND_GROUPS = """
                  hosts           groups
                   |  acquire      |  show-group-a
                   |   |           |   |  -b  group
                   |   |           |   |   |   |  group-for
                   |   |           |   |   |   |   |  describe-group-a
                   |   |           |   |   |   |   |   |  delete-group-a
                   |   |  give-up  |   |   |   |   |   |   |  -b  join-
                   |   |   |       |   |   |   |   |   |   |   |  group-a
                   |   |   |       |   |   |   |   |   |   |   |   |  claim-
                   |   |   |       |   |   |   |   |   |   |   |   |   |
no-token          401 401 401     401 401 401 401 401 401 401 401 401 401
bad-token         401 401 401     401 401 401 401 401 401 401 401 401 401
unscoped          403 403 403     403 404 404 403 403 404 404 404 403 403
domain-admin      403 403 403     403 404 404 403 403 404 404 404 403 403
domain-manager    403 403 403     403 404 404 403 403 404 404 404 403 403
domain-member     403 403 403     403 404 404 403 403 404 404 404 403 403
domain-reader     403 403 403     403 404 404 403 403 404 404 404 403 403
system-admin      200 200 204     200 200 200 201 201 200 204 204 409 404
system-manager    200 200 204     200 200 200 201 201 200 204 204 409 404
system-member     200 200 204     200 200 200 201 201 200 204 204 409 404
system-service    200 200 204     200 200 200 201 201 200 204 204 409 404
system-reader     403 403 403     200 200 200 403 403 403 403 403 403 403
a-admin           403 403 403     200 200 404 201 403 200 409 404 201 409
a-manager         403 403 403     200 200 404 201 403 200 409 404 201 409
a-member          403 403 403     200 200 404 201 403 200 409 404 201 409
a-service         403 403 403     200 403 404 403 403 403 403 404 403 403
a-reader          403 403 403     200 200 404 403 403 403 403 404 403 403
b-admin           403 403 403     200 404 200 201 403 404 404 409 409 404
b-manager         403 403 403     200 404 200 201 403 404 404 409 409 404
b-member          403 403 403     200 404 200 201 403 404 404 409 409 404
b-reader          403 403 403     200 404 200 403 403 404 404 403 403 403
service-admin     403 403 403     200 404 404 422 403 404 404 404 409 404
service-member    403 403 403     200 404 404 422 403 404 404 404 409 404
service-reader    403 403 403     200 404 404 403 403 404 404 404 403 403
service           403 403 403     200 404 404 403 403 404 404 404 403 403
elevated-service  200 200 204     200 200 200 201 201 200 204 204 409 404
"""

MATRIX_OF_NOTICES = """
                  notices    describe-
                   |  notice-a  notice-a
                   |   | report-b |  -none
                   |   |   |      |   |      history
                   |   |   |      |   |       |
no-token          401 401 401    401 401     401
bad-token         401 401 401    401 401     401
unscoped          403 403 403    404 404     403
domain-admin      403 403 403    404 404     403
domain-manager    403 403 403    404 404     403
domain-member     403 403 403    404 404     403
domain-reader     403 403 403    404 404     403
system-admin      200 201 201    200 200     200
system-manager    200 201 201    200 200     200
system-member     200 201 201    200 200     200
system-service    200 201 201    200 200     200
system-reader     200 403 403    404 404     200
a-admin           200 201 400    200 404     200
a-manager         200 201 400    200 404     200
a-member          200 201 400    200 404     200
a-service         200 403 400    403 404     200
a-reader          200 403 400    403 404     200
b-admin           200 400 201    404 404     200
b-manager         200 400 201    404 404     200
b-member          200 400 201    404 404     200
b-reader          200 400 403    404 404     200
service-admin     200 400 400    404 404     200
service-member    200 400 400    404 404     200
service-reader    200 400 400    404 404     200
service           200 400 400    404 404     200
elevated-service  200 201 201    200 200     200
"""

MATRIX_OF_POOLS = """
                  pools   pool        add-to-pool
                   | create-pool       | remove-from-pool
                   |   |   | describe  |   |
                   |   |   |   | delete
no-token          401 401 401 401 401 401 401
bad-token         401 401 401 401 401 401 401
unscoped          403 403 404 404 404 404 404
domain-admin      403 403 404 404 404 404 404
domain-manager    403 403 404 404 404 404 404
domain-member     403 403 404 404 404 404 404
domain-reader     403 403 404 404 404 404 404
system-admin      200 422 404 404 404 404 404
system-manager    200 422 404 404 404 404 404
system-member     200 422 404 404 404 404 404
system-service    200 422 404 404 404 404 404
system-reader     200 403 404 404 404 404 404
a-admin           200 403 404 404 404 404 404
a-manager         200 403 404 404 404 404 404
a-member          200 403 404 404 404 404 404
a-service         200 403 404 404 404 404 404
a-reader          200 403 404 404 404 404 404
b-admin           200 403 404 404 404 404 404
b-manager         200 403 404 404 404 404 404
b-member          200 403 404 404 404 404 404
b-reader          200 403 404 404 404 404 404
service-admin     200 403 404 404 404 404 404
service-member    200 403 404 404 404 404 404
service-reader    200 403 404 404 404 404 404
service           200 403 404 404 404 404 404
elevated-service  200 422 404 404 404 404 404
"""


def rows():
    """Return the persona, the call and the status of each cell."""
    return [(persona, call, int(status))
            for calls, table in (
                (CALLS_OF_RESERVATIONS, MATRIX),
                (CALLS_OF_HOSTS | CALLS_OF_GROUPS, MATRIX_OF_HOSTS_AND_GROUPS),
                (CALLS_OF_NOTICES, MATRIX_OF_NOTICES),
                (CALLS_OF_POOLS, MATRIX_OF_POOLS))
            for persona, *statuses in map(str.split, re.findall(
                r'^[a-z-]+ .*', table, re.MULTILINE))
            for call, status in zip(calls, statuses, strict=True)]


class Cloud:
    """An Ironic with nodes and callers.

    :param projects: ids of the projects a, b and service.
    :param users: ids of users, by persona.
    :param callers: a session for each persona.
    :ivar before: the state at the beginning of each test.
    :ivar holds: the three reservations, by project.
    """

    def __init__(self, ironic, projects, users, callers):
        self.ironic = ironic
        self.projects, self.users, self.callers = projects, users, callers
        self.before = None

    def fleet(self):
        """Return the fields of the nodes to enrol."""
        a, b = self.projects['a'], self.projects['b']
        kinds = {'free': {}, 'of-a': {'owner': a},
                 'leased-to-a': {'owner': 'lessor', 'lessee': a},
                 'of-b': {'owner': b}}
        return [{'name': f'{kind}-{number}', 'resource_class': 'gold',
                 'properties': {'memory_mb': 1024}, **whose}
                for kind, whose in kinds.items() for number in (1, 2)]

    def set_nodes(self, nodes):
        self.nodes = {node.id: node.name for node in nodes}

    def reset(self):
        """Restore the three reservations that tests begin with."""
        if self.before == self.ironic.state():
            return
        self.ironic.free_nodes('gold')
        for table in 'hosts', 'groups', 'notices':
            self.ironic.execute(f'DELETE FROM reservations_{table}')
        self.holds = {
            project: self.hold('system-admin', candidate_nodes=[node],
                               project_id=self.projects.get(project), host='h',
                               group=group and {'uuid': group})
            for project, node, group in (
                ('a', 'of-a-1', GROUP_A), ('b', 'of-b-1', GROUP_B),
                ('none', 'free-1', None))}
        contract.check(self.callers['system-admin'].put(
            f'{OURS}/hosts/h', json={'holder': HOLDER, 'ttl': 600}), 200)
        for uuid, node in (NOTICE_A, 'of-a-1'), (NOTICE_NONE, 'free-1'):
            contract.check(self.callers['system-admin'].post(
                f'{OURS}/notices', json={'uuid': uuid, 'kind': 'fault',
                                         'nodes': [node]}), 201)
        self.names = {
            **{project: hold['instance_uuid']
               for project, hold in self.holds.items()},
            **{f'project_{name}': project_id
               for name, project_id in self.projects.items()}}
        self.before = self.ironic.state()

    def request(self, persona, method, path, **kwargs):
        return self.callers[persona].request(
            method, path.format(**self.names), **kwargs)

    def get(self, persona, path, **params):
        """Return the JSON of a response."""
        response = self.request(persona, 'GET', path, params=params)
        contract.check(response, 200)
        return response.json()

    def call(self, persona, status, method, path, **kwargs):
        """Check the status of a response; return the text of an error."""
        return contract.check(
            self.request(persona, method, path, **kwargs), status)

    def hold(self, persona, **body):
        response = self.callers[persona].post(OURS, json={**ANY, **body})
        contract.check(response, 201)
        return response.json()

    def kinds(self, node_uuids):
        """Return the kinds of nodes: of-b is that of of-b-1."""
        return {self.nodes[uuid].rpartition('-')[0] for uuid in node_uuids}

    def set_node(self, name, **columns):
        node_uuid, = (uuid for uuid, other in self.nodes.items()
                      if other == name)
        self.ironic.set_node(node_uuid, **columns)
