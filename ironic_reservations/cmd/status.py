# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-status: check that an installation is ready."""

import datetime
import functools
import sys

from alembic import runtime
from alembic import script
from oslo_db import exception as db_exc
from oslo_upgradecheck import upgradecheck
from oslo_utils import timeutils
import sqlalchemy as sa

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import policy
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import cluster
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import tables
from ironic_reservations.reservations import quota

# Seconds by which the clocks of this host and of the database may differ.
_CLOCKS = 5

_SUCCESS = upgradecheck.Result(upgradecheck.Code.SUCCESS)


def _warning(details):
    return upgradecheck.Result(upgradecheck.Code.WARNING, details)


def _failure(details):
    return upgradecheck.Result(upgradecheck.Code.FAILURE, details)


def _check(check):
    """Decorate a check: a database that cannot be used is a failure."""
    @functools.wraps(check)
    def wrapped(self):
        try:
            return check(self)
        except (exception.ReservationsError, db_exc.DBError, ImportError,
                sa.exc.SQLAlchemyError) as error:
            return _failure(f'the database cannot be used: {error}')
    return wrapped


class Checks(upgradecheck.UpgradeCommands):
    """The checks to pass before Ironic's API is started or restarted."""

    @_check
    def _schema(self):
        """Check that the tables and columns that we read and write exist."""
        name = sa.make_url(conf.CONF.database.connection).get_backend_name()
        if name not in ('mariadb', 'mysql', 'sqlite'):
            return _failure(
                f'{name} is not supported, because Ironic has dropped it: use '
                f'MariaDB, MySQL or SQLite')
        found = list(tables.problems(engine.connect()))
        return _failure('; '.join(found)) if found else _SUCCESS

    @_check
    def _revision(self):
        """Check that our tables are at the newest revision."""
        with engine.connect().connect() as connection:
            newest = script.ScriptDirectory.from_config(
                dbsync.alembic(connection)).get_current_head()
            current = runtime.migration.MigrationContext.configure(
                connection, opts={'version_table': models.VERSION_TABLE}
            ).get_current_revision()
        if current == newest:
            return _SUCCESS
        return _failure(
            f'revision is {current}, newest is {newest}: run '
            f'"ironic-reservations-dbsync upgrade"')

    def _middleware(self):
        """Check that ironic.conf tells Ironic to load the plugin."""
        if 'reservations' in conf.CONF.api.middleware:
            return _SUCCESS
        return _warning(
            '"[api] middleware" does not name "reservations": Ironic will '
            'not serve /v1/reservations by itself')

    @_check
    def _stale_reads(self):
        """Check that a Galera member reads what the others have written."""
        with engine.connect().connect() as connection:
            found = {} if connection.dialect.name != 'mysql' else dict(
                connection.exec_driver_sql(
                    'SHOW SESSION VARIABLES WHERE Variable_name IN '
                    "('wsrep_on', 'wsrep_provider', 'wsrep_sync_wait')"
                ).all())
        if (found.get('wsrep_on') != 'ON'
                or found['wsrep_provider'] in ('', 'none')
                or int(found['wsrep_sync_wait']) & cluster.WAIT_FOR_READS):
            return _SUCCESS
        return _warning(
            'a Galera cluster without "[database] mysql_wsrep_sync_wait = 1": '
            'a request through one member may miss what was just written '
            'through another; all API hosts must use the same one')

    @_check
    def _clocks(self):
        """Check that the clocks of this host and of the database agree.

        Leases go by the database's, logs and tokens by the host's.
        """
        with engine.connect().connect() as connection:
            theirs = connection.scalar(sa.select(functions.utcnow()))
        apart = abs(timeutils.utcnow() - theirs)
        if apart <= datetime.timedelta(seconds=_CLOCKS):
            return _SUCCESS
        return _warning(
            f'the clocks of this host and of the database are {apart} apart')

    def _policy_names(self):
        """Check that the policy file names no rule of ours that is unknown."""
        enforcer = policy.get_enforcer()
        try:
            enforcer.load_rules()
        except Exception as error:
            return _failure(f'the policy file cannot be read: {error}')
        known = {rule.name for rule in policy.list_rules()}
        unknown = sorted(name for name in enforcer.file_rules
                         if name.startswith('baremetal:reservation:')
                         and name not in known)
        if not unknown:
            return _SUCCESS
        return _warning('the policy file names rules that do not exist: '
                        + ', '.join(unknown))

    def _quota(self):
        """Check that the limits of projects can be read, if there are any."""
        if conf.CONF.reservations.quota != quota.UNIFIED_LIMITS:
            return _SUCCESS
        try:
            registered = quota.registered()
        except exception.LimitsNotKnown as error:
            return _failure(
                f'{error.__cause__ or error}; nobody who is bound to a '
                f'project can reserve a node: see [oslo_limit]')
        if constants.TOTAL_LIMIT in registered:
            return _SUCCESS
        return _warning(
            f'Keystone has no registered limit {constants.TOTAL_LIMIT} of our '
            f'service and region: nobody who is bound to a project can '
            f'reserve a node')

    def _projects(self):
        """Check that one project cannot hold all nodes for good."""
        ours = conf.CONF.reservations
        if ours.quota != 'none' or ours.require_lease:
            return _SUCCESS
        return _warning(
            'neither "[reservations] quota" nor "require_lease" is set: a '
            'project may hold all nodes that it owns or leases, without end')

    def _unowned(self):
        """Check that a project cannot hold all nodes that nobody owns."""
        rule = 'baremetal:reservation:create_unowned'
        enforcer = policy.get_enforcer()
        enforcer.load_rules()
        if (str(enforcer.rules[rule]) == '!'
                or conf.CONF.reservations.quota != 'none'):
            return _SUCCESS
        return _warning(
            f'the policy {rule} is open, and "[reservations] quota" is not '
            f'set: a project may hold all nodes that nobody owns or leases')

    def _service_role(self):
        """Check that compute services may hold a node for a server."""
        service = context.RequestContext(
            roles=['service'], project_id='service', overwrite=False,
            project_name=conf.CONF.rbac_service_project_name)
        system = context.RequestContext(
            roles=['service'], system_scope='all', overwrite=False)
        in_project, in_system = (all(caller.may(rule) for rule in (
            'create', 'create_restricted', 'delete', 'list_all', 'capacity'))
            for caller in (service, system))
        if in_project and in_system:
            return _SUCCESS
        where = ('in system scope' if not in_system else
                 'in the service project, because [DEFAULT] '
                 'rbac_service_role_elevated_access is not set')
        return _warning(
            f'the role "service" may hold no node {where}: this is right '
            f'where nova-compute has another role or scope')

    _upgrade_checks = (('Database schema', _schema),
                       ('Database revision', _revision),
                       ('Stale reads', _stale_reads),
                       ('Clocks', _clocks),
                       ('Policy rules', _policy_names),
                       ('Service role', _service_role),
                       ('Quota', _quota),
                       ('Projects', _projects),
                       ('Nodes of nobody', _unowned),
                       ('API plugin', _middleware))


@cmd.command
def main():
    conf.register_opts()
    return upgradecheck.main(conf.CONF, project='ironic',
                             upgrade_command=Checks())


if __name__ == '__main__':
    sys.exit(main())
