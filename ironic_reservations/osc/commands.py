# SPDX-License-Identifier: Apache-2.0
"""Base classes of commands with ``--all-projects``."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
import contextlib
from typing import Any

from ironicclient import exc
from osc_lib import exceptions

from ironic_reservations.osc import client
from ironic_reservations.osc import identity
from ironic_reservations.osc import output
from ironic_reservations.osc import scope
from ironic_reservations.osc import suggestions
from ironic_reservations.osc import units
from ironic_reservations.shared import text


class Command(output.Command):
    """A command with ``--all-projects``."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        scope.add_all_projects(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the other arguments."""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.act(parsed_args, self.choose_auth(parsed_args))

    def choose_auth(self, args: argparse.Namespace) -> Any:
        """Return how to log in to Ironic; None for the user's own token."""
        return scope.find_auth(self, args)

    def act(self, args: argparse.Namespace, auth: Any) -> Any:
        """Perform the command.

        :param auth: see ``choose_auth``.
        :returns: columns and values, if the command shows some.
        """
        raise NotImplementedError


class Lister(Command, output.Lister):
    """A command with ``--all-projects`` that shows a table."""


class ShowOne(Command, output.ShowOne):
    """A command with ``--all-projects`` that shows one resource."""


class ListCommand(Lister):
    """A command that lists resources of the API.

    :cvar path: path of the list, such as ``reservations/hosts``.
    :cvar plural: name of the resources in messages.
    :cvar filters: options that are sent to the API, with ``project`` for a
        project's name and ``marker`` if the command has one.
    :cvar marker: type of a marker.
    :cvar columns: keys of the columns.
    :cvar details: those with ``--long``; empty without this option.
    :cvar format_cell: returns the value of a column of a row.
    """

    path: str
    plural: str
    filters: tuple[str, ...]
    marker = 'uuid'
    columns: tuple[str, ...]
    details: tuple[str, ...] = ()
    format_cell: Callable[[client.Data, str], Any] = staticmethod(
        output.format_cell)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        self.add_columns(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument('--limit', type=units.parse_number,
                            metavar='<number>',
                            help='Maximum number of entries (default: all)')
        if 'marker' in self.filters:
            parser.add_argument('--marker', metavar=f'<{self.marker}>',
                                help='Show entries after this one')

    def add_columns(self, parser: argparse._ActionsContainer) -> None:
        """Add the options that choose the columns."""
        if self.details:
            parser.add_argument('--long', action='store_true',
                                help='Show all columns')

    def choose_auth(self, args: argparse.Namespace) -> Any:
        return scope.choose_auth(self, args, self.plural)

    def act(self, args: argparse.Namespace, auth: Any) -> output.Columns:
        filters = {name: getattr(args, name) for name in self.filters}
        query = {name: value for name, value in filters.items()
                 if name != 'project'}
        if 'project' in filters:
            query |= identity.find_ids(self, args, 'project')
        rows = suggestions.report_empty(
            self, self.read_rows(query, args, auth), self.plural,
            self.describe_filters(filters), auth=auth)
        projects = identity.Projects(self, auth)

        def format_cell(row: client.Data, name: str) -> Any:
            value = self.format_cell(row, name)
            return (identity.Project(value, projects)
                    if name == 'project_id' and value
                    and 'project_name' not in row else value)

        return output.format_rows(rows, self.choose_columns(args), format_cell)

    def choose_columns(self, args: argparse.Namespace) -> tuple[str, ...]:
        """Return the keys of the columns."""
        return self.details if self.details and args.long else self.columns

    def read_rows(self, query: client.Data, args: argparse.Namespace,
                  auth: Any) -> Iterable[client.Data]:
        """Return the resources."""
        return client.read_list(self, self.path, query, args.limit, auth=auth)

    def describe_filters(self, filters: client.Data) -> client.Data:
        """Return the filters as a message about an empty list shows them."""
        return filters


class EachCommand(Command):
    """A command that changes several resources, one after the other.

    :cvar argument: the name of the argument, and its help.
    :cvar verb: text before the description of a changed resource.
    :cvar has_own_hints: whether errors have hints of their own, instead of
        one about the scope.
    """

    argument: tuple[str, str]
    verb = 'Deleted'
    has_own_hints = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        name, help_text = self.argument
        parser.add_argument('idents', nargs='+', metavar=f'<{name}>',
                            help=help_text)

    def act(self, args: argparse.Namespace, auth: Any) -> None:
        with (contextlib.nullcontext() if self.has_own_hints
              else suggestions.suggest_all_projects(self, auth)):
            self.change_each(args, auth)

    def change_each(self, args: argparse.Namespace, auth: Any) -> None:
        """Change all resources, and print a line for each.

        :raises: CommandError if any could not be changed, after the rest was
            changed. Its cause is one of the errors, preferably of the scope.
        """
        failures: list[tuple[str, Exception]] = []
        for ident in args.idents:
            try:
                line = f'{self.verb} {self.change(ident, args, auth)}'
                print(text.escape_controls(line), file=self.app.stdout)
            except client.NoPlugin:
                raise
            except (exc.ClientException, exceptions.CommandError) as error:
                failures.append((ident, error))
        if failures:
            raise exceptions.CommandError('\n'.join(
                f'{ident}: {error}' for ident, error in failures)) from min(
                    (error for _, error in failures), key=lambda error:
                    not isinstance(error, client.OUT_OF_SCOPE))

    def change(self, ident: str, args: argparse.Namespace, auth: Any) -> str:
        """Change one resource, and return its description."""
        raise NotImplementedError
