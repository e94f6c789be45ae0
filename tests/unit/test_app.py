# SPDX-License-Identifier: Apache-2.0
"""The WSGI stack, in a process that belongs to Ironic."""

import contextlib
import importlib
import logging
import sys

import bcrypt
from ironicclient.common import http
from oslo_config import cfg
from oslo_middleware import cors
import pytest
import webob

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.api import version
from ironic_reservations.osc import client as osc_client

ORIGIN = 'http://dashboard.example'
# A path that is refused without a look into the database.
URL = '/v1/reservations/not-a-uuid'


@pytest.fixture
def host():
    """The configuration of a process that has made Ironic's application."""
    conf.register_opts()
    cors.CORS(None, conf.CONF)
    with contextlib.ExitStack() as stack:
        # oslo.config's fixture would also forget the files that were read,
        # which other tests in this process have configured for all of them.
        def set_(group=None, **options):
            for name, value in options.items():
                conf.CONF.set_override(name, value, group)
                stack.callback(conf.CONF.clear_override, name, group)

        set_(auth_strategy='noauth')
        set_(group='cors', allowed_origin=[ORIGIN])
        yield set_


@pytest.fixture
def basic_auth(host, tmp_path):
    """Ironic's option names the password file, oslo.middleware's another."""
    users = tmp_path / 'htpasswd'
    users.write_bytes(b'user:' + bcrypt.hashpw(b'secret', bcrypt.gensalt(4)))
    host(auth_strategy='http_basic', http_basic_auth_user_file=str(users))


def state_of_the_process():
    """What is configured, and how every logger and its handlers are set."""
    options = {}
    for name, value in conf.CONF.items():
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            options |= {(name, key): (each, conf.CONF.get_location(key, name))
                        for key, each in value.items()}
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
def test_the_host_process_stays_as_it_was(host, basic_auth, strategy):
    host(auth_strategy=strategy)
    options, loggers = state_of_the_process()
    middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())
    # What was not there before, an option of a library, harms nobody.
    options_now, loggers_now = state_of_the_process()
    assert {key: options_now[key] for key in options} == options
    assert {name: loggers_now[name] for name in loggers} == loggers


@pytest.mark.parametrize('configured', [[], ['X-Mine', version.HEADER]])
def test_page_may_read_the_versions(host, configured):
    host(group='cors', expose_headers=configured)
    application = middleware.ReservationsMiddleware(webob.exc.HTTPNotFound())
    response = webob.Request.blank(URL, headers={
        'Origin': ORIGIN}).get_response(application)
    exposed = response.headers['Access-Control-Expose-Headers'].split(',')
    assert sorted(exposed) == sorted({
        *configured, version.HEADER, version.MIN_HEADER, version.MAX_HEADER,
        version.OWN_HEADER})


def test_commands_filter_no_log_of_the_openstack_process():
    importlib.reload(osc_client)
    assert http.LOG.filters == []


def test_a_start_says_that_the_quota_lacks_its_library(host, caplog,
                                                       monkeypatch):
    host('reservations', quota='unified_limits')
    middleware.ReservationsMiddleware(None)
    assert 'oslo.limit' not in caplog.text
    # As where it is not installed.
    monkeypatch.setitem(sys.modules, 'oslo_limit', None)
    middleware.ReservationsMiddleware(None)
    assert 'run "pip install oslo.limit"' in caplog.text
