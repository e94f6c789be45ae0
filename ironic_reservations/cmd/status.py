# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-status: check that an installation is ready."""

from collections.abc import Callable
import datetime
import functools
import logging
import sys

from alembic import runtime
from alembic import script
from oslo_db import exception as db_exc
from oslo_log import log
from oslo_upgradecheck import upgradecheck
from oslo_utils import timeutils
import sqlalchemy as sa

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import policy
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import cluster
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import preparation_rows
from ironic_reservations.db import tables
from ironic_reservations.reservations import quotas
from ironic_reservations.shared import constants

#: Maximum difference, in seconds, between the clocks of this host and of the
#: database.
_CLOCKS = 5

#: The variable of MariaDB and MySQL that decides whether each COMMIT waits for
#: the disk.
_FLUSH = 'innodb_flush_log_at_trx_commit'

_SUCCESS = upgradecheck.Result(upgradecheck.Code.SUCCESS)

#: A method that checks something.
_Check = Callable[['Checks'], upgradecheck.Result]


def _warning(details: str) -> upgradecheck.Result:
    return upgradecheck.Result(upgradecheck.Code.WARNING, details)


def _failure(details: str) -> upgradecheck.Result:
    return upgradecheck.Result(upgradecheck.Code.FAILURE, details)


def _use_database(check: _Check) -> _Check:
    """Decorate a check, so that it fails if the database cannot be used."""
    @functools.wraps(check)
    def run(self: 'Checks') -> upgradecheck.Result:
        try:
            return check(self)
        except (exception.ReservationsError, db_exc.DBError, ImportError,
                sa.exc.SQLAlchemyError) as error:
            return _failure('the database cannot be used: '
                            + cmd.describe_error(error))
    return run


