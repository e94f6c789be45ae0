# SPDX-License-Identifier: Apache-2.0
"""Python environments, each of which takes half a gigabyte."""

import pathlib
import sys

from tests.common import programs
from tools import services

ROOT = pathlib.Path(__file__).parents[2]
CONSTRAINTS = ROOT / 'tests' / 'install' / 'constraints'
#: Options with which the upgrade check has no warnings.
CONFIG = {'reservations': {'require_lease': 'true'}}


class Environment:
    """An environment without a pip, into which that of the tests installs.

    Python compiles a module when it is first imported. pip would compile all
    modules, most of which are never imported.
    """

    def __init__(self, path):
        self.bin = path / 'bin'
        programs.run(sys.executable, '-m', 'venv', '--without-pip', path)

    def pip(self, *args, **kwargs):
        return programs.run(sys.executable, '-m', 'pip', '--no-input',
                            '--python', self.bin / 'python', *args, **kwargs)

    def install(self, *args):
        self.pip('install', '--quiet', '--no-compile', *args)

    def freeze(self):
        return set(self.pip('freeze').splitlines())

    def run(self, program, *args, **kwargs):
        return programs.run(self.bin / program, *args, **kwargs)

    def check(self, conf_file):
        """Pass the upgrade check without warnings."""
        assert self.run('ironic-reservations-status', '--config-file',
                        conf_file, 'upgrade', 'check')

    def programs(self, monkeypatch, others=None):
        """Let the starters in tools run the programs of this environment.

        :param others: Environments for some programs, by the prefix of their
            names.
        """
        def program(name):
            for begin, environment in (others or {}).items():
                if name.startswith(begin):
                    return str(environment.bin / name)
            return str(self.bin / name)

        monkeypatch.setattr(services, 'program', program)


def constraints(path, release, lines=()):
    """Write the constraints of a release, and return the path.

    :param release: name of a file in CONSTRAINTS; None for the constraints of
        the tests, which pin SQLAlchemy only for fixtures of Nova: without it.
    :param lines: constraints that replace those of the release.
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
