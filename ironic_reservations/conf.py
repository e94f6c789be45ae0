# SPDX-License-Identifier: Apache-2.0
"""The options in our own group, and the options of Ironic that we read."""

from collections.abc import Sequence
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

#: Limit of [reservations] max_members, because one transaction holds all
#: members.
MOST_MEMBERS = 1024

reservations_opts = [
    cfg.StrOpt(
        'match', default='at_least',
        choices=[('at_least', 'A node is at least as large as requested.'),
                 ('exact', 'The sizes in a request are equal to those of the '
                           'node.')],
        mutable=True,
        help='How sizes are compared, unless a flavor overrides this with '
             'the extra spec reservations:match.'),
    cfg.IntOpt(
        'default_lease', default=0, min=0, mutable=True,
        help='Default lease in seconds. A reservation expires only while '
             'deployment has not started. 0: no expiry. Capped at max_lease.'),
    cfg.IntOpt(
        'max_lease', default=2592000, min=1, mutable=True,
        help='Maximum lease in seconds, for expires_in in a request. The '
             'default is 30 days.'),
    cfg.BoolOpt(
        'require_lease', default=False, mutable=True,
        help='Require project-scoped callers to set expires_in unless '
             'default_lease is set. If false, a project can hold nodes '
             'indefinitely.'),
    cfg.IntOpt(
        'deadline', default=10, min=1, mutable=True,
        help='Time limit in seconds for retries after conflicts with '
             'concurrent requests. When it is exceeded, the API returns 503 '
             'with Retry-After.'),
    cfg.IntOpt(
        'avoid_failed', default=3600, min=0, mutable=True,
        help='Seconds for which a node is held only after all others that '
             'match, after a failed deployment in its history, or a failed '
             'build that a compute service has recorded. 0: ignore the '
             'history, and record no failed builds. Failed deployments '
             'require that Ironic keeps a history ([conductor] '
             'node_history).'),
    cfg.IntOpt(
        'avoid_failed_nodes', default=8, min=0, mutable=True,
        help='Maximum number of nodes that have an open notice of a failed '
             'build of one project. Further ones are logged, not recorded, '
             'because the requests of the project may be the cause. 0: no '
             'limit.'),
    cfg.ListOpt(
        'refuse_health', default=['Critical'],
        item_type=types.String(choices=['Warning', 'Critical']), mutable=True,
        help='Do not hold nodes whose health is one of these: Warning, '
             'Critical. Ironic reads it from the BMC from 34.0 on. Empty: '
             'refuse no node because of its health. Nodes that are not OK, '
             'but not refused, are held only after all others that match.'),
    cfg.ListOpt(
        'dedicated_traits', default=[],
        item_type=types.String(regex=r'^[A-Z0-9_]+\*?$'), mutable=True,
        help='Traits, or prefixes of traits that end with an asterisk. A node '
             'with such traits is held only for requests that require each of '
             'them, except for claims. Placement does not know this, and '
             'counts such nodes like any other.'),
    cfg.IntOpt(
        'max_members', default=256, min=1, max=MOST_MEMBERS, mutable=True,
        help='Maximum number of members that one request may create in a '
             'group.'),
    cfg.StrOpt(
        'quota', default='none',
        choices=[('none', 'A project may reserve all nodes that it owns, '
                          'leases or has in a pool.'),
                 ('unified_limits', 'The limits baremetal_reservations and '
                                    'baremetal_reservations:<class> in '
                                    'Keystone apply, which are read with the '
                                    'options in [oslo_limit].')],
        mutable=True,
        help='How many nodes project-scoped callers may reserve. Nodes that '
             'others, such as compute services, reserve for a project count '
             'towards its limit, but are not refused.'),
    cfg.IntOpt(
        'notice_history', default=400, min=1, mutable=True,
        help='Days for which closed notices are kept. The sweep deletes older '
             'ones.'),
    cfg.IntOpt(
        'max_notices', default=32, min=1, max=256, mutable=True,
        help='Maximum number of planned and open notices of a node, without '
             'those of failed builds. It is twice as high for a notice with '
             'cordon that an operator creates, so that reports do not prevent '
             'a cordon.'),
    cfg.IntOpt(
        'project_cordons', default=0, min=0, mutable=True,
        help='Maximum number of planned and open reports of a project that '
             'have a cordon. A project may set it while the machine carries '
             'its server, or is in its pool. Reports whose cordon an operator '
             'has set count, too. 0: a project must not set a cordon.'),
    cfg.IntOpt(
        'schedule_ahead', default=300, min=0, mutable=True,
        help='Seconds before a planned notice opens in which the project that '
             'has the node can no longer move it, except to now.'),
    cfg.IntOpt(
        'history', default=90, min=0, mutable=True,
        help='Days for which reservations that have ended are kept in the '
             'history. The sweep deletes older ones. 0: record none; the '
             'sweep deletes those that are there.'),
    cfg.IntOpt(
        'capacity_ttl', default=5, min=0, mutable=True,
        help='Seconds for which a process caches the counts for GET '
             '/v1/reservations/capacity. A request with the header '
             '"Cache-Control: no-cache" bypasses the cache.'),
    cfg.StrOpt(
        'max_api_version', default='1.115', regex=r'^1\.[0-9]+$',
        help='Newest API version of Ironic, as its "GET /v1" shows it. The '
             'application announces it to clients when it runs on its own. '
             'The plugin ignores this option and asks Ironic.'),
]

