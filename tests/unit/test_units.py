# SPDX-License-Identifier: Apache-2.0
import argparse

import pytest

from ironic_reservations.osc import units

MIB, GIB = 'of MiB, or a size such as 512M', 'of GiB, or a size such as 500G'


@pytest.mark.parametrize('read, text, expected', [
    (units.mib, '65536', 65536),
    (units.mib, '0', 0),
    (units.mib, '64G', 65536),
    (units.mib, '64g', 65536),
    (units.mib, '64GB', 65536),
    (units.mib, '64gB', 65536),
    (units.mib, '64Gi', 65536),
    (units.mib, '64gI', 65536),
    (units.mib, '64GiB', 65536),
    (units.mib, '65536MB', 65536),
    (units.mib, '2T', 2 * 1024**2),
    (units.mib, '2048K', 2),
    (units.mib, '64Gib', f'"64Gib" is not a valid size: give a number {MIB}'),
    (units.mib, '64gb', '"64gb" is not a valid size'),
    (units.mib, '64Gb', '"64Gb" is not a valid size'),
    (units.mib, '1.5T', '"1.5T" is not a valid size'),
    (units.mib, '64 G', '"64 G" is not a valid size'),
    (units.mib, '64B', '"64B" is not a valid size'),
    (units.mib, '-1G', '"-1G" is not a valid size'),
    (units.mib, 'G', '"G" is not a valid size'),
    (units.mib, '', '"" is not a valid size'),
    (units.mib, '512K', '"512K" is not a whole number of MiB: give a size '
                        'such as 512M or 64GiB'),
    (units.mib, '2048T', '"2048T" must be at most 2147483647'),
    (units.gib, '2048', 2048),
    (units.gib, '2T', 2048),
    (units.gib, '2048M', 2),
    (units.gib, '512M', '"512M" is not a whole number of GiB: give a size '
                        'such as 500G or 2TiB'),
    (units.gib, 'big', f'"big" is not a valid size: give a number {GIB}'),
    (units.number, '8', 8),
    (units.number, '1.5', '"1.5" is not a whole number'),
    (units.number, '2147483648', '"2147483648" must be at most 2147483647'),
    (units.seconds, '600', 600),
    (units.seconds, '1h30m', 5400),
    (units.seconds, '1w1d', 8 * 86400),
    # The API knows the limit.
    (units.seconds, '99999999999', 99999999999),
    (units.seconds, '0', '"0" must be at least 1 second'),
    (units.seconds, '30m1h', '"30m1h" is not a valid time: give seconds, or '),
    (units.seconds, '', '"" is not a valid time'),
    (units.name, 'node-1', 'node-1'),
    (units.name, 'a,b', '"a,b" is one name: commas do not separate values; '
                        'repeat the option for several'),
])
def test_units(read, text, expected):
    try:
        assert read(text) == expected
    except argparse.ArgumentTypeError as error:
        assert str(error).startswith(expected)
