# SPDX-License-Identifier: Apache-2.0
"""The options of our own group, and those of Ironic's that we read."""

import os
import socket

from oslo_config import cfg
from oslo_config import types
from oslo_db import options as db_options
from oslo_log import log
from pbr import version

CONF = cfg.CONF

RESERVATIONS = cfg.OptGroup(
    'reservations', title='Reservations of bare metal nodes')

#: What [reservations] max_members may be at most: all members are held in one
#: transaction.
MOST_MEMBERS = 1024

reservations_opts = [
    cfg.StrOpt(
        'match', default='at_least',
        choices=[('at_least', 'A node is at least as large as asked for.'),
                 ('exact', 'The sizes that a request gives are equal to the '
                           "node's.")],
        mutable=True,
        help='How sizes are compared in a request whose flavor does not say '
             'it with the extra spec reservations:match.'),
    cfg.IntOpt(
        'default_lease', default=0, min=0, mutable=True,
        help='Seconds after which a reservation that says nothing else is '
             'over, if nothing has begun on its node. 0 means that it has no '
             'end. At most max_lease.'),
    cfg.IntOpt(
        'max_lease', default=2592000, min=1, mutable=True,
        help='Longest lease in seconds that a request may ask for with '
             'expires_in. The default is 30 days.'),
    cfg.BoolOpt(
        'require_lease', default=False, mutable=True,
        help='Whether callers who are bound to their project must say with '
             'expires_in how long they reserve a node, unless default_lease '
             'says it. If not, a project may hold its nodes for good.'),
    cfg.IntOpt(
        'deadline', default=10, min=1, mutable=True,
        help='Seconds for which a request tries again when others take or '
             'change what it needs. Past that it is answered with 503 and '
             'Retry-After.'),
    cfg.IntOpt(
        'avoid_failed', default=3600, min=0, mutable=True,
        help='Seconds for which a node in whose history Ironic has noted an '
             'error is held after the others that fit as well. Where the '
             'history says in which state the node was (from Ironic 39 on), '
             'errors of deployments count alone. 0 means that the history '
             'makes no difference. Where Ironic keeps none ([conductor] '
             'node_history), neither does it.'),
    cfg.ListOpt(
        'refuse_health', default=['Critical'],
        item_type=types.String(choices=['Warning', 'Critical']), mutable=True,
        help='A node is not held while the health of its hardware, as the '
             'BMC tells Ironic from 34.0 on, is one of these: Warning, '
             'Critical. Empty means that it makes no difference. A node that '
             'is not refused and whose health is not OK is held after the '
             'others that fit as well.'),
    cfg.IntOpt(
        'max_members', default=256, min=1, max=MOST_MEMBERS, mutable=True,
        help='The most reservations that a group may be given at once.'),
    cfg.StrOpt(
        'quota', default='none',
        choices=[('none', 'A project may reserve all nodes that it owns or '
                          'leases.'),
                 ('unified_limits', 'It may reserve as many as the limits '
                                    'baremetal_reservations and '
                                    'baremetal_reservations:<class> in '
                                    'Keystone say, which are read as '
                                    '[oslo_limit] says.')],
        mutable=True,
        help='How many nodes callers may reserve who are bound to their '
             'project. What others reserve for a project, such as compute '
             'services, is counted, and not limited.'),
    cfg.IntOpt(
        'capacity_ttl', default=5, min=0, mutable=True,
        help='Seconds for which a process answers GET '
             '/v1/reservations/capacity with the same counts. A request with '
             'the header "Cache-Control: no-cache" is always counted anew.'),
    cfg.StrOpt(
        'max_api_version', default='1.115', regex=r'^1\.[0-9]+$',
        help='The newest API version of the Ironic beside the application '
             'alone, as "GET /v1" of it says: the application tells clients '
             'that it supports the same. The plugin asks its Ironic instead.'),
]

# Ironic registers these options itself. In a process without Ironic, the
# application alone or a command, they are registered here, with Ironic's
# names and defaults.
ironic_opts = {
    None: [
        cfg.StrOpt('auth_strategy', default='keystone',
                   choices=['noauth', 'keystone', 'http_basic']),
        cfg.StrOpt('http_basic_auth_user_file',
                   default='/etc/ironic/htpasswd'),
        cfg.BoolOpt('rbac_service_role_elevated_access', default=False),
        cfg.StrOpt('rbac_service_project_name', default='service'),
        cfg.StrOpt('host', default=socket.gethostname()),
        cfg.StrOpt('notification_level'),
        cfg.ListOpt('versioned_notifications_topics',
                    default=['ironic_versioned_notifications']),
    ],
    'audit': [
        cfg.BoolOpt('enabled', default=False),
        cfg.StrOpt('audit_map_file',
                   default='/etc/ironic/api_audit_map.conf'),
        cfg.StrOpt('ignore_req_list', default=''),
    ],
    'healthcheck': [
        cfg.BoolOpt('enabled', default=False),
    ],
    'api': [
        cfg.IntOpt('max_limit', default=1000, mutable=True),
        cfg.StrOpt('public_endpoint', mutable=True),
        cfg.ListOpt('middleware', default=[]),
        # In KiB. Older releases have no such option.
        cfg.IntOpt('max_json_body_size_provision', default=65536,
                   mutable=True),
    ],
}

#: The environment variable that names the configuration files of the
#: application alone, separated by ";" as in Nova's OS_NOVA_CONFIG_FILES.
FILES_VARIABLE = 'OS_IRONIC_RESERVATIONS_CONFIG_FILES'


def register_opts(conf=CONF):
    """Register every option that we read, unless Ironic has done so."""
    conf.register_group(RESERVATIONS)
    conf.register_opts(reservations_opts, group=RESERVATIONS)
    for group, opts in ironic_opts.items():
        for opt in opts:
            try:
                conf.register_opt(opt, group=group)
            except cfg.DuplicateOptError:
                pass  # Ironic's own differs from ours: it has a help text.
    conf.register_opts(db_options.database_opts, group='database')


def load(args, prog='ironic-reservations', files=None):
    """Read ironic.conf, and log as it says, in a process of our own.

    Where it names no file and no journal to log to, lines go to standard
    error: oslo.log would take standard output, which is for the result of a
    command.

    :param args: command line, without the program's name.
    :param files: paths, or None to look where Ironic does.
    """
    log.register_options(CONF)
    register_opts()
    CONF(args, project='ironic', prog=prog, default_config_files=files,
         version=version.VersionInfo(
             'ironic-reservations').version_string())
    # A second destination would cost the formatting of each line again.
    CONF.set_default('use_stderr', not (
        CONF.log_file or CONF.log_dir or CONF.use_journal))
    if CONF.log_dir:
        # By itself oslo.log takes the name of the file that Python has begun
        # with, which below uWSGI is "<frozen importlib._bootstrap>".
        CONF.set_default('log_file', f'{prog}.log')
    log.setup(CONF, 'ironic_reservations')


def load_from_environment():
    """Load the files that FILES_VARIABLE names, else Ironic's usual one."""
    files = os.environ.get(FILES_VARIABLE, '/etc/ironic/ironic.conf')
    load([], files=[name for name in files.split(';') if name])


def list_opts():
    """For oslo-config-generator."""
    return [(RESERVATIONS, reservations_opts)]
