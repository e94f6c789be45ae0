# SPDX-License-Identifier: Apache-2.0
"""The count by which a search goes."""

from oslo_db import exception as db_exc
import pytest

from ironic_reservations.db import engine
from ironic_reservations.fleet import counts
from tests.common import fleets


@pytest.mark.on('server')
@pytest.mark.parametrize('error', [
    db_exc.DBDeadlock(), db_exc.DBConnectionError()], ids=repr)
def test_count_is_retried_after_a_database_error(fleet, error):
    fleet.add({})
    recent = engine.retry(counts.Latest().get_recent)
    with fleet.before('SELECT', fleets.raising(error),
                      containing='AS alike'):
        assert recent()[0].total == 1
