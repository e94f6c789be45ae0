# SPDX-License-Identifier: Apache-2.0
"""Argument types of argparse: sizes, times and names as people write them."""

import argparse
import re

#: The API's own limit.
_LARGEST = 2**31 - 1

_SECONDS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 7 * 86400}

# Powers of 1024, as everywhere in OpenStack. "b" would be bits.
_SIZE = re.compile('([0-9]+)([KMGTkmgt])[Ii]?B?')


def mib(text):
    """Return a size in MiB, such as of 65536 or 64GiB."""
    return _size(text, 'MiB', 2, '512M or 64GiB')


def gib(text):
    """Return a size in GiB, such as of 2048 or 2TiB."""
    return _size(text, 'GiB', 3, '500G or 2TiB')


def number(text):
    """Return a whole number that the API takes."""
    if not re.fullmatch('[0-9]+', text):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number')
    return _bounded(text, int(text))


def seconds(text):
    """Return a time in seconds, such as of 600, 10m or 1h30m.

    The upper limit is the API's: it depends on the configuration.
    """
    units = ''.join(f'(?:([0-9]+){unit})?' for unit in 'wdhms')
    match = re.fullmatch(units, f'{text}s' if text.isdigit() else text)
    if not text or not match:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a valid time: give seconds, or a time such as '
            f'10m, 12h, 7d or 1h30m')
    value = sum(int(amount) * _SECONDS[unit] for unit, amount in
                zip('wdhms', match.groups(), strict=True) if amount)
    if not value:
        raise argparse.ArgumentTypeError(f'"{text}" must be at least 1 second')
    return value


def name(text):
    """Return one name, of an option that is repeated for several."""
    if ',' in text:
        raise argparse.ArgumentTypeError(
            f'"{text}" is one name: commas do not separate values; repeat '
            f'the option for several')
    return text


def _size(text, unit, power, examples):
    if re.fullmatch('[0-9]+', text):
        return _bounded(text, int(text))
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
    return _bounded(text, size // 1024**power)


def _bounded(text, value):
    if value > _LARGEST:
        raise argparse.ArgumentTypeError(
            f'"{text}" must be at most {_LARGEST}')
    return value
