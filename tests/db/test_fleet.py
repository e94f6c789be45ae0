# SPDX-License-Identifier: Apache-2.0
"""The count by which a search goes."""

from oslo_db import exception as db_exc
import pytest

from ironic_reservations.db import engine
from ironic_reservations.fleet import count as fleets
from tests.db import conftest


@pytest.mark.on('server')
@pytest.mark.parametrize('error', [
    db_exc.DBDeadlock(), db_exc.DBConnectionError()], ids=repr)
def test_count_that_the_database_aborts_is_run_again(fleet, error):
    fleet.add({})
    recent = engine.retry(fleets.Latest().recent)
    with fleet.before('SELECT', conftest.failing(error),
                      containing='AS alike'):
        assert recent()[0].total == 1
