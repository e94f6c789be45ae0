# SPDX-License-Identifier: Apache-2.0

import contextlib
import os

import pytest

from tools import services


def pytest_configure():
    services.stop_on_signal()


@pytest.fixture(scope='session')
def mariadb_url():
    """A private MariaDB server, for services.database()."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(services.mariadb())
        except services.NotInstalled as e:
            if os.environ.get('IRONIC_RESERVATIONS_REQUIRE_MARIADB') == '1':
                raise
            pytest.skip(f'NOT TESTED ON MARIADB: {e}')
        yield url
