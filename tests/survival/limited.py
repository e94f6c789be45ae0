# SPDX-License-Identifier: Apache-2.0
"""The application for uWSGI with one caller, whose project has a limit.

The token and the limit are not read from Keystone, but defined here.
"""

import datetime

from keystoneauth1 import fixture as tokens
from keystonemiddleware import fixture as auth_fixture
from oslo_limit import fixture as limit_fixture

APPLICATION = 'tests.survival.limited:make_app()'
TOKEN, PROJECT = 'of-a-member', 'a' * 32
#: Limit of the project.
LIMIT = 10

_KEYSTONE = 'http://keystone.test/v3'
#: Configuration of the application with Keystone.
CONFIG = {
    'keystone_authtoken': {'auth_type': 'password', 'auth_url': _KEYSTONE,
                           'www_authenticate_uri': _KEYSTONE},
    'reservations': {'quota': 'unified_limits'},
    'oslo_limit': {'endpoint_service_type': 'baremetal'}}


def make_app():
    keystone = auth_fixture.AuthTokenFixture()
    keystone.setUp()
    keystone.add_token(_token(), token_id=TOKEN)
    limit_fixture.LimitFixture({'baremetal_reservations': LIMIT}, {}).setUp()
    # It reads the configuration, which only uWSGI has in its environment.
    from ironic_reservations import wsgi
    return wsgi.application


def _token():
    token = tokens.V3Token(
        user_id='b' * 32, user_domain_id='default',
        # By default it expires before the tests end.
        expires=datetime.datetime.now(datetime.UTC)
        + datetime.timedelta(days=1))
    token.set_project_scope(id=PROJECT, name='a', domain_id='default')
    for role in 'member', 'reader':
        token.add_role(name=role)
    return token
