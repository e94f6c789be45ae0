# SPDX-License-Identifier: Apache-2.0
"""SQL that the databases spell differently.

What runs on MariaDB is kept to the subset that MySQL 8 understands too, but
for the functions of JSON, which read odd texts otherwise.
"""

import datetime

import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql import expression


class utcnow(expression.FunctionElement):
    """The database's clock, UTC, one-second steps.

    Every time we store is read from it, so that the clocks of the API hosts
    do not matter.
    """

    type = sa.DateTime()
    inherit_cache = True


@compiler.compiles(utcnow)
def _utcnow(element, compiler, **kw):
    return 'UTC_TIMESTAMP()'


@compiler.compiles(utcnow, 'sqlite')
def _utcnow_sqlite(element, compiler, **kw):
    # With the fraction that SQLAlchemy writes: SQLite compares times as text.
    return "strftime('%Y-%m-%d %H:%M:%S.000000', 'now')"


_NOW = sa.select(utcnow())


class readable_utcnow(utcnow):
    """UTC now, in an UPDATE from whose reply ``time_of`` can read it."""

    inherit_cache = True


@compiler.compiles(readable_utcnow, 'mysql', 'mariadb')
def _readable_utcnow(element, compiler, **kw):
    # The value that LAST_INSERT_ID() is given comes to the client with the
    # number of rows, and costs nothing. INSERT ... RETURNING can tell the
    # time, too, but to read its result takes a tenth of the worker's time
    # for a hold.
    return ("TIMESTAMPADD(SECOND, LAST_INSERT_ID(UNIX_TIMESTAMP()), "
            "'1970-01-01')")


def read_utcnow(connection, updated):
    """The time that an UPDATE has written as ``utcnow_told``.

    :param connection: that ran it, in the same transaction.
    :param updated: the result, of a row at least.
    :returns: naive datetime.
    """
    # It is 0 where a trigger on the table has run statements of its own.
    seconds = connection.dialect.name == 'mysql' and updated.lastrowid
    if not seconds:
        return connection.scalar(_NOW)
    return datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).replace(tzinfo=None)


class same_text(expression.FunctionElement):
    """Whether a column holds the very bytes of a text, NULL included.

    MariaDB's collations ignore case, accents and trailing spaces.
    """

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(same_text)
def _same_text(element, compiler, **kw):
    column, text = element.clauses
    return (f'CAST({compiler.process(column, **kw)} AS BINARY) <=> '
            f'CAST({compiler.process(text, **kw)} AS BINARY)')


@compiler.compiles(same_text, 'sqlite')
def _same_text_sqlite(element, compiler, **kw):
    column, text = element.clauses
    return (f'{compiler.process(column, **kw)} IS '
            f'{compiler.process(text, **kw)}')


class optional(expression.FunctionElement):
    """A column of Ironic's, or NULL where this Ironic has no such column.

    ``tables.check`` looks which columns there are, and ``note_missing`` tells
    the dialect, which belongs to one engine, so that statements are compiled
    once for each database.
    """

    type = sa.String()
    inherit_cache = True


def set_missing_columns(engine, columns):
    """Note which optional columns the database of an engine lacks.

    :param columns: names, each with its table, such as ``nodes.health``.
    """
    engine.dialect.ironic_reservations_missing = frozenset(columns)


@compiler.compiles(optional)
def _optional(element, compiler, **kw):
    column, = element.clauses
    missing = getattr(compiler.dialect, 'ironic_reservations_missing', ())
    if str(column) in missing:
        return 'NULL'
    return compiler.process(column, **kw)


class if_present(expression.FunctionElement):
    """An EXISTS on an optional table; false where this Ironic lacks it.

    Arguments: the EXISTS, and the name of a column of the table.
    """

    type = sa.Boolean()
    inherit_cache = True


@compiler.compiles(if_present)
def _if_present(element, compiler, **kw):
    condition, column = element.clauses
    missing = getattr(compiler.dialect, 'ironic_reservations_missing', ())
    if str(column) in missing:
        return '(1 = 0)'
    return f'({compiler.process(condition, **kw)})'


class seconds_from_now(expression.FunctionElement):
    """A time on the database's clock. Argument: seconds."""

    type = sa.DateTime()
    inherit_cache = True


@compiler.compiles(seconds_from_now)
def _seconds_from_now(element, compiler, **kw):
    seconds = compiler.process(element.clauses, **kw)
    return f'DATE_ADD(UTC_TIMESTAMP(), INTERVAL {seconds} SECOND)'


@compiler.compiles(seconds_from_now, 'sqlite')
def _seconds_from_now_sqlite(element, compiler, **kw):
    seconds = compiler.process(element.clauses, **kw)
    return ("strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
            f"{seconds} || ' seconds')")


class as_bytes(expression.FunctionElement):
    """A text as its bytes, to be grouped and compared by them.

    The answer is bytes on MariaDB and text on SQLite: ``as_text`` reads both.
    """

    type = sa.types.NULLTYPE
    inherit_cache = True


def decode_text(value):
    return value.decode() if isinstance(value, bytes) else value


@compiler.compiles(as_bytes)
def _as_bytes(element, compiler, **kw):
    return f'CAST({compiler.process(element.clauses, **kw)} AS BINARY)'


@compiler.compiles(as_bytes, 'sqlite')
def _as_bytes_sqlite(element, compiler, **kw):
    return compiler.process(element.clauses, **kw)


