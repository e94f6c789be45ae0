# SPDX-License-Identifier: Apache-2.0
"""Responses do not show the texts of foreign exceptions."""

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
    (ValueError(SECRET), 500)], ids=lambda error: type(error).__name__)
def test_text_of_an_exception_is_only_logged(error, status, caplog):
    response = errors.make_response(error)
    assert response.status_int == status
    assert 'secret' not in response.text
    assert 'secret' in caplog.text
