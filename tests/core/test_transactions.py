# SPDX-License-Identifier: Apache-2.0
"""The transactions write and read as the table in ``transaction`` says."""

import ast
import collections
import contextlib
import dataclasses
import itertools
import pathlib
import re
import sys

import pytest
import sqlalchemy as sa

from ironic_reservations import reservations
from ironic_reservations.db import engine
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import history
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import transaction
from tests.common import databases
from tests.common import fleets
from tests.core import interleaving
from tests.core import writes

_PACKAGE = pathlib.Path(reservations.__file__).parent


# The table

@dataclasses.dataclass(frozen=True)
class Item:
    """A database table in a row: ``name``, ``[+name]`` or ``name(mark)``.

    :param is_optional: whether only some of the transactions write it.
    :param is_new: whether one of them may only insert a row.
    """

    name: str
    is_optional: bool
    is_new: bool
    mark: str | None

    @classmethod
    def parse(cls, text):
        option, plus, name, mark = re.fullmatch(
            r'(\[?)(\+?)(\w+)(?:\((\w)\))?\]?', text).groups()
        return cls(name, bool(option), bool(plus), mark)


@dataclasses.dataclass
class Row:
    """A row: two lists of Items."""

    writes: list
    reads: list

    def match(self, names):
        """Return the Items that a transaction wrote; None if it differs."""
        items, position = [], 0
        for item in self.writes:
            if names[position:position + 1] == [item.name]:
                items.append(item)
                position += 1
            elif not item.is_optional:
                return None
        return items if position == len(names) else None

    @property
    def locks(self):
        """Tables with a row for which two such transactions wait."""
        return {item.name for item in self.writes
                if not (item.is_optional or item.is_new)}


def parse(docstring):
    """Return the Rows by their functions, and the marks that are explained."""
    rule = re.search('^=[= ]+$', docstring, re.MULTILINE)[0]
    _, _, body, legend = docstring.split(f'{rule}\n')
    starts = [match.start() for match in re.finditer('=+', rule)]
    rows = {}
    for line in body.splitlines():
        name, *cells = [line[start:end].strip() for start, end in zip(
            starts, [*starts[1:], None], strict=True)]
        if name:
            rows[name] = row = Row([], [])
        for items, cell in zip((row.writes, row.reads), cells, strict=True):
            items.extend(map(Item.parse, cell.split()))
    return rows, re.findall(r'^\((\w)\) ', legend, re.MULTILINE)


ROWS, MARKS = parse(transaction.__doc__)


# The transactions

@dataclasses.dataclass
class Record:
    """A transaction.

    :param writes: names of tables in order, each with whether the transaction
        has only inserted rows.
    :param reads: names of tables that it has read to decide.
    """

    writes: list
    reads: set


#: Functions that read what the response shows, after the last write.
READERS = {'read_reservation', '_read_back', 'read_back', '_read_group',
           '_hold_members'}

#: Names of database tables, without the prefix, by their full names. No
#: transaction writes Ironic's tables, other than ``nodes``.
NAMES = {name: name.removeprefix('reservations_')
         for name in interleaving.TABLES
         if name.startswith(('nodes', 'reservations'))}


def find_callers():
    """Yield the names of the functions in the package that are running."""
    frame = sys._getframe(1)
    while frame:
        path = pathlib.Path(frame.f_code.co_filename)
        if path.parent == _PACKAGE:
            yield path.stem, frame.f_code.co_qualname
        frame = frame.f_back


def read_statements(statements):
    """Return the Record of a transaction.

    :param statements: pairs of a text, and whether a READER runs it.
    """
    steps, reads, response_reads = [], set(), set()
    for text, is_shown in statements:
        if text.startswith('UPDATE reservations_hosts SET serial='):
            # The fence, see test_hosts.
            continue
        verb = re.match(r'UPDATE|DELETE FROM|INSERT( OR IGNORE)? INTO', text)
        # A name before a dot belongs to a column.
        names = [NAMES[name] for name in re.findall(
            r'(?<![.\w])\w+(?![.\w])', text) if name in NAMES]
        if verb:
            steps.append((names.pop(0), verb[0].startswith('INSERT')))
            # The write follows from what was read before.
            reads |= response_reads
        (response_reads if is_shown else reads).update(names)
    return Record(
        [(name, all(is_insert for _, is_insert in group)) for name, group
         in itertools.groupby(steps, lambda step: step[0])], reads)


@contextlib.contextmanager
def recording(database):
    """Yield lists of Records, by the function that begins the transaction."""
    records, current = collections.defaultdict(list), []
    begin_transaction = engine.transaction

    def note(connection, cursor, text, *args):
        current.append((text, any(
            name.rpartition('.')[2] in READERS for _, name in find_callers())))

    @contextlib.contextmanager
    def record():
        module, name = next(caller for caller in find_callers()
                            if caller != ('transaction', 'begin'))
        with begin_transaction() as connection:
            current.clear()
            yield connection
            statements = current[:]
        records[f'{module}.{name.partition(".")[0]}'].append(
            read_statements(statements))

    engine.transaction = record
    sa.event.listen(database, 'before_cursor_execute', note)
    try:
        yield records
    finally:
        sa.event.remove(database, 'before_cursor_execute', note)
        engine.transaction = begin_transaction


