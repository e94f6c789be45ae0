# SPDX-License-Identifier: Apache-2.0
"""The tables of the page on performance.

A benchmark prints its tables, and writes them to files that the page includes,
so that nobody copies figures by hand.
"""

import os
import pathlib
import platform
import re

from rich import console
from rich import table

from benchmark import fleet

#: Source of the documentation, in which tables are in ``figures``, and
#: pictures in ``_images``.
SOURCE = pathlib.Path('doc/source')


def add_argument(parser):
    parser.add_argument(
        '--write', nargs='?', const=SOURCE, type=pathlib.Path,
        metavar='FOLDER',
        help='write the tables and pictures of the documentation, whose '
             f'source is in this folder (default: {SOURCE})')


def describe(conditions, *urls):
    """Return a note about the machine and the run.

    :param conditions: what else belongs to all figures of a table.
    :param urls: databases, on the sockets of their servers.
    """
    model = re.search(r'^model name\s*: (.*)', pathlib.Path(
        '/proc/cpuinfo').read_text(), re.MULTILINE)
    parts = [f'{os.cpu_count()} cores '
             f'({model[1].strip() if model else platform.machine()})']
    for url in urls:
        with fleet.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute('SELECT VERSION()')
            version, _, name = cursor.fetchone()[0].partition('-')
        parts.append(f'{"MariaDB" if "MariaDB" in name else "MySQL"} '
                     f'{version}')
    return ', '.join([*parts, conditions]) + '; all figures are of one run.'


class Page:
    """Prints tables, and writes them if there is a folder.

    :param source: folder of the documentation's source, or None.
    """

    def __init__(self, source):
        self._source = source

    def show(self, name, title, header, rows, note):
        """Print and write a table.

        :param name: name of the file; None to print the table alone.
        :param rows: texts; the first one of each is the row's title.
        :param note: see ``describe``.
        """
        if not rows:
            return
        output = table.Table(*header, title=title)
        for row in rows:
            output.add_row(*row)
        console.Console(width=160).print(output, note)
        if self._source and name:
            path = self._source / 'figures' / f'{name}.inc'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('\n'.join([
                f'.. csv-table:: {title}',
                '   :header: ' + '|'.join(f'"{cell}"' for cell in header),
                '   :delim: |', '',
                *('   ' + ' | '.join(row) for row in rows), '', note, '']))

    def draw(self, name, *args):
        """Draw a picture.

        :param name: name of a function of ``draw``.
        """
        if self._source:
            # Only this needs matplotlib.
            from benchmark import draw
            path = self._source / '_images' / f'{name}.svg'
            path.parent.mkdir(parents=True, exist_ok=True)
            getattr(draw, f'draw_{name}')(path, *args)
