# SPDX-License-Identifier: Apache-2.0
"""Unpacks the MySQL server, which only Debian's suite "sid" contains.

It is unpacked with its own C library into ``.tox/mysql``, once for all runs of
the tests. Nothing is installed, and nothing else on the machine changes.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

_TREE = pathlib.Path(__file__).parent.parent / '.tox' / 'mysql'

_PACKAGE = 'mysql-server-core'

# Keeps all files of apt in a directory. The empty status makes apt download
# the C library, too.
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


class Unavailable(Exception):
    """MySQL is not installed, and cannot be unpacked here."""


def make_command() -> tuple[list[str], list[str]]:
    """Return the command that starts MySQL's server.

    :returns: the program with its arguments, and options that must follow all
        others.
    :raises: Unavailable.
    """
    program = shutil.which('mysqld', path=f'{os.environ["PATH"]}:/usr/sbin')
    # MariaDB's program may also have this name.
    if program and 'MariaDB' not in _run(program, '--version'):
        return [program], []
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


def _unpack() -> None:
    with tempfile.TemporaryDirectory(dir=_TREE.parent) as directory:
        folder = pathlib.Path(directory)
        for name in 'lists', 'cache/archives':
            (folder / name / 'partial').mkdir(parents=True)
        (folder / 'status').touch()
        (folder / 'sources.list').write_text(
            f'deb {_find_mirror()} sid main\n')
        (folder / 'apt.conf').write_text(_APT.format(directory=folder))
        with _convert_errors():
            for words in ['update'], ['--download-only', 'install', _PACKAGE]:
                _run('apt-get', '-q', '-y', *words,
                     APT_CONFIG=f'{folder}/apt.conf')
            for package in folder.glob('cache/archives/*.deb'):
                _run('dpkg-deb', '-x', str(package), f'{folder}/tree')
        (folder / 'tree').rename(_TREE)


def _find_mirror() -> str:
    """Return the URL of the Debian mirror in the configuration of apt."""
    with _convert_errors():
        urls = _run('apt-get', 'indextargets', '--format', '$(REPO_URI)',
                    'Created-By: Packages').split()
    for url in urls:
        if url.rstrip('/').endswith('/debian'):
            return url
    raise Unavailable('MySQL is not installed, and the configuration of apt '
                      'has no Debian mirror to download it from')


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Raise Unavailable instead of the errors of subprocess."""
    try:
        yield
    except OSError as e:
        raise Unavailable(
            f'MySQL is not installed, and this is not Debian: {e}')
    except subprocess.CalledProcessError as e:
        raise Unavailable(f'MySQL cannot be unpacked: {" ".join(e.cmd)}: '
                          f'{e.stdout.strip()[-500:]}')


def _run(*words: str, **env: str) -> str:
    """Run a command, and return its output."""
    return subprocess.run(
        words, check=True, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, 'LC_ALL': 'C', **env}).stdout
