# SPDX-License-Identifier: Apache-2.0
"""What the answer to an exception shows of it."""

from oslo_db import exception as db_exc
import pytest
import sqlalchemy.exc

from ironic_reservations.api import errors

SECRET = 'SELECT secret FROM nodes'


@pytest.mark.parametrize('error, status', [
    (sqlalchemy.exc.OperationalError(SECRET, {}, Exception(SECRET)), 503),
    (db_exc.DBNonExistentTable(
        'reservations', inner_exception=Exception(SECRET)), 503),
    (db_exc.DBConnectionError(Exception(SECRET)), 503),
    (OSError(2, SECRET, '/etc/ironic/secret'), 500),
    (ValueError(SECRET), 500)], ids=lambda each: type(each).__name__)
def test_what_others_say_is_for_the_log_alone(error, status, caplog):
    response = errors.present(error)
    assert response.status_int == status
    assert 'secret' not in response.text
    assert 'secret' in caplog.text
