# SPDX-License-Identifier: Apache-2.0
"""SQL functions that databases spell differently.

The SQL for MariaDB also works on MySQL 8, except for the functions of JSON,
which read unusual texts differently.
"""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql import expression
from sqlalchemy.sql.compiler import SQLCompiler

_Element = expression.FunctionElement[Any]


class utcnow(_Element):
    """The time of the database in UTC, in seconds.

    We store no other time, so that the clocks of the API hosts do not matter.
    """

    type = sa.DateTime()
    inherit_cache = True


@compiler.compiles(utcnow)
def _utcnow(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    return 'UTC_TIMESTAMP()'


@compiler.compiles(utcnow, 'sqlite')
def _utcnow_sqlite(element: _Element, compiler: SQLCompiler,
                   **kw: Any) -> str:
    # With the fraction that SQLAlchemy writes: SQLite compares times as text.
    return "strftime('%Y-%m-%d %H:%M:%S.000000', 'now')"


#: Select the time of the database.
NOW = sa.select(utcnow())


class readable_utcnow(utcnow):
    """The time in UTC, in an UPDATE; ``read_utcnow`` returns it afterwards."""

    inherit_cache = True


@compiler.compiles(readable_utcnow, 'mysql', 'mariadb')
def _readable_utcnow(element: _Element, compiler: SQLCompiler,
                     **kw: Any) -> str:
    # The argument of LAST_INSERT_ID() is sent to the client with the number of
    # rows, at no cost. INSERT ... RETURNING would also work, but reading its
    # result takes a tenth of the worker's time for a hold.
    return ("TIMESTAMPADD(SECOND, LAST_INSERT_ID(UNIX_TIMESTAMP()), "
            "'1970-01-01')")


def read_utcnow(connection: sa.Connection,
                result: sa.CursorResult[Any]) -> datetime.datetime:
    """Return the time that an UPDATE has written as ``readable_utcnow``.

    :param connection: still in the transaction of the UPDATE.
    :param result: must have changed a row.
    :returns: naive datetime.
    """
    # It is 0 if a trigger on the table has run other statements.
    seconds = connection.dialect.name == 'mysql' and result.lastrowid
    if not seconds:
        now: datetime.datetime = connection.execute(NOW).scalar_one()
        return now
    return datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).replace(tzinfo=None)


