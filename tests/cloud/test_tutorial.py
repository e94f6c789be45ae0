# SPDX-License-Identifier: Apache-2.0
"""The commands of the tutorial print the output that it shows."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from tools import services
from tools import trial_cloud

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'doc/source/tutorial.rst'
BLOCK = re.compile(r'^\.\. code-block:: console\n\n((?: {3}.*\n)+)', re.M)
#: A command, which a backslash continues, and its output.
COMMAND = re.compile(r'^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)', re.M)
#: Names that differ between clouds: UUIDs and machines.
NAME = re.compile(r'\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b'
                  r'|\bnode-\d+\b')
TIME = re.compile(r'\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|\+00:00)')
END = 'END-OF-OUTPUT'


def commands():
    return [match for block in BLOCK.findall(PAGE.read_text())
            for match in COMMAND.findall(textwrap.dedent(block))]


class Normalizer:
    """Replaces the parts of an output that differ between clouds.

    A name becomes the number of names before it, so that the same names stand
    for the same machine. The widths of columns are ignored.
    """

    def __init__(self):
        self._names = {}

    def __call__(self, text):
        text = NAME.sub(lambda name: self._names.setdefault(
            name[0], f'name {len(self._names)}'), text)
        return re.sub(r'([ -])\1+', r'\1', TIME.sub('a time', text))


@pytest.fixture
def tree(tmp_path_factory):
    """A source tree without a cloud."""
    tree = tmp_path_factory.mktemp('tutorial')
    for name in 'Makefile', 'doc', 'tools':
        (tree / name).symlink_to(ROOT / name)
    (tree / '.tox').mkdir()
    (tree / '.tox/py3').symlink_to(sys.prefix)
    yield tree
    trial_cloud.Cloud(tree / trial_cloud.FOLDER).down()


@pytest.fixture
def enter(tree):
    """Return a function that runs a command in a shell there."""
    # Below make, another make prints the folders that it enters.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(('OS_', 'MAKE'))
                   and name not in ('ARGS', 'DIR')}
    with subprocess.Popen(
            ['bash'], cwd=tree, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment, 'PORT': str(services.free_ports(9))}) as shell:

        def enter(command):
            shell.stdin.write(f'{{ {command}}} </dev/null\necho {END}\n')
            shell.stdin.flush()
            return ''.join(itertools.takewhile(
                lambda line: line != f'{END}\n', shell.stdout))

        # Do not install again while other tests run.
        enter('make() { command make -o environment "$@"; }\n')
        yield enter
        shell.kill()


def test_the_page_is_followed(enter):
    normalize_page, normalize_output = Normalizer(), Normalizer()
    examples = commands()
    assert len(examples) > 30
    for command, text in examples:
        expected = normalize_page(text)
        output = normalize_output(enter(command))
        start, ellipsis, end = expected.partition('…\n')
        if ellipsis:  # The page leaves some text out.
            output = (output[:len(start)] + ellipsis
                      + output[len(output) - len(end):])
        assert output == expected, command
