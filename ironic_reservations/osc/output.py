# SPDX-License-Identifier: Apache-2.0
"""Formats the results of commands: text for people, data for programs."""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import functools
import io
import logging
from typing import Any
from typing import NoReturn
from typing import TextIO

from cliff import columns
from cliff import utils
from cliff.formatters import table
from osc_lib.cli import format_columns
from osc_lib.command import command
import prettytable

from ironic_reservations.osc import actions
from ironic_reservations.osc import client
from ironic_reservations.osc import units
from ironic_reservations.shared import text

#: Column names and values, as cliff takes them from a command.
Columns = tuple[Sequence[str], Iterable[Any]]

#: Maximum number of domains that are listed in text.
_MAX_DOMAINS = 20

# In these formats cliff would write data as Python represents it, so the text
# for people is written instead.
_TEXT_FORMATS = ('csv', 'value')


class Command(command.Command):
    """A command whose argument errors are shown without its usage.

    A blank value is an error, because it is usually that of an unset variable
    in a script.
    """

    app_args: argparse.Namespace

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        # The action of all arguments that are added without another one.
        parser.register('action', None, actions.StoreOnce)
        vars(parser).update(
            error=functools.partial(_refuse, parser),
            parse_args=functools.partial(
                _parse_args, parser, parser.parse_args))
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        # Unlike "openstack", "baremetal" prints INFO without --verbose.
        logging.getLogger(__package__).setLevel(
            logging.NOTSET if self.app_args.verbose_level > 1
            else logging.WARNING)
        return super().run(parsed_args)


def _parse_args(parser: argparse.ArgumentParser,
                parse_args: Callable[..., argparse.Namespace],
                *args: Any) -> argparse.Namespace:
    """Parse arguments; refuse blank values, and domains of nothing."""
    namespace = parse_args(*args)
    for action in parser._actions:
        value = getattr(namespace, action.dest, None)
        if value == action.default or action.type is units.parse_empty:
            continue
        if any(isinstance(text, str) and not text.strip() for text in (
                value if isinstance(value, list) else [value])):
            parser.error(str(argparse.ArgumentError(
                action, 'must not be blank')))
    for kind in 'project', 'user':
        if (getattr(namespace, f'{kind}_domain', None)
                and getattr(namespace, kind) is None):
            parser.error(f'argument --{kind}-domain: requires --{kind}')
    return namespace


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    # Some actions of osc-lib have messages of several lines.
    parser.exit(2, f'{parser.prog}: error: {" ".join(message.split())}\n'
                   f'See "{parser.prog} --help".\n')


class _Display(Command):
    """A command that shows data.

    :ivar status: the exit status of the process.
    """

    status = 0

    def run(self, parsed_args: argparse.Namespace) -> int:
        super().run(parsed_args)
        return self.status


class Table(table.TableFormatter):
    """A table that shows its rows one below another if it is too wide."""

    def emit_list(self, column_names: Sequence[str],
                  data: Iterable[Sequence[Any]], stdout: TextIO,
                  parsed_args: argparse.Namespace) -> None:
        # Programs get the ID, and people the name.
        names = [*column_names] if 'Project Name' in column_names else [
            'Project' if name == 'Project ID' else name
            for name in column_names]
        rows = [*data]
        width = limit = parsed_args.max_width or utils.terminal_width() or 0
        # cliff wraps no headers, and does not count what they add.
        for _ in range(2):
            text = io.StringIO()
            super().emit_list(names, rows, text, argparse.Namespace(
                **{**vars(parsed_args), 'max_width': max(limit, 0)}))
            excess = text.getvalue().find('\n') - width
            if not width or excess <= 0:
                stdout.write(text.getvalue())
                return
            limit -= excess
        for row in rows:
            self.emit_one(names, row, stdout, parsed_args)


class Lister(_Display, command.Lister):
    """A command that shows a table."""

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Iterable[Sequence[Any]]) -> int:
        if isinstance(self.formatter, table.TableFormatter):
            self.formatter = Table()
        return super().produce_output(parsed_args, column_names, (
            _format_row(parsed_args.formatter, row) for row in data))


class ShowOne(_Display, command.ShowOne):
    """A command that shows one resource."""

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str],
                       data: Sequence[Any]) -> int:
        return super().produce_output(
            parsed_args, column_names,
            _format_row(parsed_args.formatter, data))


def _format_row(formatter: str, row: Sequence[Any]) -> Sequence[Any]:
    """Return the cells of a row as a formatter of cliff takes them."""
    if formatter in _TEXT_FORMATS:
        return [cell.human_readable()
                if isinstance(cell, columns.FormattableColumn)
                and not isinstance(cell.machine_readable(), str) else cell
                for cell in row]
    return _escape(row) if formatter == 'table' else row


