# SPDX-License-Identifier: Apache-2.0
"""MySQL's server, which Debian's releases do not have: only its suite "sid".

It is unpacked beside its own C library into ``.tox/mysql``, once for all runs
of the tests. Nothing of it is installed, and nothing else on the machine
changes.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

_TREE = pathlib.Path(__file__).parent.parent / '.tox' / 'mysql'

_PACKAGE = 'mysql-server-core'

# What apt reads, writes and keeps stays in a directory of its own. An empty
# status lets it fetch the C library, too.
_APT = '''
Dir::Etc::sourcelist "{directory}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "{directory}/lists";
Dir::State::status "{directory}/status";
Dir::Cache "{directory}/cache";
Acquire::Languages "none";
APT::Install-Recommends "false";
Debug::NoLocking "true";
'''


class NotToBeHad(Exception):
    """MySQL is not installed, and cannot be unpacked here."""


def command():
    """What starts MySQL's server, as two lists of words.

    :returns: the program, and options that it needs behind all others.
    :raises: NotToBeHad.
    """
    installed = shutil.which('mysqld', path=f'{os.environ["PATH"]}:/usr/sbin')
    # MariaDB's program has this name, too.
    if installed and 'MariaDB' not in _output(installed, '--version'):
        return [installed], []
    _TREE.parent.mkdir(exist_ok=True)
    with open(f'{_TREE}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _TREE.exists():
            _unpack()
    (loader,) = _TREE.glob('usr/lib/*/ld-linux-*')
    share = _TREE / 'usr/share/mysql'
    return [str(loader), '--library-path', str(loader.parent),
            str(_TREE / 'usr/sbin/mysqld')], [
        f'--basedir={_TREE}/usr', f'--lc-messages-dir={share}',
        f'--character-sets-dir={share}/charsets',
        f'--plugin-dir={_TREE}/usr/lib/mysql/plugin', '--secure-file-priv=']


def _unpack():
    with tempfile.TemporaryDirectory(dir=_TREE.parent) as directory:
        made = pathlib.Path(directory)
        for name in 'lists', 'cache/archives':
            (made / name / 'partial').mkdir(parents=True)
        (made / 'status').touch()
        (made / 'sources.list').write_text(f'deb {_mirror()} sid main\n')
        (made / 'apt.conf').write_text(_APT.format(directory=made))
        with _told():
            for words in ['update'], ['--download-only', 'install', _PACKAGE]:
                _output('apt-get', '-q', '-y', *words,
                        APT_CONFIG=f'{made}/apt.conf')
            for package in made.glob('cache/archives/*.deb'):
                _output('dpkg-deb', '-x', str(package), f'{made}/tree')
        (made / 'tree').rename(_TREE)


def _mirror():
    """The URL of the mirror that this Debian is configured to use."""
    with _told():
        urls = _output('apt-get', 'indextargets', '--format', '$(REPO_URI)',
                       'Created-By: Packages').split()
    for url in urls:
        if url.rstrip('/').endswith('/debian'):
            return url
    raise NotToBeHad('MySQL is not installed, and apt knows no Debian mirror '
                     'from which it could be unpacked')


@contextlib.contextmanager
def _told():
    try:
        yield
    except OSError as e:
        raise NotToBeHad(f'MySQL is not installed, and this is no Debian: {e}')
    except subprocess.CalledProcessError as e:
        raise NotToBeHad(f'MySQL cannot be unpacked: {" ".join(e.cmd)}: '
                         f'{e.stdout.strip()[-500:]}')


def _output(*words, **env):
    return subprocess.run(
        words, check=True, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, 'LC_ALL': 'C', **env}).stdout
