# SPDX-License-Identifier: Apache-2.0
"""The health check detects that no node can be held."""

import pytest
import sqlalchemy as sa

from ironic_reservations import health
from ironic_reservations.db import engine
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')


def run_check():
    return health.Backend(None, {}).healthcheck(80)


def test_healthy_database(fleet):
    assert run_check().available


def test_without_our_table(fleet, database):
    with database.engine.begin() as connection:
        connection.execute(sa.text('ALTER TABLE reservations RENAME TO r'))
    try:
        result = run_check()
    finally:
        with database.engine.begin() as connection:
            connection.execute(sa.text(
                'ALTER TABLE r RENAME TO reservations'))
    assert not result.available
    assert result.reason == 'RESERVATIONS DATABASE UNAVAILABLE'
    assert run_check().available


@pytest.fixture
def read_only(database):
    """An engine that refuses to write."""
    if database.engine.dialect.name == 'sqlite':
        path = database.engine.url.database
        yield fleets.connect(f'sqlite:///file:{path}?mode=ro&uri=true')
        return
    # An account without SUPER gets this where read_only is set.
    yield fleets.connect(database.engine.url.update_query_dict({
        'init_command': 'SET SESSION TRANSACTION READ ONLY'
    }).render_as_string(False))


def test_read_only_database(fleet, read_only, monkeypatch):
    monkeypatch.setattr(engine, 'get_engine', lambda: read_only)
    with read_only.connect() as connection:
        assert connection.scalar(sa.text('SELECT 1')) == 1
    assert not run_check().available
    read_only.dispose()
