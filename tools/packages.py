# SPDX-License-Identifier: Apache-2.0
"""Print the Debian packages that the tests need and this machine lacks.

The output is one line of names, which may be empty. With ``--hint`` it is a
sentence for people. Uses the standard library only, because it runs before
anything is installed.
"""

import argparse
import glob
import importlib.util
import os
import shutil

#: Packages without which "make test" skips tests.
MAKE_TEST = ('mariadb-server-core', 'mariadb-client-core', 'prometheus')

#: A program or the pattern of a file in each package. A member of a Galera
#: cluster needs the whole server package of MariaDB.
CONTENTS = {
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


def find_missing() -> list[str]:
    """Return the packages whose program or file does not exist."""
    path = f'{os.environ["PATH"]}:/usr/sbin:/usr/libexec'
    packages = [package for package, name in CONTENTS.items()
                if not (glob.glob(name) if name.startswith('/')
                        else shutil.which(name, path=path))]
    # The module venv needs this, and Debian's Python lacks it.
    if importlib.util.find_spec('ensurepip') is None:
        packages.append('python3-venv')
    return packages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--hint', action='store_true',
                        help='print a sentence for people if "make test" '
                             'skipped tests')
    packages = find_missing()
    if not parser.parse_args().hint:
        print(*packages)
    elif set(packages) & set(MAKE_TEST):
        print('Some tests were skipped. To run all tests of all suites: '
              f'apt-get install {" ".join(packages)}')


if __name__ == '__main__':
    main()