class digest(expression.FunctionElement):
    """A short value that is the same where all arguments are the same.

    On MariaDB and MySQL it is the 32 bytes of a SHA-256, because they compare
    long texts slowly and keep them on the disk. QUOTE keeps ('ab', 'c') from
    ('a', 'bc'), and NULL from ''.
    """

    type = sa.types.NULLTYPE
    inherit_cache = True


def _quote_arguments(element, compiler, **kw):
    return [f'QUOTE({compiler.process(each, **kw)})'
            for each in element.clauses]


@compiler.compiles(digest)
def _digest(element, compiler, **kw):
    quoted = ', '.join(_quote_arguments(element, compiler, **kw))
    return f"UNHEX(SHA2(CONCAT_WS(',', {quoted}), 256))"


@compiler.compiles(digest, 'sqlite')
def _digest_sqlite(element, compiler, **kw):
    return " || ',' || ".join(_quote_arguments(element, compiler, **kw))


# A JSON text that every parser reads alike: well-formed by the database's
# own rules, which know no NaN and no deep nesting, and without escapes, which
# can spell a key in many ways or a character that there is not.
_PLAIN = 'JSON_VALID({0}) AND INSTR({1}, CHAR(92)) = 0'


def _is_mariadb(compiler):
    return getattr(compiler.dialect, 'is_mariadb', False)


def _is_plain_on_mysql(column):
    """Whether a text is plain, on MySQL.

    There it is an error to ask whether a text is well-formed that is nested
    deeper than 100 levels. A text with fewer brackets than that is not.
    """
    text = f'CAST({column} AS BINARY)'
    unnested = f"REPLACE(REPLACE({text}, '{{', ''), '[', '')"
    return (f'CASE WHEN LENGTH({text}) - LENGTH({unnested}) < 100 '
            f'THEN {_PLAIN.format(column, text)} ELSE 0 END')


class property_text(expression.FunctionElement):
    """A value at the top of a plain JSON text, as text.

    NULL when there is none, when it is a list or an object, and in a text
    that is not plain. A boolean is NULL on SQLite, a word on MySQL, and 1 or 0
    on MariaDB. Of a key that stands there twice the databases read
    the first and Python the last; Ironic writes each key once.

    Arguments: the column and a path such as $.cpus.
    """

    type = sa.Text()
    inherit_cache = True


@compiler.compiles(property_text)
def _property_text(element, compiler, **kw):
    arguments = compiler.process(element.clauses, **kw)
    if _is_mariadb(compiler):
        return f'JSON_VALUE({arguments})'
    # JSON_VALUE of MySQL is NULL for a text of more than 512 characters, and
    # the text of a list or an object. JSON_EXTRACT is an error for a malformed
    # one.
    column = compiler.process(list(element.clauses)[0], **kw)
    value = f'JSON_EXTRACT({arguments})'
    return (f'CASE WHEN {_is_plain_on_mysql(column)} AND '
            f"JSON_TYPE({value}) NOT IN ('ARRAY', 'OBJECT', 'NULL') "
            f'THEN JSON_UNQUOTE({value}) END')


@compiler.compiles(property_text, 'sqlite')
def _property_text_sqlite(element, compiler, **kw):
    arguments = compiler.process(element.clauses, **kw)
    column = compiler.process(list(element.clauses)[0], **kw)
    return (f"CASE WHEN {_PLAIN.format(column, column)} AND "
            f"json_type({arguments}) NOT IN ('array', 'object', 'true', "
            "'false') "
            f'THEN CAST(json_extract({arguments}) AS TEXT) END')


# A size that is true, as Ironic writes it; no string of a plain JSON text has
# a quote in it. The first condition is nearly always enough, and takes an
# eighth of the time that the second one takes.
_NO_SIZE_IS_TRUE = (
    """(INSTR({1}, '": true') = 0 OR """
    """{1} NOT RLIKE '"(memory_mb|cpus|local_gb)": true')""")


class irregular_properties(expression.FunctionElement):
    """A JSON text that is for Python to read; else NULL.

    It is not plain, or, on MariaDB, has a size that is true.
    """

    type = sa.Text()
    inherit_cache = True


def _unless(plain, column):
    return f'CASE WHEN {plain} THEN NULL ELSE {column} END'


@compiler.compiles(irregular_properties)
def _irregular_properties(element, compiler, **kw):
    column = compiler.process(element.clauses, **kw)
    if not _is_mariadb(compiler):
        return _unless(_is_plain_on_mysql(column), column)
    # Bytes are searched faster than characters.
    text = f'CAST({column} AS BINARY)'
    return _unless(f'{_PLAIN} AND {_NO_SIZE_IS_TRUE}'.format(column, text),
                   column)


@compiler.compiles(irregular_properties, 'sqlite')
def _irregular_properties_sqlite(element, compiler, **kw):
    column = compiler.process(element.clauses, **kw)
    return _unless(_PLAIN.format(column, column), column)


class trait_set(expression.FunctionElement):
    """The traits of the node in the outer query, in order, comma-separated.

    MySQL cuts GROUP_CONCAT at 1,024 bytes unless the session says otherwise:
    ``engine`` does.
    """

    type = sa.Text()
    inherit_cache = True


@compiler.compiles(trait_set)
def _trait_set(element, compiler, **kw):
    return ('(SELECT GROUP_CONCAT(trait ORDER BY trait) FROM node_traits '
            'WHERE node_traits.node_id = nodes.id)')


@compiler.compiles(trait_set, 'sqlite')
def _trait_set_sqlite(element, compiler, **kw):
    return ("(SELECT group_concat(trait, ',') FROM (SELECT trait FROM "
            'node_traits WHERE node_traits.node_id = nodes.id '
            'ORDER BY trait))')
