# SPDX-License-Identifier: Apache-2.0
"""Parses the values of capabilities that a flavor requires."""

import dataclasses
import functools
import re
import threading

from oslo_utils import specs_matcher
import pyparsing

from ironic_reservations import exception

_OPERATOR = re.compile(
    r'\s*(?:s?(?:[<>!=]=|[<>])|=|<(?:in|or|all-in|range-in)>)')
# The grammar skips these one by one, for each of its alternatives.
_BLANKS = re.compile(r'[ \t\r\n]++')
_NUMERIC = ('=', '==', '!=', '<', '<=', '>', '>=')


class _Grammar(threading.local):
    """The grammar of expressions, which is not thread-safe."""

    def __init__(self) -> None:
        self.parse = specs_matcher.make_grammar().parse_string


_grammar = _Grammar()


@dataclasses.dataclass(frozen=True)
class Expression:
    """A plain value, or an operator of ``specs_matcher`` with operands.

    :param text: text in the flavor, such as ``uefi`` or ``>= 4``.
    :param operator: None for a plain value.
    """

    text: str
    operator: str | None = None
    operands: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f' {self.text}' if self.operator else f'={self.text}'

    # Flavors are few, and parsing an expression takes long.
    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, field: str, text: str) -> 'Expression':
        """Parse an expression.

        A value that does not begin with an operator is plain, and may contain
        spaces.

        :raises: InvalidInput if the operands of an operator are invalid.
        """
        if not _OPERATOR.match(text):
            return cls(text.strip())
        try:
            operator, *operands = _grammar.parse(
                _BLANKS.sub(' ', text), parse_all=True)
            if operator in _NUMERIC:
                float(operands[0])
            elif operator == '<range-in>':
                specs_matcher.op_methods[operator]('0', *operands)
        except (pyparsing.ParseException, ValueError, TypeError):
            raise exception.InvalidInput(
                field, 'must be a value or an expression such as ">= 4", '
                       '"<in> word" or "<or> a <or> b"', got=text)
        return cls(text.strip(), operator, tuple(operands))
