# SPDX-License-Identifier: Apache-2.0
"""The tutorial, typed into a shell as it stands, prints what it says."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from tools import cloud as tools_cloud
from tools import services

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'doc/source/tutorial.rst'
BLOCK = re.compile(r'^\.\. code-block:: console\n\n((?: {3}.*\n)+)', re.M)
#: A command, which a backslash continues, and what it prints.
COMMAND = re.compile(r'^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)', re.M)
#: What is another one in each cloud: a UUID, a machine that is taken.
NAME = re.compile(r'\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b'
                  r'|\bnode-\d+\b')
TIME = re.compile(r'\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|\+00:00)')
END = 'END-OF-OUTPUT'


def commands():
    return [found for block in BLOCK.findall(PAGE.read_text())
            for found in COMMAND.findall(textwrap.dedent(block))]


class Told:
    """What is printed, without that in which one cloud differs from another.

    A name becomes the number of names that were told before it, so that what
    is one machine on the page is one machine here, too. The widths of columns,
    which names have, are left out.
    """

    def __init__(self):
        self._names = {}

    def __call__(self, text):
        text = NAME.sub(lambda name: self._names.setdefault(
            name[0], f'name {len(self._names)}'), text)
        return re.sub(r'([ -])\1+', r'\1', TIME.sub('a time', text))


@pytest.fixture
def tree(tmp_path_factory):
    """A source tree, in which no cloud is yet."""
    tree = tmp_path_factory.mktemp('tutorial')
    for name in 'Makefile', 'doc', 'tools':
        (tree / name).symlink_to(ROOT / name)
    (tree / '.tox').mkdir()
    (tree / '.tox/py3').symlink_to(sys.prefix)
    yield tree
    tools_cloud.Cloud(tree / tools_cloud.FOLDER).down()


@pytest.fixture
def enter(tree):
    """Enter a command in a shell there; returns what it printed."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith('OS_') and name != 'DIR'}
    with subprocess.Popen(
            ['bash'], cwd=tree, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment, 'PORT': str(services.free_ports(9))}) as shell:

        def enter(command):
            shell.stdin.write(f'{{ {command}}} </dev/null\necho {END}\n')
            shell.stdin.flush()
            return ''.join(itertools.takewhile(
                lambda line: line != f'{END}\n', shell.stdout))

        # Nothing is installed anew under the feet of other tests.
        enter('make() { command make -o environment "$@"; }\n')
        yield enter
        shell.kill()


def test_the_page_is_followed(enter):
    page, here, found = Told(), Told(), commands()
    assert len(found) > 30
    for command, printed in found:
        expected, found = page(printed), here(enter(command))
        start, left_out, end = expected.partition('…\n')
        if left_out:  # What the page leaves out may be anything.
            found = (found[:len(start)] + left_out
                     + found[len(found) - len(end):])
        assert found == expected, command