def make_past(table, column):
    return f"UPDATE reservations{table} SET {column} = '2001-01-01'"


#: Further transactions: the writes and statements before them, and the call.
FURTHER = [
    ([], lambda: host_leases.acquire_lease('compute-3', writes.ident('a'), 9)),
    (["DELETE FROM nodes WHERE name = 'cordoned'"], notices.sweep),
    (["DELETE FROM nodes WHERE name = 'pooled'"], pools.purge),
    (['release', make_past('_history', 'ended_at')], history.sweep),
    ([make_past('_notices', 'ends_at')], notices.sweep),
    ([make_past('', 'expires_at')], expiry.sweep),
    (['DELETE FROM reservations'], expiry.sweep),
    (['let the pool expire'], lambda: pools.update_pool(
        writes.ident('pool'), {'expires_at': None}, writes.authorize)),
    (['UPDATE reservations SET project_id = NULL'], lambda: writes.report(
        'hosted', is_failed_build=True)),
    (['UPDATE reservations_notices SET cordon = 0'],
     lambda: writes.change_notice('deployed', writes.REPORTER,
                                  starts_at=15 * writes.DAY)),
    (['record a failed build'], lambda: writes.report(
        'hosted', is_failed_build=True, uuid=writes.ident('again'))),
]


@pytest.fixture(scope='module')
def records(tmp_path_factory, shared_directory):
    """Lists of Records by function."""
    directory = tmp_path_factory.mktemp('transactions')
    database = fleets.Database(databases.create_sqlite(
        shared_directory, directory / 'sqlite'), directory)
    with interleaving.Simulator(database.engine, with_ironic=False) as (
            simulator), recording(database.engine) as records:
        for name, write in writes.WRITES.items():
            if not write.calls:
                simulator.run(name, simulator.initial)
        for preparations, function in FURTHER:
            state = simulator.initial
            simulator.restore(state)
            for preparation in preparations:
                if preparation in writes.WRITES:
                    simulator.run(preparation, simulator.initial)
                else:
                    simulator._raw.execute(preparation)
            function()
    database.engine.dispose()
    return records


def list_functions():
    """Yield the functions whose source begins a transaction."""
    for path in _PACKAGE.glob('*.py'):
        for function in ast.parse(path.read_text()).body:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                        'begin', 'transaction.begin', 'engine.transaction'):
                    yield f'{path.stem}.{function.name}'


def test_functions(records):
    """Each transaction has a row, and runs here."""
    assert {*list_functions()} - {'transaction.begin'} == (
        ROWS.keys()) == records.keys()


@pytest.mark.parametrize('name', ROWS)
def test_writes(records, name):
    """Each transaction writes the tables of its row in their order."""
    row, uses = ROWS[name], collections.defaultdict(set)
    for record in records[name]:
        items = row.match([table for table, _ in record.writes])
        assert items, record
        for number, item in enumerate(row.writes):
            uses[number].add(next((
                only_inserts for other, (_, only_inserts) in zip(
                    items, record.writes, strict=True) if other is item),
                None))
    for number, item in enumerate(row.writes):
        assert (None in uses[number]) == item.is_optional, item
        assert (True in uses[number]) == item.is_new, item
        assert uses[number] != {None}, item


@pytest.mark.parametrize('name', ROWS)
def test_reads(records, name):
    assert {item.name for item in ROWS[name].reads} == set().union(*(
        record.reads for record in records[name])) - ROWS[name].locks


def find_conflicts():
    """Yield what a transaction reads to decide, and another one writes.

    Only if they need not wait for each other.

    :returns: their functions, and the Items of both.
    """
    for reader, writer in itertools.product(ROWS, repeat=2):
        if not ROWS[reader].locks & ROWS[writer].locks:
            for read, write in itertools.product(
                    ROWS[reader].reads, ROWS[writer].writes):
                if read.name == write.name:
                    yield reader, writer, read, write


def test_conflicts():
    """One of two transactions waits, or the table says why it need not."""
    marks = set()
    for reader, writer, *items in find_conflicts():
        reasons = {item.mark for item in items} - {None}
        assert reasons, (reader, writer, items)
        marks |= reasons
    assert marks == set(MARKS)


def test_marks():
    """No reason is for a table on which no transaction decides."""
    items = [item for row in ROWS.values() for item in row.writes + row.reads]
    conflicts = [items for *_, read, write in find_conflicts()
                 for items in [read, write]]
    assert [item for item in items if item.mark and not any(
        item is other for other in conflicts)] == []
