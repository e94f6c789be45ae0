# SPDX-License-Identifier: Apache-2.0
"""How the commands show results: as text to people, as data to programs."""

import collections
import functools

from cliff import columns
from ironicclient import exc
from osc_lib import exceptions
from osc_lib.cli import format_columns
from osc_lib.command import command
import prettytable

from ironic_reservations.osc import client

#: Text shows at most so many domains one by one.
_DOMAINS = 20

#: In these formats cliff would write data as Python represents it, so the text
#: for people is written instead.
_TEXTS = ('csv', 'value')


class Command(command.Command):
    """A command whose argument errors are shown without its usage."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.error = functools.partial(_refuse, parser)
        return parser


def _refuse(parser, message):
    parser.exit(2, f'{parser.prog}: error: {message}\n'
                   f'See "{parser.prog} --help".\n')


class Lister(Command, command.Lister):
    """A command that shows a table.

    :ivar status: the exit status of the process.
    """

    status = 0

    def run(self, parsed_args):
        super().run(parsed_args)
        return self.status

    def produce_output(self, parsed_args, column_names, data):
        if parsed_args.formatter in _TEXTS:
            data = (_readable(row) for row in data)
        return super().produce_output(parsed_args, column_names, data)


class ShowOne(Command, command.ShowOne):
    """A command that shows one thing.

    :ivar status: the exit status of the process.
    """

    status = 0

    def run(self, parsed_args):
        super().run(parsed_args)
        return self.status

    def produce_output(self, parsed_args, column_names, data):
        if parsed_args.formatter in _TEXTS:
            data = _readable(data)
        return super().produce_output(parsed_args, column_names, data)


def _readable(row):
    return [each.human_readable()
            if isinstance(each, columns.FormattableColumn) else each
            for each in row]


class Text(columns.FormattableColumn):
    """A column that shows data to programs, and a text to people."""

    def __init__(self, value, text):
        super().__init__(value)
        self._text = text

    def human_readable(self):
        return self._text


def headers(names):
    """Return the column headers of keys, such as Node UUID of node_uuid.

    What operators name, as in capability:rack, is left as it is.
    """
    upper = {'uuid': 'UUID', 'id': 'ID', 'mb': 'MB', 'gb': 'GB',
             'vcpus': 'VCPUs', 'cpu': 'CPU'}
    return [name if ':' in name else
            ' '.join(upper.get(word, word.title())
                     for word in name.split('_')) for name in names]


def value(data):
    """Return a column that shows data from JSON."""
    if isinstance(data, dict):
        return format_columns.DictColumn(data)
    if isinstance(data, list):
        return format_columns.ListColumn(data)
    return data


def delete_each(cmd, idents, delete):
    """Delete several things, and print a line for each that is deleted.

    :param delete: function of an ident that deletes one thing, and returns
        what it was.
    :raises: CommandError if any could not be deleted. The others are deleted
        first.
    """
    failures = []
    for ident in idents:
        try:
            print(f'Deleted {delete(ident)}', file=cmd.app.stdout)
        except client.NoReservations:
            raise
        except (exc.ClientException, exceptions.CommandError) as error:
            failures.append(f'{ident}: {error}')
    if failures:
        raise exceptions.CommandError('\n'.join(failures))


def table(names, rows):
    """Return a table as text."""
    found = prettytable.PrettyTable(names, align='l')
    for row in rows:
        found.add_row(['' if each is None else each for each in row])
    return str(found)


def profiles(found):
    """Return the Text of hardware profiles as the API has them."""
    free, total = collections.Counter(), collections.Counter()
    # Text does not tell apart profiles that differ in other things.
    for profile in found:
        size = ('{resource_class}, {memory_mb} MiB, {vcpus} CPUs, {local_gb} '
                'GiB'.format(**profile))
        free[size] += profile['free']
        total[size] += profile['total']
    return Text(found, '\n'.join(f'{free[size]} free of {total[size]}: {size}'
                                 for size in total))


def domains(found):
    """Return the Text of a group's domains and their numbers of nodes.

    :param found: list of dicts of ``value`` and ``nodes``.
    """
    lines = [f'{"none" if each["value"] is None else each["value"]}: '
             f'{each["nodes"]}' for each in found[:_DOMAINS]]
    if found[_DOMAINS:]:
        lines.append(f'and {len(found) - _DOMAINS} more')
    return Text(found, '\n'.join(lines))


def explanation(found):
    """Return the Text of the API's explanation why nodes do not match."""
    considered = found['considered']
    lines = [f'{considered} node{"" if considered == 1 else "s"} considered']
    if found['eliminated']:
        eliminated = prettytable.PrettyTable(['Eliminated by', 'Nodes'])
        eliminated.align.update({'Eliminated by': 'l', 'Nodes': 'r'})
        for each in found['eliminated']:
            eliminated.add_row([each['by'], each['nodes']])
        lines.append(str(eliminated))
    nearest = found.get('nearest')
    if nearest and 'value' in nearest:
        lines.append('{nodes} could be held in {by} {value}'.format(**nearest))
    elif nearest:
        lines.append('{nodes} could be held without {by}'.format(**nearest))
    return Text(found, '\n'.join(lines))
