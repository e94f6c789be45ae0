# SPDX-License-Identifier: Apache-2.0
"""Formats the results of commands: text for people, data for programs."""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import functools
from typing import Any
from typing import NoReturn

from cliff import columns
from ironicclient import exc
from osc_lib import exceptions
from osc_lib.cli import format_columns
from osc_lib.command import command
import prettytable

from ironic_reservations import text
from ironic_reservations.osc import client

#: Column names and values, as cliff takes them from a command.
Columns = tuple[Sequence[str], Iterable[Any]]

#: Maximum number of domains that are listed in text.
_MAX_DOMAINS = 20

# In these formats cliff would write data as Python represents it, so the text
# for people is written instead.
_TEXT_FORMATS = ('csv', 'value')


class Command(command.Command):
    """A command whose argument errors are shown without its usage."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.error = functools.partial(_refuse, parser)
        return parser


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    # Some actions of osc-lib have messages of several lines.
    parser.exit(2, f'{parser.prog}: error: {" ".join(message.split())}\n'
                   f'See "{parser.prog} --help".\n')


class Lister(Command, command.Lister):
    """A command that shows a table.

    :ivar status: the exit status of the process.
    """

    status = 0

    def run(self, parsed_args: argparse.Namespace) -> int:
        super().run(parsed_args)
        return self.status

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Sequence[Any]]) -> int:
        if parsed_args.formatter in _TEXT_FORMATS:
            data = (_make_readable(row) for row in data)
        return super().produce_output(parsed_args, column_names, data)


class ShowOne(Command, command.ShowOne):
    """A command that shows one resource.

    :ivar status: the exit status of the process.
    """

    status = 0

    def run(self, parsed_args: argparse.Namespace) -> int:
        super().run(parsed_args)
        return self.status

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Any]) -> int:
        if parsed_args.formatter in _TEXT_FORMATS:
            data = _make_readable(data)
        return super().produce_output(parsed_args, column_names, data)


def _make_readable(row: Iterable[Any]) -> list[Any]:
    return [cell.human_readable()
            if isinstance(cell, columns.FormattableColumn) else cell
            for cell in row]


class Text(columns.FormattableColumn):
    """A column that shows data to programs, and a text to people."""

    def __init__(self, data: Any, text: str) -> None:
        super().__init__(data)
        self._text = text

    def human_readable(self) -> str:
        return self._text


def format_headers(names: Iterable[str]) -> list[str]:
    """Return the column headers of keys, such as Node UUID of node_uuid.

    A key such as capability:rack is not changed.
    """
    upper = {'uuid': 'UUID', 'id': 'ID', 'mb': 'MB', 'gb': 'GB',
             'vcpus': 'VCPUs', 'cpu': 'CPU'}
    return [name if ':' in name else
            ' '.join(upper.get(word, word.title())
                     for word in name.split('_')) for name in names]


def format_value(data: Any) -> Any:
    """Return data from JSON as cliff takes it in a column."""
    if isinstance(data, dict) and 'segment' in data:
        # A member's group, whose levels and policies are those of all members.
        member = {'uuid': data['uuid'], 'segment': data['segment'],
                  'domain': text.format_domain(data['domain'])}
        return Text(data, format_columns.DictColumn(member).human_readable())
    if isinstance(data, dict):
        return format_columns.DictColumn(data)
    if isinstance(data, list):
        return format_columns.ListColumn(data)
    return data


def delete_each(cmd: command.Command, idents: Iterable[str],
                delete: Callable[[str], str]) -> None:
    """Delete several resources, and print a line for each.

    :param delete: deletes one resource and returns its description.
    :raises: CommandError if one or more could not be deleted, after the
        others were deleted.
    """
    failures = []
    for ident in idents:
        try:
            print(f'Deleted {delete(ident)}', file=cmd.app.stdout)
        except client.NoPlugin:
            raise
        except (exc.ClientException, exceptions.CommandError) as error:
            failures.append(f'{ident}: {error}')
    if failures:
        raise exceptions.CommandError('\n'.join(failures))


def format_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as text; None is an empty cell."""
    table = prettytable.PrettyTable(names, align='l')
    for row in rows:
        table.add_row(['' if cell is None else cell for cell in row])
    return str(table)


def format_profiles(profiles: list[client.Data]) -> Text:
    """Return the column of hardware profiles as the API returns them."""
    free: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    # The text sums profiles that differ only in what it does not show.
    for profile in profiles:
        size = ('{resource_class}, {memory_mb} MiB, {vcpus} CPUs, {local_gb} '
                'GiB'.format(**profile))
        free[size] += profile['free']
        total[size] += profile['total']
    return Text(profiles, '\n'.join(
        f'{free[size]} free of {total[size]}: {size}' for size in total))


def format_domains(domains: list[client.Data]) -> Text:
    """Return the column of a group's domains.

    :param domains: ``value`` and ``nodes`` of each.
    """
    lines = [f'{text.format_domain(domain["value"])}: {domain["nodes"]}'
             for domain in domains[:_MAX_DOMAINS]]
    if domains[_MAX_DOMAINS:]:
        lines.append(f'and {len(domains) - _MAX_DOMAINS} more')
    return Text(domains, '\n'.join(lines))


def format_available(counts: client.Data) -> Text:
    """Return the column of a number of members or segments.

    :param counts: ``wanted`` and ``available``.
    """
    return Text(counts, '{wanted} wanted, {available} can be held'.format(
        **counts))


def format_explanation(explanation: client.Data) -> Text:
    """Return the column of the API's explanation why nodes do not match."""
    considered = explanation['considered']
    lines = [f'{considered} node{"" if considered == 1 else "s"} considered']
    if explanation['eliminated']:
        table = prettytable.PrettyTable(['Eliminated by', 'Nodes'])
        table.align.update({'Eliminated by': 'l', 'Nodes': 'r'})
        for row in explanation['eliminated']:
            table.add_row([row['by'], row['nodes']])
        lines.append(str(table))
    nearest = explanation.get('nearest')
    if nearest and 'value' in nearest:
        number = '{segments} segments, {nodes} nodes,' if (
            'segments' in nearest) else '{nodes}'
        lines.append(f'{number} could be held in {{by}} {{value}}'.format(
            **nearest))
    elif nearest:
        lines.append('{nodes} could be held without {by}'.format(**nearest))
    return Text(explanation, '\n'.join(lines))