class same_text(_Element):
    """Whether a column has the same bytes as a text, or both are NULL.

    MariaDB's collations ignore case, accents and trailing spaces.
    """

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(same_text)
def _same_text(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    column, text = element.clauses
    return (f'CAST({compiler.process(column, **kw)} AS BINARY) <=> '
            f'CAST({compiler.process(text, **kw)} AS BINARY)')


@compiler.compiles(same_text, 'sqlite')
def _same_text_sqlite(element: _Element, compiler: SQLCompiler,
                      **kw: Any) -> str:
    column, text = element.clauses
    return (f'{compiler.process(column, **kw)} IS '
            f'{compiler.process(text, **kw)}')


class optional(_Element):
    """A column of Ironic's, or NULL if this Ironic does not have it.

    ``tables.check_tables`` finds the missing columns, and
    ``set_missing_columns`` stores them in the dialect, which belongs to one
    engine. So statements are compiled once for each database.
    """

    type = sa.String()
    inherit_cache = True


# Attribute of a dialect.
_MISSING = 'ironic_reservations_missing'


def set_missing_columns(engine: sa.Engine, columns: Iterable[str]) -> None:
    """Store which optional columns the database of an engine lacks.

    :param columns: names with their table, such as ``nodes.health``.
    """
    setattr(engine.dialect, _MISSING, frozenset(columns))


def is_missing(column: Any, compiler: SQLCompiler) -> bool:
    """Return whether the database lacks an optional column."""
    return str(column) in getattr(compiler.dialect, _MISSING, ())


@compiler.compiles(optional)
def _optional(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    column, = element.clauses
    if is_missing(column, compiler):
        return 'NULL'
    return compiler.process(column, **kw)


class if_present(_Element):
    """An EXISTS on an optional table; false if this Ironic lacks it.

    Arguments: the EXISTS, and the name of a column of the table.
    """

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(if_present)
def _if_present(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    condition, column = element.clauses
    if is_missing(column, compiler):
        return '(1 = 0)'
    return f'({compiler.process(condition, **kw)})'


class unless_in_capitals(_Element):
    """Whether no node carries an instance by its UUID in capitals.

    The argument is the UUID. Only SQLite checks it. The unique key on MariaDB
    and MySQL ignores case, unless an operator has changed the collation.
    """

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(unless_in_capitals)
def _unless_in_capitals(element: _Element, compiler: SQLCompiler,
                        **kw: Any) -> str:
    return '(1 = 1)'


@compiler.compiles(unless_in_capitals, 'sqlite')
def _unless_in_capitals_sqlite(element: _Element, compiler: SQLCompiler,
                               **kw: Any) -> str:
    instance = compiler.process(element.clauses, **kw)
    select = 'SELECT 1 FROM nodes AS others WHERE others.instance_uuid ='
    return f'NOT EXISTS ({select} UPPER({instance}))'


class seconds_from_now(_Element):
    """The time of the database plus the seconds in the argument."""

    type = sa.DateTime()
    inherit_cache = True


@compiler.compiles(seconds_from_now)
def _seconds_from_now(element: _Element, compiler: SQLCompiler,
                      **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f'DATE_ADD(UTC_TIMESTAMP(), INTERVAL {seconds} SECOND)'


@compiler.compiles(seconds_from_now, 'sqlite')
def _seconds_from_now_sqlite(element: _Element, compiler: SQLCompiler,
                             **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return ("strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
            f"{seconds} || ' seconds')")


class as_bytes(_Element):
    """A text as bytes, for grouping and comparing.

    The result is bytes on MariaDB and text on SQLite: see ``decode_text``.
    """

    type = sa.types.NULLTYPE
    inherit_cache = True


def decode_text(value: Any) -> Any:
    """Return a result of ``as_bytes`` as text; None for NULL."""
    return value.decode() if isinstance(value, bytes) else value


@compiler.compiles(as_bytes)
def _as_bytes(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    return f'CAST({compiler.process(element.clauses, **kw)} AS BINARY)'


@compiler.compiles(as_bytes, 'sqlite')
def _as_bytes_sqlite(element: _Element, compiler: SQLCompiler,
                     **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


class digest(_Element):
    """A short value that is equal if all arguments are equal.

    On MariaDB and MySQL it is the 32 bytes of a SHA-256, because they compare
    long texts slowly and store them on disk. QUOTE distinguishes ('ab', 'c')
    from ('a', 'bc'), and NULL from an empty text.
    """

    type = sa.types.NULLTYPE
    inherit_cache = True


def _quote_arguments(element: _Element, compiler: SQLCompiler,
                     **kw: Any) -> list[str]:
    return [f'QUOTE({compiler.process(argument, **kw)})'
            for argument in element.clauses]


@compiler.compiles(digest)
def _digest(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    arguments = ', '.join(_quote_arguments(element, compiler, **kw))
    return f"UNHEX(SHA2(CONCAT_WS(',', {arguments}), 256))"


@compiler.compiles(digest, 'sqlite')
def _digest_sqlite(element: _Element, compiler: SQLCompiler,
                   **kw: Any) -> str:
    return " || ',' || ".join(_quote_arguments(element, compiler, **kw))


# A *plain* JSON text, which all parsers read alike: well-formed by the
# database's rules, which exclude NaN and deep nesting, and without escapes,
# which can spell a key in many ways, or an invalid character.
_PLAIN = 'JSON_VALID({0}) AND INSTR({1}, CHAR(92)) = 0'


def _is_mariadb(compiler: SQLCompiler) -> bool:
    return getattr(compiler.dialect, 'is_mariadb', False)


def _is_plain_on_mysql(column: str) -> str:
    """Return the condition that a text is plain, on MySQL.

    Validating a text that is nested deeper than 100 levels is an error there,
    so the brackets are counted first.
    """
    text = f'CAST({column} AS BINARY)'
    flat = f"REPLACE(REPLACE({text}, '{{', ''), '[', '')"
    return (f'CASE WHEN LENGTH({text}) - LENGTH({flat}) < 100 '
            f'THEN {_PLAIN.format(column, text)} ELSE 0 END')


class is_plain(_Element):
    """Whether a JSON text is plain; NULL for NULL."""

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(is_plain)
def _is_plain(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    if _is_mariadb(compiler):
        return _PLAIN.format(column, f'CAST({column} AS BINARY)')
    return _is_plain_on_mysql(column)


@compiler.compiles(is_plain, 'sqlite')
def _is_plain_sqlite(element: _Element, compiler: SQLCompiler,
                     **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    return _PLAIN.format(column, column)


class property_text(_Element):
    """A value at the top of a plain JSON text, as text.

    NULL if there is none, if it is a list or an object, and if the text is
    not plain. A boolean is NULL on SQLite, a word on MySQL, and 1 or 0 on
    MariaDB. If a key is repeated, databases read the first value and Python
    the last; Ironic writes each key once.

    Arguments: the column and a path such as $.cpus.
    """

    type = sa.Text()
    inherit_cache = True


@compiler.compiles(property_text)
def _property_text(element: _Element, compiler: SQLCompiler,
                   **kw: Any) -> str:
    arguments = compiler.process(element.clauses, **kw)
    if _is_mariadb(compiler):
        return f'JSON_VALUE({arguments})'
    # MySQL's JSON_VALUE is NULL for a text of more than 512 characters, and
    # returns the text of a list or an object. JSON_EXTRACT fails on a
    # malformed text.
    column = compiler.process(list(element.clauses)[0], **kw)
    value = f'JSON_EXTRACT({arguments})'
    return (f'CASE WHEN {_is_plain_on_mysql(column)} AND '
            f"JSON_TYPE({value}) NOT IN ('ARRAY', 'OBJECT', 'NULL') "
            f'THEN JSON_UNQUOTE({value}) END')


@compiler.compiles(property_text, 'sqlite')
def _property_text_sqlite(element: _Element, compiler: SQLCompiler,
                          **kw: Any) -> str:
    arguments = compiler.process(element.clauses, **kw)
    column = compiler.process(list(element.clauses)[0], **kw)
    return (f"CASE WHEN {_PLAIN.format(column, column)} AND "
            f"json_type({arguments}) NOT IN ('array', 'object', 'true', "
            "'false') "
            f'THEN CAST(json_extract({arguments}) AS TEXT) END')


# True unless a size is the JSON value ``true``, as Ironic spells it; strings
# in a plain JSON text contain no quotes. The first condition is nearly always
# sufficient, and takes an eighth of the time of the second.
_NO_SIZE_IS_TRUE = (
    """(INSTR({1}, '": true') = 0 OR """
    """{1} NOT RLIKE '"(memory_mb|cpus|local_gb)": true')""")


class irregular_properties(_Element):
    """A JSON text that Python must parse; otherwise NULL.

    It is not plain, or a size is true on MariaDB.
    """

    type = sa.Text()
    inherit_cache = True


def _null_if_plain(plain: str, column: str) -> str:
    return f'CASE WHEN {plain} THEN NULL ELSE {column} END'


@compiler.compiles(irregular_properties)
def _irregular_properties(element: _Element, compiler: SQLCompiler,
                          **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    if not _is_mariadb(compiler):
        return _null_if_plain(_is_plain_on_mysql(column), column)
    # Searching bytes is faster than searching characters.
    text = f'CAST({column} AS BINARY)'
    return _null_if_plain(
        f'{_PLAIN} AND {_NO_SIZE_IS_TRUE}'.format(column, text), column)


@compiler.compiles(irregular_properties, 'sqlite')
def _irregular_properties_sqlite(element: _Element, compiler: SQLCompiler,
                                 **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    return _null_if_plain(_PLAIN.format(column, column), column)


class trait_set(_Element):
    """The sorted traits of the node in the outer query, comma-separated.

    MySQL truncates GROUP_CONCAT at 1,024 bytes by default: see ``engine``.
    """

    type = sa.Text()
    inherit_cache = True


@compiler.compiles(trait_set)
def _trait_set(element: _Element, compiler: SQLCompiler, **kw: Any) -> str:
    return ('(SELECT GROUP_CONCAT(trait ORDER BY trait) FROM node_traits '
            'WHERE node_traits.node_id = nodes.id)')


@compiler.compiles(trait_set, 'sqlite')
def _trait_set_sqlite(element: _Element, compiler: SQLCompiler,
                      **kw: Any) -> str:
    return ("(SELECT group_concat(trait, ',') FROM (SELECT trait FROM "
            'node_traits WHERE node_traits.node_id = nodes.id '
            'ORDER BY trait))')
