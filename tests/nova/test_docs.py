# SPDX-License-Identifier: Apache-2.0
"""The driver's options are documented as they are."""

import pathlib
import re

from nova.virt.ironic_reservations import conf
import testtools

PAGE = pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'nova.rst'


class TestOptions(testtools.TestCase):

    def test_table(self):
        table = dict(re.findall(r'^   \* - ``(\w+)``\n     - (\S+)$',
                                PAGE.read_text(), re.MULTILINE))
        self.assertEqual({
            opt.name: {'auto': '``auto``', False: 'false'}.get(
                opt.default, str(opt.default))
            for opt in conf.reservations_opts}, table)
        for opt in conf.reservations_opts:
            self.assertTrue(opt.help)
