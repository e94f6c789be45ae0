# SPDX-License-Identifier: Apache-2.0
"""What the driver stands on is in each release of Nova as it is listed."""

import ast
import importlib
from importlib import metadata
import sysconfig
import unittest

from nova.virt.ironic_reservations import endings
import testtools

from tests.nova import seams

RELEASES = seams.NEWEST, *seams.OLDER


class TestSeams(testtools.TestCase):
    """No cloud is needed, and no release but that which is installed runs."""

    def test_releases(self):
        installed, = metadata.distributions(
            name='nova', path=[sysconfig.get_path('purelib')])
        self.assertEqual(seams.NEWEST, installed.version)
        for release in seams.OLDER:
            self.assertTrue(
                seams.root(release).exists(),
                f'Nova {release} is not unpacked: tools/suite.sh does it')

    def test_they_are_found(self):
        """Else what follows compares nothing."""
        found = seams.seams()
        for name in (
                f'{seams.PARENT}.spawn',  # overridden
                f'{seams.PARENT}._cleanup_volume_target_info',  # inherited
                f'{seams.PARENT}._get_node',
                f'{seams.TRACKER}._update_usage',  # patched
                f'{seams.REPORT}.get_allocations_for_provider_tree',
                f'{seams.REPORT}.put_allocations',  # called
                f'{seams.MANAGER}._init_instance',
                'nova.availability_zones.get_host_availability_zone',
                'nova.objects.instance.Instance.save',
                'nova.scheduler.utils.resources_from_flavor',
                'nova.servicegroup.api.API.service_is_up',
                f'{seams.MANAGER}._shutdown_instance',  # calls us
                f'{seams.TRACKER}._update_to_placement'):
            self.assertIn(name, found)

    def test_nothing_is_gone(self):
        self.assertEqual([], [
            name for name in sorted(seams.seams())
            if seams.nova(seams.NEWEST).text(name) is None
            # It is an older one's own.
            and name not in seams.DIFFERS])

    def test_differences(self):
        """Each is known, and so is what looks at it there."""
        self.assertEqual(
            {name: releases for name, (releases, _) in seams.DIFFERS.items()},
            {name: releases for name in seams.seams()
             if (releases := seams.releases_that_differ(name))})

    def test_what_looks_at_them(self):
        for release in seams.OLDER:
            for each in seams.tests(int(release.partition('.')[0])):
                where, _, method = each.rpartition('.')
                module, _, name = where.partition('.')
                found = getattr(importlib.import_module(
                    f'tests.nova.{module}'), name)
                self.assertTrue(issubclass(found, unittest.TestCase), each)
                self.assertTrue(hasattr(found, method), each)

    def test_private_ones(self):
        """They are in one table, and are as they were when they were read."""
        used = {name.rpartition('.')[2] for name in seams.driver().used
                if name.startswith(f'{seams.MANAGER}._')}
        self.assertEqual(set(endings.PRIVATE), used)
        newest = seams.nova(seams.NEWEST)
        for name, (release, caller) in endings.PRIVATE.items():
            full = f'{seams.MANAGER}.{name}'
            self.assertEqual(seams.nova(release).text(full),
                             newest.text(full), name)
            self.assertIn(f'.{name}', ast.unparse(newest.node(
                f'{seams.MANAGER}.{caller}')), name)
            for older in seams.OLDER:
                self.assertIn(seams.nova(older).signature(full),
                              (None, newest.signature(full)),
                              f'{name} in {older}')

    def test_overrides(self):
        """Whatever an older Nova calls, ours understands."""
        for name, node in seams.driver().overridden.items():
            if not isinstance(node, ast.FunctionDef):
                continue
            ours = seams.signature(node).parameters.values()
            for release in RELEASES:
                theirs = seams.nova(release).signature(name)
                if theirs is None:
                    continue  # It does not call what it does not have.
                theirs = list(theirs.parameters.values())
                self.assertEqual(
                    [each.name for each in theirs],
                    [each.name for each in ours][1:len(theirs) + 1],
                    f'{name} in {release}')
                for mine in list(ours)[len(theirs) + 1:]:
                    self.assertIsNot(mine.default, mine.empty,
                                     f'{name}({mine}) in {release}')

    def test_calls(self):
        """What we hand to Nova's functions, each release takes."""
        checked = set()
        for name, call in seams.driver().calls:
            if any(isinstance(each, ast.Starred) for each in call.args
                   ) or any(each.arg is None for each in call.keywords):
                continue
            for release in RELEASES:
                theirs = seams.nova(release).signature(name)
                if theirs is None:
                    continue
                try:
                    theirs.bind(*call.args, **{
                        each.arg: each.value for each in call.keywords})
                except TypeError as e:
                    self.fail(f'{ast.unparse(call)}: {e} in {release}')
                checked.add(name)
        self.assertLess(60, len(checked))
