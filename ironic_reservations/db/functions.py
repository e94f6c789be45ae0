# SPDX-License-Identifier: Apache-2.0
"""SQL that the databases spell differently.

What runs on MariaDB is kept to the subset that MySQL 8 understands too.
"""

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


class maybe_at_least(expression.FunctionElement):
    """Whether a number in a JSON text may be at least another.

    Never false where matching would say yes, the other way round at times:
    SQL reads ``12abc`` as 12, and a text that the database's parser refuses
    is left for matching to judge.

    Arguments: the column, the key, the least number (positive).
    """

    type = sa.Boolean()
    inherit_cache = True
    comparison = '>='


class maybe_equal(maybe_at_least):
    """Whether a number in a JSON text may be equal to another."""

    inherit_cache = True
    comparison = '='


@compiler.compiles(maybe_at_least)
@compiler.compiles(maybe_equal)
def _maybe(element, compiler, **kw):
    column, key, number = (compiler.process(clause, **kw)
                           for clause in element.clauses)
    # MySQL 8 raises an error where JSON_EXTRACT meets a malformed text,
    # MariaDB returns NULL: ask JSON_VALID first for the one, and take NULL
    # for "perhaps" for both.
    value = f'JSON_UNQUOTE(JSON_EXTRACT({column}, {key}))'
    return (f'CASE WHEN COALESCE(JSON_VALID({column}), 0) = 0 THEN 1'
            f' ELSE CAST({value} AS DECIMAL(40, 18))'
            f' {element.comparison} {number} END')


@compiler.compiles(maybe_at_least, 'sqlite')
@compiler.compiles(maybe_equal, 'sqlite')
def _maybe_sqlite(element, compiler, **kw):
    column, key, number = (compiler.process(clause, **kw)
                           for clause in element.clauses)
    return (f'CASE WHEN coalesce(json_valid({column}), 0) = 0 THEN 1'
            f' ELSE CAST(json_extract({column}, {key}) AS REAL)'
            f' {element.comparison} {number} END')
