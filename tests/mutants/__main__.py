# SPDX-License-Identifier: Apache-2.0
"""Break the code in the ways of ``mutants.yaml``, and count what is noticed.

    python -m tests.mutants [--jobs N] [NAME ...]

Each break is made in a copy of the tree, never in the tree itself, and the
tests that are named beside it are run there until one fails. That they pass
in a copy without a break is seen first. The exit status is 1 if a break is not
noticed for which tests are named, and 2 if tests fail without a break, or a
break does not fit the code any more. The breaks of Horizon's panels need
``make environment-dashboard`` before.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import typing

import yaml

from tools import services

ROOT = pathlib.Path(__file__).parents[2]
TABLE = pathlib.Path(__file__).with_name('mutants.yaml')

#: A break may have a test wait for ever.
PATIENCE = {'PYTEST_ADDOPTS': '--timeout=120', 'OS_TEST_TIMEOUT': '120'}

#: Python runs this when it starts, in each process of the tests. What stands
#: in the tree as it is imported is found there by PYTHONPATH; the rest is in
#: the table of the editable installation, whose paths it changes.
SITECUSTOMIZE = '''
import sys
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, '__module__', None))
    table = getattr(module, 'MAPPING', {{}})
    for name, path in table.items():
        table[name] = path.replace({root!r}, {copy!r})
'''

#: Prints from where each of our packages is imported.
ORIGINS = '''
import importlib.util
for name in ('ironic_reservations', 'ironic_reservations.db.migrations',
             'nova.virt.ironic_reservations'):
    print(importlib.util.find_spec(name).origin)
'''

#: The line in which pytest or testtools names a test that has failed.
FAILED = re.compile(r'^(?:FAILED|ERROR|FAIL:|ERROR:) (tests\S+)', re.MULTILINE)


class Unfit(Exception):
    """A break, or a test, that is no good for the code as it is now."""


class Mutant(typing.NamedTuple):
    """A break, as ``mutants.yaml`` has it and says what it has."""

    name: str
    sentence: str
    file: str
    old: str
    new: str
    noticed_by: list

    def broken(self, text):
        """The text of its file with the break in it.

        :raises: Unfit unless the old lines stand in the text just once.
        """
        lines, old = text.splitlines(), self.old.splitlines()
        found = [at for at in range(len(lines)) if textwrap.dedent(
            '\n'.join(lines[at:at + len(old)])).splitlines() == old]
        if len(found) != 1:
            raise Unfit(f'{self.name}: its old lines stand {len(found)} times '
                        f'in {self.file}')
        at, = found
        lines[at:at + len(old)] = textwrap.indent(
            self.new, re.match(' *', lines[at])[0]).splitlines()
        return '\n'.join([*lines, ''])


@contextlib.contextmanager
def copied(mutant=None):
    """A copy of the tree, with a break in it if one is given: its path."""
    with tempfile.TemporaryDirectory(prefix='mutant-') as folder:
        copy = pathlib.Path(folder).resolve()
        for name in subprocess.run(
                ['git', 'ls-files', '-co', '--exclude-standard', '-z'],
                cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
                ).stdout.split('\0'):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        (copy / 'sitecustomize.py').write_text(SITECUSTOMIZE.format(
            root=str(ROOT), copy=str(copy)))
        if mutant:
            path = copy / mutant.file
            path.write_text(mutant.broken(path.read_text()))
        yield copy


def run(copy, *command):
    """Run Python in a copy of the tree: the process, which has ended."""
    path = [str(copy), *filter(None, [os.environ.get('PYTHONPATH')])]
    return subprocess.run(
        [sys.executable, *command], cwd=copy, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, env={
            **os.environ, **PATIENCE, 'PYTHONPATH': os.pathsep.join(path)})


def failed(copy, tests):
    """The first of some tests to fail, and what was printed; or None.

    :param tests: ids of pytest, and dotted names of tests in tests/nova.
    """
    of_nova = [each for each in tests if '/' not in each]
    for chosen, *runner in (
            ([each for each in tests if each not in of_nova], 'pytest', '-x',
             '-q', '-rfE', '-m', 'long or not long', '-p', 'no:cacheprovider'),
            (of_nova, 'testtools.run', '--failfast')):
        done = chosen and run(copy, '-m', *runner, *chosen)
        if done and done.returncode:
            names = FAILED.findall(done.stdout)
            if done.returncode != 1 or not names:
                raise Unfit(f'{chosen} cannot be run:\n{done.stdout}')
            return names[0], done.stdout
    return None


def check(mutants):
    """See that all is well without a break, in a copy that is imported.

    :raises: Unfit.
    """
    for mutant in mutants:
        mutant.broken((ROOT / mutant.file).read_text())
    with copied() as copy:
        origins = run(copy, '-c', ORIGINS).stdout
        if origins.count(f'{copy}{os.sep}') != 3:
            raise Unfit(f'The copy in {copy} is not what is imported, but '
                        f'{origins}')
        failure = failed(copy, list(dict.fromkeys(
            test for mutant in mutants for test in mutant.noticed_by)))
    if failure:
        raise Unfit('Without a break fails {}:\n{}'.format(*failure))


def judge(mutant):
    """Say which test notices a break first; return whether one does."""
    with copied(mutant) as copy:
        failure = failed(copy, mutant.noticed_by)
    print(f'{mutant.name:32} {failure[0] if failure else "NOT NOTICED"}',
          flush=True)
    return failure is not None


def main():
    services.stop_on_signal()
    mutants = {each['name']: Mutant(**each)
               for each in yaml.safe_load(TABLE.read_text())}
    parser = argparse.ArgumentParser(prog='python -m tests.mutants')
    parser.add_argument('--jobs', type=int, default=os.cpu_count(),
                        help='how many breaks are tried at a time')
    parser.add_argument('names', nargs='*', metavar='NAME',
                        help='a break of the table (default: all)')
    args = parser.parse_args()
    if unknown := set(args.names) - mutants.keys():
        parser.error(f'not in the table: {", ".join(sorted(unknown))}')
    chosen = [mutants[name] for name in args.names or mutants]
    try:
        check(chosen)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            noticed = list(pool.map(judge, chosen))
    except Unfit as error:
        print(error)
        return 2
    print(f'{len(chosen)} breaks, {sum(noticed)} of them noticed')
    return int(sum(noticed) < sum(bool(each.noticed_by) for each in chosen))


if __name__ == '__main__':
    sys.exit(main())
