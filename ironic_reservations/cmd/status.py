# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-status: check that an installation is ready."""

import sys

from alembic import runtime
from alembic import script
from oslo_upgradecheck import upgradecheck

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import engine
from ironic_reservations.db import models

# The bit of wsrep_sync_wait that makes reads wait for other members' writes.
_WAIT_FOR_READS = 1


class Checks(upgradecheck.UpgradeCommands):
    """The checks to pass before Ironic's API is started or restarted."""

    def _schema(self):
        """Check that the tables and columns that we read and write exist."""
        found = list(engine.problems(engine.connect()))
        return (upgradecheck.Result(upgradecheck.Code.FAILURE,
                                    '; '.join(found))
                if found else upgradecheck.Result(upgradecheck.Code.SUCCESS))

    def _revision(self):
        """Check that our table is at the newest revision."""
        with engine.connect().connect() as connection:
            newest = script.ScriptDirectory.from_config(
                dbsync.alembic(connection)).get_current_head()
            current = runtime.migration.MigrationContext.configure(
                connection, opts={'version_table': models.VERSION_TABLE}
            ).get_current_revision()
        if current == newest:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        return upgradecheck.Result(
            upgradecheck.Code.FAILURE,
            f'revision is {current}, newest is {newest}: run '
            f'"ironic-reservations-dbsync upgrade"')

    def _middleware(self):
        """Check that ironic.conf tells Ironic to load the plugin."""
        if 'reservations' in conf.CONF.api.middleware:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        return upgradecheck.Result(
            upgradecheck.Code.WARNING,
            '"[api] middleware" does not name "reservations": Ironic will '
            'not serve /v1/reservations by itself')

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
                or int(found['wsrep_sync_wait']) & _WAIT_FOR_READS):
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        return upgradecheck.Result(
            upgradecheck.Code.WARNING,
            'a Galera cluster without "[database] mysql_wsrep_sync_wait = 1": '
            'a request through one member may miss what was just written '
            'through another; all API hosts must use the same one')

    _upgrade_checks = (('Database schema', _schema),
                       ('Database revision', _revision),
                       ('Stale reads', _stale_reads),
                       ('API plugin', _middleware))


@cmd.command
def main():
    conf.register_opts()
    return upgradecheck.main(conf.CONF, project='ironic',
                             upgrade_command=Checks())


if __name__ == '__main__':
    sys.exit(main())