# Ironic registers these options itself. In a process without Ironic, that is
# the application on its own or a command, they are registered here, with
# Ironic's names and defaults.
ironic_opts: dict[str | None, list[cfg.Opt]] = {
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
        # In KiB. Older releases do not have this option.
        cfg.IntOpt('max_json_body_size_provision', default=65536,
                   mutable=True),
    ],
}

#: The environment variable that names the configuration files of the
#: application on its own, separated by ";" as in Nova's OS_NOVA_CONFIG_FILES.
FILES_VARIABLE = 'OS_IRONIC_RESERVATIONS_CONFIG_FILES'


def register_opts(conf: cfg.ConfigOpts = CONF) -> None:
    """Register every option that we read, unless Ironic has done so."""
    conf.register_group(RESERVATIONS)
    conf.register_opts(reservations_opts, group=RESERVATIONS)
    for group, opts in ironic_opts.items():
        for opt in opts:
            try:
                conf.register_opt(opt, group=group)
            except cfg.DuplicateOptError:
                pass  # Ironic's has a help text, and therefore differs.
    conf.register_opts(db_options.database_opts, group='database')


def load(args: Sequence[str], prog: str = 'ironic-reservations',
         files: list[str] | None = None) -> None:
    """Read ironic.conf and set up logging, in a process without Ironic.

    If it configures neither a file nor the journal, log to standard error.
    oslo.log would use standard output, where commands print their result.

    :param args: command line, without the program's name.
    :param files: paths, or None to search where Ironic does.
    :raises: cfg.Error.
    """
    log.register_options(CONF)
    register_opts()
    CONF(args, project='ironic', prog=prog, default_config_files=files,
         version=version.VersionInfo(
             'ironic-reservations').version_string())
    # Each destination formats every line again, so do not add a second one.
    CONF.set_default('use_stderr', not (
        CONF.log_file or CONF.log_dir or CONF.use_journal))
    if CONF.log_dir:
        # oslo.log defaults to the name of the file that Python runs, which in
        # uWSGI is "<frozen importlib._bootstrap>".
        CONF.set_default('log_file', f'{prog}.log')
    try:
        log.setup(CONF, 'ironic_reservations')
    except Exception as error:  # of any library that has a handler
        raise cfg.Error(f'Logging cannot be set up: {error}') from error


def load_from_environment() -> None:
    """Load the files that FILES_VARIABLE names, or /etc/ironic/ironic.conf."""
    files = os.environ.get(FILES_VARIABLE, '/etc/ironic/ironic.conf')
    load([], files=[name for name in files.split(';') if name])


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(RESERVATIONS, reservations_opts)]
