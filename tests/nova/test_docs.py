# SPDX-License-Identifier: Apache-2.0
"""The documentation lists the driver's options."""

import pathlib
import re

from nova.virt.ironic_reservations import conf
import testtools

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / 'doc/source/reference/configuration.rst'


def format_default(default):
    """Return a default as the documentation shows it."""
    if default is None:
        return 'none'
    if isinstance(default, list):
        default = ','.join(default)
    return (f'``{default}``' if isinstance(default, str)
            else str(default).lower())


class TestOptions(testtools.TestCase):

    def test_table_of_options(self):
        table = dict(re.findall(r'^   \* - ``(\w+)``\n     - (\S+)$',
                                PAGE.read_text(), re.MULTILINE))
        self.assertEqual({opt.name: format_default(opt.default)
                          for opt in conf.reservations_opts}, table)
        for opt in conf.reservations_opts:
            self.assertTrue(opt.help)
