# SPDX-License-Identifier: Apache-2.0
import argparse

import pytest

from ironic_reservations.osc import units

MIB, GIB = 'of MiB, or a size such as 512M', 'of GiB, or a size such as 500G'


@pytest.mark.parametrize('parse, text, expected', [
    (units.parse_mib, '65536', 65536),
    (units.parse_mib, '0', 0),
    (units.parse_mib, '64G', 65536),
    (units.parse_mib, '64g', 65536),
    (units.parse_mib, '64GB', 65536),
    (units.parse_mib, '64gB', 65536),
    (units.parse_mib, '64Gi', 65536),
    (units.parse_mib, '64gI', 65536),
    (units.parse_mib, '64GiB', 65536),
    (units.parse_mib, '65536MB', 65536),
    (units.parse_mib, '2T', 2 * 1024**2),
    (units.parse_mib, '2048K', 2),
    (units.parse_mib, '64Gib',
     f'"64Gib" is not a valid size: give a number {MIB}'),
    (units.parse_mib, '64gb', '"64gb" is not a valid size'),
    (units.parse_mib, '64Gb', '"64Gb" is not a valid size'),
    (units.parse_mib, '1.5T', '"1.5T" is not a valid size'),
    (units.parse_mib, '64 G', '"64 G" is not a valid size'),
    (units.parse_mib, '64B', '"64B" is not a valid size'),
    (units.parse_mib, '-1G', '"-1G" is not a valid size'),
    (units.parse_mib, 'G', '"G" is not a valid size'),
    (units.parse_mib, '', '"" is not a valid size'),
    (units.parse_mib, '512K',
     '"512K" is not a whole number of MiB: give a size such as 512M or 64GiB'),
    (units.parse_mib, '2048T', '"2048T" must be at most 2147483647'),
    (units.parse_gib, '2048', 2048),
    (units.parse_gib, '2T', 2048),
    (units.parse_gib, '2048M', 2),
    (units.parse_gib, '512M',
     '"512M" is not a whole number of GiB: give a size such as 500G or 2TiB'),
    (units.parse_gib, 'big',
     f'"big" is not a valid size: give a number {GIB}'),
    (units.parse_number, '8', 8),
    (units.parse_number, '1.5', '"1.5" is not a whole number'),
    (units.parse_number, '2147483648',
     '"2147483648" must be at most 2147483647'),
    (units.parse_seconds, '600', 600),
    (units.parse_seconds, '1h30m', 5400),
    (units.parse_seconds, '1w1d', 8 * 86400),
    # The API knows the limit.
    (units.parse_seconds, '99999999999', 99999999999),
    (units.parse_moment, '1d', '86400'),
    (units.parse_moment, '2030-12-31',
     '"2030-12-31": must be a time with a time zone, such as '),
    (units.parse_moment, '2027-02-31T18:00Z',
     '"2027-02-31T18:00Z": there is no such day'),
    (units.parse_time, '2030-12-31t18:00z', '2030-12-31t18:00z'),
    (units.parse_time, '1h30m', {'in': 5400}),
    (units.parse_time, '9999999w', '"9999999w" is too far in the future'),
    (units.parse_time, 'friday',
     '"friday" is not a valid time: give seconds, or a time such as 10m, '
     '12h, 7d or 1h30m, or a time with a time zone such as '),
    (units.parse_domain, 'shard=a=b', {'shard': 'a=b'}),
    *((units.parse_domain, text, f'"{text}" is not <key>=<value>, such as ')
      for text in ('shard', 'shard=', '=a', '')),
    (units.parse_seconds, '0', '"0" must be at least 1 second'),
    (units.parse_seconds, '30m1h',
     '"30m1h" is not a valid time: give seconds, or '),
    (units.parse_seconds, '', '"" is not a valid time'),
    (units.parse_name, 'node-1', 'node-1'),
    (units.parse_name, 'a,b',
     '"a,b" contains a comma: repeat the option for several names'),
])
def test_units(parse, text, expected):
    try:
        assert parse(text) == expected
    except argparse.ArgumentTypeError as error:
        assert str(error).startswith(expected)