class Checks(upgradecheck.UpgradeCommands):
    """The checks that must pass before Ironic's API is started."""

    @_use_database
    def _schema(self) -> upgradecheck.Result:
        """Check that the tables and columns that we use exist."""
        name = sa.make_url(conf.CONF.database.connection).get_backend_name()
        if name not in ('mariadb', 'mysql', 'sqlite'):
            return _failure(
                f'{name} is not supported, because Ironic has dropped it: use '
                f'MariaDB, MySQL or SQLite')
        database = engine.create_engine()
        with database.connect() as connection:
            dbsync.check_release(connection)
        problems = list(tables.find_problems(database))
        return _failure('; '.join(problems)) if problems else _SUCCESS

    @_use_database
    def _revision(self) -> upgradecheck.Result:
        """Check that our tables are at the newest revision."""
        with engine.create_engine().connect() as connection:
            if later := dbsync.check_release(connection):
                return _warning(f'a later release has made our tables, at '
                                f'{later}: this one works with them')
            newest = script.ScriptDirectory.from_config(
                dbsync.make_config(connection)).get_current_head()
            current = runtime.migration.MigrationContext.configure(
                connection, opts={'version_table': models.VERSION_TABLE}
            ).get_current_revision()
        if current == newest:
            return _SUCCESS
        return _failure(
            f'revision is {current}, newest is {newest}: run '
            f'"ironic-reservations-dbsync upgrade"')

    def _middleware(self) -> upgradecheck.Result:
        """Check that ironic.conf makes Ironic load the plugin."""
        if 'reservations' in conf.CONF.api.middleware:
            return _SUCCESS
        return _warning(
            '"[api] middleware" does not include "reservations": Ironic will '
            'not serve /v1/reservations')

    @_use_database
    def _stale_reads(self) -> upgradecheck.Result:
        """Check that reads see the writes of other members of a cluster."""
        with engine.create_engine().connect() as connection:
            variables = {} if connection.dialect.name != 'mysql' else dict(
                connection.exec_driver_sql(
                    'SHOW SESSION VARIABLES WHERE Variable_name IN '
                    "('wsrep_on', 'wsrep_provider', 'wsrep_sync_wait')"
                ).tuples().all())
        if (variables.get('wsrep_on') != 'ON'
                or variables['wsrep_provider'] in ('', 'none')
                or int(variables['wsrep_sync_wait'])
                & cluster.WAIT_FOR_READS):
            return _SUCCESS
        return _warning(
            'the database is a Galera cluster, and "[database] '
            'mysql_wsrep_sync_wait = 1" is not set: a read on one member may '
            'miss a recent write on another. Set it, or let all API hosts use '
            'the same member')

    @_use_database
    def _session(self) -> upgradecheck.Result:
        """Check that the session variables that we set have an effect."""
        with engine.create_engine().connect() as connection:
            if connection.dialect.name != 'mysql':
                return _SUCCESS
            variables = engine.get_session_variables()
            values = dict(connection.exec_driver_sql(
                'SHOW SESSION VARIABLES WHERE Variable_name IN '
                f'{tuple(variables)}').tuples().all())
            isolation = connection.get_isolation_level()
        # MySQL lacks it.
        values.setdefault('idle_transaction_timeout',
                          str(variables['idle_transaction_timeout']))
        problems = [
            f'{name} is {values.get(name)} instead of {value}'
            for name, value in variables.items()
            if values.get(name) != str(value)]
        if isolation != engine.ISOLATION:
            problems.append(f'the isolation of transactions is {isolation} '
                            f'instead of {engine.ISOLATION}')
        if not problems:
            return _SUCCESS
        return _warning(
            f'the database does not have what this plugin has set for the '
            f'session: {"; ".join(problems)}. A proxy may answer SET itself: '
            f'let it forward SET, or let Ironic connect to the database')

    @_use_database
    def _durability(self) -> upgradecheck.Result:
        """Check that a server logs all commits, and loses none if killed."""
        with engine.create_engine().connect() as connection:
            if connection.dialect.name != 'mysql':
                return _SUCCESS
            try:
                variables = dict(connection.exec_driver_sql(
                    'SHOW GLOBAL VARIABLES WHERE Variable_name IN '
                    f"('binlog_format', 'hostname', 'log_bin', '{_FLUSH}')"
                ).tuples().all())
            except (db_exc.DBError, sa.exc.DBAPIError):
                # A proxy may refuse it.
                variables = {}
        value = variables.get(_FLUSH)
        member = ('the member of the database that this check has reached ('
                  + variables.get('hostname', 'its name is not known') + ')')
        problems = []
        if value is None:
            problems.append(f'{_FLUSH} cannot be read on {member}')
        elif value != '1':
            problems.append(
                f'{_FLUSH} is {value} on {member}: acknowledged reservations '
                f'of the last second may be lost when it fails. Set it to 1 '
                f'on all members')
        if (variables.get('log_bin') == 'ON'
                and variables.get('binlog_format') == 'STATEMENT'):
            problems.append(
                f'binlog_format is STATEMENT on {member}, which then refuses '
                f'all writes of this plugin, because they use READ COMMITTED. '
                f'Set it to ROW or MIXED on all members')
        return _warning('; '.join(problems)) if problems else _SUCCESS

    @_use_database
    def _clocks(self) -> upgradecheck.Result:
        """Check that the clocks of this host and of the database agree.

        Leases use the database's clock, logs and tokens the host's.
        """
        with engine.create_engine().connect() as connection:
            database_now = connection.execute(
                sa.select(functions.utcnow())).scalar_one()
        difference = abs(timeutils.utcnow() - database_now)
        if difference <= datetime.timedelta(seconds=_CLOCKS):
            return _SUCCESS
        return _warning(
            f'the clocks of this host and of the database differ by '
            f'{difference}')

    @_use_database
    def _prepared(self) -> upgradecheck.Result:
        """Check that no available node carries something of a tenant."""
        with engine.create_engine().connect() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(
                preparation_rows.SELECT_PREPARED.subquery())).scalar_one()
        if not count:
            return _SUCCESS
        return _warning(
            f'{count} available nodes carry an instance_info, a VIF or a '
            f'volume target, and cannot be held: "ironic-reservations-manage '
            f'audit" lists them, with the commands that remove it')

    def _logging(self) -> upgradecheck.Result:
        """Check that the file of [DEFAULT] log_config_append logs errors."""
        path = conf.CONF.log_config_append
        if not path:
            return _SUCCESS
        try:
            log.setup(conf.CONF, 'ironic_reservations')
        except Exception as error:  # of any library that has a handler
            return _failure(f'"[DEFAULT] log_config_append": {error}')
        logger: logging.Logger | None = logging.getLogger(
            'ironic_reservations')
        if logger and logger.isEnabledFor(logging.ERROR):
            while logger:
                if any(handler.level <= logging.ERROR
                       and not isinstance(handler, logging.NullHandler)
                       for handler in logger.handlers):
                    return _SUCCESS
                logger = logger.parent if logger.propagate else None
        return _warning(
            f'"[DEFAULT] log_config_append = {path}" has no handler for the '
            f'errors of the logger "ironic_reservations": none is logged. '
            f'Add the logger to the file')

    def _policy_names(self) -> upgradecheck.Result:
        """Check that each rule of ours in the policy file exists."""
        enforcer = policy.get_enforcer()
        try:
            enforcer.load_rules()
        except Exception as error:
            return _failure(f'the policy file cannot be read: {error}')
        names = {rule.name for rule in policy.list_rules()}
        unknown = sorted(name for name in enforcer.file_rules
                         if name.startswith('baremetal:reservation:')
                         and name not in names)
        if not unknown:
            return _SUCCESS
        return _warning('the policy file names rules that do not exist: '
                        + ', '.join(unknown))

    def _quota(self) -> upgradecheck.Result:
        """Check that the limits of projects can be read, if they apply."""
        if conf.CONF.reservations.quota != quotas.UNIFIED_LIMITS:
            return _SUCCESS
        try:
            limits = quotas.read_registered_limits()
        except exception.LimitsNotKnown as error:
            return _failure(
                f'{error.__cause__ or error}; until this works, no '
                f'project-scoped caller can reserve a node: see [oslo_limit]')
        if constants.TOTAL_LIMIT in limits:
            return _SUCCESS
        return _warning(
            f'Keystone has no registered limit {constants.TOTAL_LIMIT} for '
            f'our service and region: no project-scoped caller can reserve a '
            f'node')

    def _projects(self) -> upgradecheck.Result:
        """Check that a project cannot hold all its nodes indefinitely."""
        ours = conf.CONF.reservations
        if ours.quota != 'none' or ours.require_lease:
            return _SUCCESS
        return _warning(
            'neither "[reservations] quota" nor "require_lease" is set: a '
            'project can hold all nodes that it owns, leases or has in a pool '
            'indefinitely')

    def _unowned(self) -> upgradecheck.Result:
        """Check that a project cannot hold all unowned nodes."""
        rule = 'baremetal:reservation:create_unowned'
        enforcer = policy.get_enforcer()
        enforcer.load_rules()
        if (str(enforcer.rules[rule]) == '!'
                or conf.CONF.reservations.quota != 'none'):
            return _SUCCESS
        return _warning(
            f'the policy {rule} allows some callers, and "[reservations] '
            f'quota" is not set: a project can hold all nodes that nobody '
            f'owns, leases or has in a pool')

    def _service_role(self) -> upgradecheck.Result:
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
            f'the role "service" may not hold nodes {where}: ignore this if '
            f'nova-compute has another role or scope')

    _upgrade_checks = (('Database schema', _schema),
                       ('Database revision', _revision),
                       ('Stale reads', _stale_reads),
                       ('Session variables', _session),
                       ('Durability', _durability),
                       ('Clocks', _clocks),
                       ('Prepared nodes', _prepared),
                       ('Logging', _logging),
                       ('Policy rules', _policy_names),
                       ('Service role', _service_role),
                       ('Quota', _quota),
                       ('Projects', _projects),
                       ('Unowned nodes', _unowned),
                       ('API plugin', _middleware))


@cmd.command
def main() -> int:
    conf.register_opts()
    log.register_options(conf.CONF)
    return upgradecheck.main(conf.CONF, project='ironic',
                             upgrade_command=Checks())


if __name__ == '__main__':
    sys.exit(main())
