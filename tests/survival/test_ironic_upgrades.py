# SPDX-License-Identifier: Apache-2.0
"""Ironic's upgrades of its own tables, under the load of clients.

Ironic 35 rewrites ``nodes`` for another character set, and Ironic 39 adds
columns to ``node_history``.
"""

from ironic.common import release_mappings
import pytest
import sqlalchemy as sa

from tests.survival import clients
from tools import services

SPEC = {'resource_class': 'gold', 'memory_mb': 512}

#: Revisions of Ironic's schema: the last one before ``nodes`` is rewritten,
#: the one that rewrites it, and the last before ``node_history`` is changed.
BEFORE, REWRITE, OLD_HISTORY = '9c0446cb6bc3', 'c1fd28861bb9', '772c0e7e8299'
HEAD = None

#: Version of a node's row: Ironic upgrades only versions that it knows.
VERSION = release_mappings.RELEASE_MAPPING['master']['objects']['Node'][-1]


@pytest.fixture(params=['mariadb', pytest.param(
    'mysql', marks=pytest.mark.long)])
def url(request):
    """An empty database, with the character set of an old Ironic."""
    start = getattr(services, request.param)
    with start() as server_url, services.database(server_url) as url:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                f'ALTER DATABASE {engine.url.database} '
                'CHARACTER SET utf8mb3')
        engine.dispose()
        yield url


@pytest.fixture
def upgrade(url, conf_file):
    """Return a function that upgrades Ironic's or our tables."""
    path = conf_file(url)

    def run(name, revision=HEAD):
        services.run([
            services.program(name), '--config-file', path, 'upgrade',
            *(['--revision', revision] if revision else [])], f'{path}.log')
    return run


def collation(fleet):
    [(name,)] = fleet.execute(
        'SELECT table_collation FROM information_schema.tables '
        "WHERE table_schema = DATABASE() AND table_name = 'nodes'")
    return name


def test_ironic_is_upgraded_under_load(url, upgrade, start_api):
    """Clients get a 503 at worst, and nothing is doubled."""
    upgrade('ironic-dbsync', BEFORE)
    upgrade('ironic-reservations-dbsync')
    fleet = clients.Fleet(url)
    # Many nodes, so that the rewrite takes some time.
    fleet.fill(500, racks=6, extra='x' * 4000, version=VERSION)
    assert 'utf8mb3' in collation(fleet)
    with start_api(url, 4) as api:
        crowd = clients.Crowd([api], SPEC, kind=clients.GroupClient,
                              size=4, fleet=fleet,
                              policies=clients.make_policies())
        with crowd:
            crowd.work(1)
            for revision in REWRITE, OLD_HISTORY, HEAD:
                crowd.work_during(lambda revision=revision: (
                    upgrade('ironic-dbsync', revision),
                    upgrade('ironic-reservations-dbsync')))
        assert 'utf8mb4' in collation(fleet)
        fleet.check(crowd)
        fleet.check_groups(crowd)
    # The deadline, and two seconds.
    assert crowd.slowest < 10 + 2, crowd.slowest
    assert not crowd.seen['lost'] and crowd.seen[204], crowd.seen
