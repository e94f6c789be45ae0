# SPDX-License-Identifier: Apache-2.0
"""Python environments of their own, each of which has half a gigabyte."""

import pathlib
import sys

from tests.common import programs
from tools import services

ROOT = pathlib.Path(__file__).parents[2]
CONSTRAINTS = ROOT / 'tests' / 'install' / 'constraints'
#: With it the upgrade check has nothing to warn of.
CHECKED = {'reservations': {'require_lease': 'true'}}


class Environment:
    """One without a pip of its own: that of the tests installs into it.

    Python compiles a module when it is first imported. pip would compile all
    of them, and most are never imported.
    """

    def __init__(self, path):
        self.bin = path / 'bin'
        programs.run(sys.executable, '-m', 'venv', '--without-pip', path)

    def pip(self, *args):
        return programs.run(sys.executable, '-m', 'pip', '--no-input',
                            '--python', self.bin / 'python', *args)

    def install(self, *args):
        self.pip('install', '--quiet', '--no-compile', *args)

    def freeze(self):
        return set(self.pip('freeze').splitlines())

    def run(self, program, *args, **kwargs):
        return programs.run(self.bin / program, *args, **kwargs)

    def check(self, conf_file):
        """Pass the upgrade check, which has nothing to warn of."""
        assert self.run('ironic-reservations-status', '--config-file',
                        conf_file, 'upgrade', 'check')

    def programs(self, monkeypatch, others=None):
        """Let the starters in tools take their programs from here.

        :param others: dict of the beginnings of some programs' names, and of
            the Environment that has these.
        """
        def program(name):
            for begin, environment in (others or {}).items():
                if name.startswith(begin):
                    return str(environment.bin / name)
            return str(self.bin / name)

        monkeypatch.setattr(services, 'program', program)


def constraints(path, release, lines=()):
    """The constraints of a release, but for the packages of these lines.

    :param release: name of a file in CONSTRAINTS; None for what is tested
        together. SQLAlchemy is pinned there for the fixtures of Nova alone,
        and its newest release is taken here.
    """
    source = (CONSTRAINTS / f'{release}.txt' if release
              else ROOT / 'constraints.txt')
    others = [line.partition('==')[0].lower() for line in lines]
    if not release:
        others.append('sqlalchemy')
    path.write_text('\n'.join([*lines, *(
        line for line in source.read_text().split('\n')
        if line.partition('==')[0].lower() not in others)]))
    return path
