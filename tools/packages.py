# SPDX-License-Identifier: Apache-2.0
"""Which of Debian's packages the tests need that this machine lacks.

Printed as one line of names, empty where none is missing. With ``--hint`` it
is a sentence for a person instead. It needs Python's standard library alone,
because it runs before anything is installed.
"""

import argparse
import glob
import importlib.util
import os
import shutil

#: Without these packages "make test" leaves tests out.
OF_EVERY_DAY = ('mariadb-server-core', 'mariadb-client-core', 'prometheus')

#: What each package brings: a program on the PATH of servers, or a pattern of
#: a file. A member of a Galera cluster needs all of MariaDB's server package.
BROUGHT = {
    'mariadb-server': 'wsrep_sst_rsync',
    'mariadb-server-core': 'mariadbd',
    'mariadb-client-core': 'mariadb',
    'galera-4': '/usr/lib/galera/libgalera_smm.so',
    'rsync': 'rsync',
    'haproxy': 'haproxy',
    'libfaketime': '/usr/lib/*/faketime/libfaketimeMT.so.1',
    'prometheus': 'promtool',
    'rabbitmq-server': '/usr/lib/rabbitmq/bin/rabbitmq-server',
    'chromium': 'chromium',
}


def missing():
    """The packages whose program or file is not here, in order."""
    path = f'{os.environ["PATH"]}:/usr/sbin:/usr/libexec'
    packages = [package for package, what in BROUGHT.items()
                if not (glob.glob(what) if what.startswith('/')
                        else shutil.which(what, path=path))]
    # Debian's Python comes without what venv needs.
    if importlib.util.find_spec('ensurepip') is None:
        packages.append('python3-venv')
    return packages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hint', action='store_true',
                        help='say it to a person, or nothing')
    packages = missing()
    left_out = [each for each in packages if each in OF_EVERY_DAY]
    if not parser.parse_args().hint:
        print(*packages)
    elif left_out:
        print('Tests were left out. All of them, those of the other suites '
              f'too, run after: apt-get install {" ".join(packages)}')


if __name__ == '__main__':
    main()
