# SPDX-License-Identifier: Apache-2.0
"""The table of names of Nova that the driver uses is true in each release."""

import importlib
from importlib import metadata
import re
import sysconfig
import unittest

from nova.virt.ironic_reservations import endings
import testtools

from tests.nova import seams


class TestSeams(testtools.TestCase):
    """Compare source text; only the installed release is imported."""

    def test_newest_release_is_installed(self):
        release, = metadata.distributions(
            name='nova', path=[sysconfig.get_path('purelib')])
        self.assertEqual(seams.NEWEST, release.version)

    def test_code_of_each_release(self):
        """Each difference is in the table; other names are in all releases.

        So what runs with the newest release runs with the others.
        """
        table = seams.expand()
        self.assertEqual(
            {seam: releases for seam, (releases, _) in table.items()},
            {seam: seams.differing(*seam) for seam in table})
        for seam, (releases, _) in table.items():
            if not releases:
                self.assertIsNotNone(seams.code(seams.NEWEST, *seam), seam)

    def test_signatures(self):
        """Functions whose code differs take the same parameters."""
        for seam in seams.expand():
            newest = seams.parameters(seams.NEWEST, *seam)
            for release in seams.OLDER:
                older = seams.parameters(release, *seam)
                if newest and older:
                    self.assertEqual(newest, older, f'{seam} in {release}')

    def test_tests_exist(self):
        for release in seams.OLDER:
            for test in seams.tests(int(release[:2])):
                name, case, method = test.split('.')
                case = getattr(
                    importlib.import_module(f'tests.nova.{name}'), case)
                self.assertTrue(issubclass(case, unittest.TestCase), test)
                self.assertTrue(hasattr(case, method), test)

    def test_private_names(self):
        """They are in a table, and as they were when they were read."""
        source = ''.join(
            path.read_text() for path in seams.TREE.glob('nova_driver/*.py'))
        self.assertEqual(set(endings.PRIVATE), set(
            re.findall(r'_manager\.(_\w+)', source)))
        for name, (release, caller) in endings.PRIVATE.items():
            self.assertEqual(seams.code(release, seams.MANAGER, name),
                             seams.code(seams.NEWEST, seams.MANAGER, name))
            self.assertTrue(any(
                f'.{name}' in (seams.code(seams.NEWEST, owner, caller) or '')
                for owner in (seams.MANAGER, 'nova.manager.Manager')), name)
