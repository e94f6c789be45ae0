# SPDX-License-Identifier: Apache-2.0
"""Formats values, durations and lines of text; parses times and links."""

import datetime
import json
import re
from typing import Any
import urllib.parse

# Control characters, the line and paragraph separators of Unicode, controls of
# the direction of text, and lone surrogates, which cannot be encoded. Some of
# them begin a new line in a log, are commands to a terminal, or reorder the
# rest of a line.
_ESCAPES = {code: chr(code).encode('unicode_escape').decode() for code in (
    *range(0x20), *range(0x7f, 0xa0), 0x61c, 0x200e, 0x200f,
    *range(0x2028, 0x202f), *range(0x2066, 0x206a), *range(0xd800, 0xe000))}

# A date and a time with a zone in ISO 8601, with or without punctuation.
_TIME = re.compile(
    r'([0-9]{4}(-?)(?:[0-9]{2}\2[0-9]{2}|W[0-9]{2}\2[0-9]))[T ]'
    r'([0-9]{2}(?:(:?)[0-9]{2}(?:\4[0-9]{2}(?:[.,][0-9]+)?)?)?'
    r'(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?))')


def escape_controls(text: str) -> str:
    r"""Replace characters such as a newline by escapes (``\n``)."""
    return text.translate(_ESCAPES)


def quote_value(value: Any) -> str:
    """Return a value of a request as JSON for an error, cut if it is long."""
    # NaN and Infinity in a request become other objects.
    json_text = json.dumps(value, ensure_ascii=False,
                           default=lambda _: 'NaN or Infinity')
    return json_text if len(json_text) <= 64 else f'{json_text[:64]}...'


def format_domain(domain: str | list[str | None] | None,
                  none: str = 'none') -> str:
    """Format the domain of a member: ``r1``, or ``pod-1 / nv-7``.

    :param domain: a list if the group has segments, the outer one first.
    :param none: text for a domain that a node does not have.
    """
    return ' / '.join(none if part is None else part for part in (
        domain if isinstance(domain, list) else [domain]))


def format_duration(seconds: int) -> str:
    """Format seconds, 1 or more, as ``30d`` or ``1h30m``."""
    parts = []
    for unit, length in (('d', 86400), ('h', 3600), ('m', 60), ('s', 1)):
        number, seconds = divmod(seconds, length)
        if number:
            parts.append(f'{number}{unit}')
    return ''.join(parts)


def parse_time(text: str, others: str = '') -> datetime.datetime:
    """Return a time of a request in UTC, without a zone, in whole seconds.

    :param others: what else the request allows, for the message.
    :raises: ValueError, which says what is wrong with the text.
    """
    match = _TIME.fullmatch(text.upper())
    if not match:
        raise ValueError(f'must be {others}a time with a time zone, such as '
                         f'2030-12-31T18:00:00Z')
    try:
        date = datetime.date.fromisoformat(match[1])
    except ValueError:
        raise ValueError('there is no such day')
    try:
        time = datetime.datetime.combine(
            date, datetime.time.fromisoformat(match[3]))
        return time.astimezone(datetime.UTC).replace(tzinfo=None,
                                                     microsecond=0)
    except (ValueError, OverflowError):
        raise ValueError('is out of range')


def parse_next_link(link: str | None) -> dict[str, str]:
    """Return the query of the link to a list's next page; empty without one.

    The rest of the link is not used, because behind a proxy the host in it
    may be one that clients cannot reach.
    """
    query = urllib.parse.urlsplit(link or '').query
    return dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
