# SPDX-License-Identifier: Apache-2.0
"""Sizes and times as people write them: types of arguments for argparse."""

import argparse
import re

from oslo_utils import strutils

#: The API's own limit.
_LARGEST = 2**31 - 1

_SECONDS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 7 * 86400}


def mib(text):
    """Return how many MiB a text says, such as 65536 or 64GiB."""
    return _size(text, 'MiB', 2**20)


def gib(text):
    """Return how many GiB a text says, such as 2048 or 2TiB."""
    return _size(text, 'GiB', 2**30)


def number(text):
    """Return a whole number that the API takes."""
    if not re.fullmatch(r'\d+', text, re.ASCII):
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number')
    return _bounded(text, int(text))


def seconds(text):
    """Return how many seconds a text says, such as 600, 10m or 1h30m."""
    if re.fullmatch(r'\d+', text, re.ASCII):
        return _bounded(text, int(text), 1)
    units = ''.join(rf'(?:(\d+){unit})?' for unit in 'wdhms')
    found = re.fullmatch(units, text, re.ASCII)
    if not text or not found:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no time: give seconds, or a time such as 10m, 12h, '
            f'7d or 1h30m')
    return _bounded(text, sum(
        int(amount) * _SECONDS[unit] for unit, amount in
        zip('wdhms', found.groups(), strict=True) if amount), 1)


def _size(text, unit, in_bytes):
    if re.fullmatch(r'\d+', text, re.ASCII):
        return _bounded(text, int(text))
    example = {'MiB': '512MiB or 64GiB', 'GiB': '500GiB or 2TiB'}[unit]
    try:
        size = strutils.string_to_bytes(text, unit_system='mixed')
    except ValueError:
        size = -1
    if size < 0 or size % in_bytes:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no size in whole {unit}: give a number of {unit}, '
            f'or a size such as {example}')
    return _bounded(text, int(size // in_bytes))


def _bounded(text, value, least=0):
    if not least <= value <= _LARGEST:
        raise argparse.ArgumentTypeError(
            f'"{text}" must be {least} to {_LARGEST}')
    return value
