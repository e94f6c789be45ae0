# SPDX-License-Identifier: Apache-2.0
"""The WSGI stack, in a process that belongs to Ironic."""

import base64
import contextlib
import importlib
import logging
import sys
import uuid

import bcrypt
from ironicclient.common import http
from oslo_config import cfg
from oslo_middleware import cors
import pytest
import webob

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.api import fence
from ironic_reservations.api import version
from ironic_reservations.osc import client

ORIGIN = 'http://dashboard.example'
# A path that is refused without a look into the database.
URL = '/v1/reservations/not-a-uuid'


@pytest.fixture
def set_option():
    """Configure a process as Ironic does, and set further options."""
    conf.register_opts()
    cors.CORS(None, conf.CONF)
    with contextlib.ExitStack() as stack:
        # oslo.config's fixture would also drop the configuration files, which
        # other tests in this process need.
        def set_(group=None, **options):
            for name, value in options.items():
                conf.CONF.set_override(name, value, group)
                stack.callback(conf.CONF.clear_override, name, group)

        set_(auth_strategy='noauth')
        set_(group='cors', allowed_origin=[ORIGIN])
        yield set_


@pytest.fixture
def basic_auth(set_option, tmp_path):
    """Ironic and oslo.middleware name the password file by two options."""
    users = tmp_path / 'htpasswd'
    users.write_bytes(b'user:' + bcrypt.hashpw(b'secret', bcrypt.gensalt(4)))
    set_option(auth_strategy='http_basic',
               http_basic_auth_user_file=str(users))
    return users


def read_process_state():
    """Return all options, and the settings of loggers and their handlers."""
    options = {}
    for name, value in conf.CONF.items():
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            options |= {(name, key): (item, conf.CONF.get_location(key, name))
                        for key, item in value.items()}
        else:
            options[name] = value, conf.CONF.get_location(name)
    loggers = [logging.getLogger(), *(
        logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    return options, {
        logger.name: (logger.level, logger.propagate, logger.disabled,
                      [*logger.filters], [
                          (handler, handler.level, [*handler.filters])
                          for handler in logger.handlers])
        for logger in loggers}


@pytest.mark.parametrize('strategy', ['noauth', 'keystone', 'http_basic'])
def test_middleware_does_not_change_the_process(set_option, basic_auth,
                                                strategy):
    set_option(auth_strategy=strategy)
    options, loggers = read_process_state()
    middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())
    # Libraries may add options.
    options_now, loggers_now = read_process_state()
    assert {key: options_now[key] for key in options} == options
    assert {name: loggers_now[name] for name in loggers} == loggers


def test_bcrypt_checks_a_password_once(basic_auth, monkeypatch):
    """A change of the file counts at once."""
    calls, checkpw = [], bcrypt.checkpw

    def count(*args):
        calls.append(args)
        return checkpw(*args)

    monkeypatch.setattr(bcrypt, 'checkpw', count)
    application = middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())

    def get(password, status):
        login = base64.b64encode(f'user:{password}'.encode()).decode()
        for path in URL, f'/v1/nodes/{uuid.UUID(int=1)}':
            response = webob.Request.blank(path, headers={
                'Authorization': f'Basic {login}', fence.HEADER: 'malformed'
            }).get_response(application)
            assert response.status_code == status, path

    for _ in range(3):
        get('secret', 400)
        get('wrong', 401)
    assert len(calls) == 2
    basic_auth.write_bytes(b'user:' + bcrypt.hashpw(b'new', bcrypt.gensalt(4)))
    get('secret', 401)
    get('new', 400)
    assert len(calls) == 4
    basic_auth.write_text('')
    get('new', 401)
    assert len(calls) == 4


def test_unknown_user_cannot_forge_a_line_of_the_log(basic_auth, caplog):
    caplog.set_level(logging.INFO)
    login = base64.b64encode(b'no\none:x').decode()
    response = webob.Request.blank(URL, headers={
        'Authorization': f'Basic {login}'}).get_response(
            middleware.ReservationsMiddleware(webob.exc.HTTPNotFound()))
    assert response.status_code == 401
    assert r'User no\none not found' in caplog.text


@pytest.mark.parametrize('headers', [[], ['X-Mine', version.HEADER]])
def test_cors_exposes_the_versions(set_option, headers):
    set_option(group='cors', expose_headers=headers)
    application = middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())
    response = webob.Request.blank(URL, headers={
        'Origin': ORIGIN}).get_response(application)
    assert sorted(
        response.headers['Access-Control-Expose-Headers'].split(',')
    ) == sorted({
        *headers, version.HEADER, version.MIN_HEADER, version.MAX_HEADER,
        version.OWN_HEADER})


def test_client_adds_no_log_filter():
    importlib.reload(client)
    assert http.LOG.filters == []


def test_missing_library_of_the_quota_is_logged(set_option, caplog,
                                                monkeypatch):
    set_option('reservations', quota='unified_limits')
    middleware.ReservationsMiddleware(None)
    assert 'oslo.limit' not in caplog.text
    # This makes the import fail.
    monkeypatch.setitem(sys.modules, 'oslo_limit', None)
    middleware.ReservationsMiddleware(None)
    assert 'run "pip install oslo.limit"' in caplog.text