def _escape(row: Iterable[Any]) -> list[Any]:
    """Escape control characters, which are commands to a terminal."""
    return [text.escape_controls(cell) if isinstance(cell, str) else cell
            for cell in row]


# cliff 4.2 has no generic one.
class Text(columns.FormattableColumn):  # type: ignore[type-arg]
    """A column that shows data to programs, and lines of text to people."""

    def __init__(self, data: Any, *lines: str) -> None:
        super().__init__(data)
        self._lines = lines

    def human_readable(self) -> str:
        return '\n'.join(map(text.escape_controls, self._lines))


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
        # The group of a member. Its levels and policies apply to all members.
        member = {'uuid': data['uuid'], 'segment': data['segment'],
                  'domain': text.format_domain(data['domain'])}
        return Text(data, format_columns.DictColumn(member).human_readable())
    if isinstance(data, dict):
        return Text(data, format_columns.DictColumn(data).human_readable())
    if isinstance(data, list):
        return Text(data, format_columns.ListColumn(data).human_readable())
    return data


def name_node(row: client.Data) -> str:
    """Return the name of a row's node, or its UUID if it has no name."""
    name: str = row['node_name'] or row['node_uuid']
    return name


def format_cell(row: client.Data, name: str) -> Any:
    """Return the value of a column of a row; that of an absent key is None."""
    return name_node(row) if name == 'node' else format_value(row.get(name))


def format_rows(rows: Iterable[client.Data], names: Sequence[str],
                format_cell: Callable[[client.Data, str], Any] = format_cell
                ) -> Columns:
    """Return the columns and values of rows for Lister.

    :param names: keys of the columns.
    :param format_cell: returns the value of a column.
    """
    return format_headers(names), (
        [format_cell(row, name) for name in names] for row in rows)


def format_levels(levels: list[client.Data]) -> Text:
    """Return the column of the levels of a group or a pool."""
    return Text(levels, *format_columns.ListDictColumn(
        levels).human_readable().split('\n'))


def format_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as text; None is an empty cell."""
    table = prettytable.PrettyTable(names, align='l')
    for row in rows:
        table.add_row(_escape('' if cell is None else cell for cell in row))
    return str(table)


def format_profiles(profiles: list[client.Data], number: str = 'free') -> Text:
    """Return the column of hardware profiles as the API returns them.

    :param number: the one to show: ``free``, or ``claimable`` for a claim.
    """
    usable: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    # Sum profiles that differ only in columns that the text omits.
    for profile in profiles:
        size = ('{resource_class}, {memory_mb} MiB, {vcpus} CPUs, {local_gb} '
                'GiB'.format(**profile))
        usable[size] += profile[number]
        total[size] += profile['total']
    return Text(profiles, *(
        f'{usable[size]} {number} of {total[size]}: {size}'
        for size in total))


def format_domains(domains: list[client.Data]) -> Text:
    """Return the column of a group's domains.

    :param domains: ``value`` and ``nodes`` of each.
    """
    lines = [f'{text.format_domain(domain["value"])}: {domain["nodes"]}'
             for domain in domains[:_MAX_DOMAINS]]
    if domains[_MAX_DOMAINS:]:
        lines.append(f'and {len(domains) - _MAX_DOMAINS} more')
    return Text(domains, *lines)


def format_available(counts: client.Data) -> Text:
    """Return the column of a number of members or segments.

    :param counts: ``wanted`` and ``available``.
    """
    return Text(counts, '{wanted} wanted, {available} can be held'.format(
        **counts))


def format_explanation(explanation: client.Data,
                       with_nearest: bool = True) -> Text:
    """Return the column of the API's explanation why nodes do not match.

    :param with_nearest: whether to show which single change helps most.
    """
    considered = explanation['considered']
    lines = [f'{considered} node{"" if considered == 1 else "s"} considered']
    if explanation['eliminated']:
        table = prettytable.PrettyTable(['Eliminated by', 'Nodes'])
        table.align.update({'Eliminated by': 'l', 'Nodes': 'r'})
        for row in explanation['eliminated']:
            table.add_row([text.escape_controls(row['by']), row['nodes']])
        lines += str(table).split('\n')
    nearest = explanation.get('nearest') if with_nearest else None
    if nearest and 'value' in nearest:
        number = '{segments} segments, {nodes} nodes,' if (
            'segments' in nearest) else '{nodes}'
        lines.append(f'{number} could be held in {{by}} {{value}}'.format(
            **nearest))
    elif nearest:
        lines.append('{nodes} could be held without {by}'.format(**nearest))
    return Text(explanation, *lines)
