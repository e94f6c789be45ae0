# SPDX-License-Identifier: Apache-2.0
"""The options of our own group, and those of Ironic's that we read."""

import os

from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log
from pbr import version

CONF = cfg.CONF

RESERVATIONS = cfg.OptGroup(
    'reservations', title='Reservations of bare metal nodes')

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
        'max_lease', default=86400, min=1, mutable=True,
        help='The longest lease in seconds that a request may ask for with '
             'expires_in.'),
    cfg.IntOpt(
        'deadline', default=10, min=1, mutable=True,
        help='Seconds for which a request tries again when others take or '
             'change what it needs. Past that it is answered with 503 and '
             'Retry-After.'),
    cfg.IntOpt(
        'capacity_ttl', default=5, min=0, mutable=True,
        help='Seconds for which a process answers GET '
             '/v1/reservations/capacity with the same counts. A request with '
             'the header "Cache-Control: no-cache" is always counted anew.'),
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
    ],
    'api': [
        cfg.IntOpt('max_limit', default=1000, mutable=True),
        cfg.StrOpt('public_endpoint', mutable=True),
        cfg.ListOpt('middleware', default=[]),
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
    log.setup(CONF, 'ironic_reservations')


def load_from_environment():
    """Load the files that FILES_VARIABLE names, else Ironic's usual one."""
    files = os.environ.get(FILES_VARIABLE, '/etc/ironic/ironic.conf')
    load([], files=[name for name in files.split(';') if name])


def list_opts():
    """For oslo-config-generator."""
    return [(RESERVATIONS, reservations_opts)]
