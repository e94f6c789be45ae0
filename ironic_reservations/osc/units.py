# SPDX-License-Identifier: Apache-2.0
"""Argument types of argparse.

Horizon also uses them, and has no osc-lib.
"""

import argparse
import re

from ironic_reservations.shared import text as texts

#: Largest number that the API accepts.
_LARGEST = 2**31 - 1

_SECONDS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 7 * 86400}

# Powers of 1024, as everywhere in OpenStack. "b" would be bits.
_SIZE = re.compile('([0-9]+)([KMGTkmgt])[Ii]?B?')


def parse_mib(text: str) -> int:
    """Parse a size such as 65536 or 64GiB; return MiB."""
    return _parse_size(text, 'MiB', 2, '512M or 64GiB')


def parse_gib(text: str) -> int:
    """Parse a size such as 2048 or 2TiB; return GiB."""
    return _parse_size(text, 'GiB', 3, '500G or 2TiB')


def parse_number(text: str) -> int:
    """Parse a whole number in the range of the API."""
    if not re.fullmatch('[0-9]+', text):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number')
    return _check_limit(text, int(text))


def parse_seconds(text: str) -> int:
    """Parse a time such as 600, 10m or 1h30m; return seconds.

    The API checks the upper limit, which depends on its configuration.
    """
    units = ''.join(f'(?:([0-9]+){unit})?' for unit in 'wdhms')
    match = re.fullmatch(units, f'{text}s' if text.isdigit() else text)
    if not text or not match:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a valid time: give seconds, or a time such as '
            f'10m, 12h, 7d or 1h30m')
    total = sum(int(amount) * _SECONDS[unit] for unit, amount in
                zip('wdhms', match.groups(), strict=True) if amount)
    if not total:
        raise argparse.ArgumentTypeError(f'"{text}" must be at least 1 second')
    return total


def parse_moment(text: str) -> str:
    """Parse a time such as 600 or 1d, or one with a time zone.

    :returns: seconds from now, or the text.
    """
    if not re.match('[0-9]{4}-', text):
        try:
            return str(parse_seconds(text))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(
                f'{error}, or a time with a time zone such as '
                f'2030-12-31T18:00Z')
    try:
        texts.parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{text}": {error}')
    return text


def parse_time(text: str) -> dict[str, int] | str:
    """Parse a time as ``parse_moment``; return it as in a body of the API.

    Seconds count from now by the clock of the database.
    """
    moment = parse_moment(text)
    if not moment.isdigit():
        return moment
    if int(moment) > _LARGEST:
        raise argparse.ArgumentTypeError(f'"{text}" is too far in the future')
    return {'in': int(moment)}


def format_moment(moment: str | None) -> str | None:
    """Return the result of ``parse_moment`` for a message."""
    return f'{moment} seconds' if moment and moment.isdigit() else moment


def parse_empty(text: str) -> str:
    """Return a text that may be empty; other options refuse that."""
    return text


def parse_domain(text: str) -> dict[str, str]:
    """Parse ``<key>=<value>``, such as ``capability:rack=r7``."""
    by, _, value = text.partition('=')
    if not by or not value:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not <key>=<value>, such as capability:rack=r7')
    return {by: value}


def parse_name(text: str) -> str:
    """Return a name; refuse several that are separated by commas."""
    if ',' in text:
        raise argparse.ArgumentTypeError(
            f'"{text}" contains a comma: repeat the option for several names')
    return text


def _parse_size(text: str, unit: str, power: int, examples: str) -> int:
    """Parse a size.

    :param unit: ``MiB`` or ``GiB``, for messages.
    :param power: power of 1024 of the unit.
    """
    if re.fullmatch('[0-9]+', text):
        return _check_limit(text, int(text))
    match = _SIZE.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a valid size: give a number of {unit}, or a '
            f'size such as {examples}')
    size = int(match[1]) * 1024**('KMGT'.index(match[2].upper()) + 1)
    if size % 1024**power:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a whole number of {unit}: give a size such as '
            f'{examples}')
    return _check_limit(text, size // 1024**power)


def _check_limit(text: str, number: int) -> int:
    if number > _LARGEST:
        raise argparse.ArgumentTypeError(
            f'"{text}" must be at most {_LARGEST}')
    return number
