# SPDX-License-Identifier: Apache-2.0
"""Where the driver and Nova meet, in each release of Nova that it runs on.

It is read from source text, so that one process can compare several releases:
what we inherit, override and call of Nova's, and what of Nova's calls us.
``DIFFERS`` says which of it is not the same in an older release as in the
newest one, and which tests look at it there. As a program this prints those
tests of one release, a regular expression for stestr, or the older releases::

    python tests/nova/seams.py 33
    python tests/nova/seams.py
"""

import ast
import functools
import inspect
import itertools
import pathlib
import sys
import sysconfig

TREE = pathlib.Path(__file__).parents[2]
OURS = TREE / 'nova_driver'

#: The newest release, which is installed, and those that tools/suite.sh
#: unpacks.
NEWEST, *OLDER = '34.0.0', '33.0.2', '32.2.1'

PARENT = 'nova.virt.ironic.driver.IronicDriver'
MANAGER = 'nova.compute.manager.ComputeManager'
TRACKER = 'nova.compute.resource_tracker.ResourceTracker'
REPORT = 'nova.scheduler.client.report.SchedulerReportClient'

#: Nova's classes whose objects we are handed, by what we call these.
HANDED = {
    # The methods of it that our driver binds.
    'parent': PARENT,
    'tracker': TRACKER, 'reportclient': REPORT, 'self._reportclient': REPORT,
    'tracker.reportclient': REPORT,
    'self.virtapi._compute.reportclient': REPORT, 'self._manager': MANAGER,
    'self._services': 'nova.servicegroup.api.API',
    'instance': 'nova.objects.instance.Instance',
}

#: Those of Nova's classes that call a driver, and what they call it.
CALLERS = {MANAGER: 'self.driver', TRACKER: 'self.driver',
           'nova.virt.driver.ComputeDriver': 'self'}

#: What our comments rely on, and what is mixed into classes of Nova's.
BESIDE = (
    'nova.service.Service.start', 'nova.service.Service.stop',
    f'{MANAGER}._ensure_existing_node_identity',
    'nova.scheduler.utils._get_group_details',
    *(f'nova.scheduler.filters.affinity_filter.{each}.host_passes' for each
      in ('ServerGroupAffinityFilter', 'ServerGroupAntiAffinityFilter')))

BOTH = 33, 32

#: Nothing calls it: servers of bare metal are neither moved nor resized.
NOBODY = ''

SMOKE = 'test_smoke.TestReservationsDriver.test_server_comes_and_goes'
_POWER = 'test_lifecycle.TestHardware.test_power_rescue_and_consoles'
_STOP = 'test_standby.TestStandby.test_clean_stop'
_RESTART = 'test_restart.TestOlderNova.test_build'

#: What differs from the newest release, in which older ones, and the tests
#: that look at it. What an older one does not have differs, too.
DIFFERS = {
    # Shares are attached by other functions.
    f'{MANAGER}._power_off_instance': (BOTH, _POWER),
    f'{MANAGER}._power_on': (BOTH, _POWER),
    f'{MANAGER}._reboot_instance': (BOTH, _POWER),
    f'{MANAGER}.rescue_instance': (BOTH, _POWER),
    f'{MANAGER}._shutdown_instance': (
        BOTH, 'test_fence.TestFormer.test_it_touches_and_shows_nothing'),
    # More errors end a build.
    f'{MANAGER}._build_and_run_instance': (
        (32,), 'test_failures.TestHold.test_no_node_anywhere'),
    f'{MANAGER}._build_resources': (
        (32,), 'test_failed_nodes.TestNode.test_late_cleanup'),
    # What a restart has interrupted is not taken up, so that none of these is
    # called.
    f'{MANAGER}._delete_instance': ((32,), _RESTART),
    'nova.manager.Manager._in_progress_tasks': (BOTH, _RESTART),
    'nova.manager.Manager._shutdown_in_progress': (BOTH, _RESTART),
    'nova.objects.block_device.BlockDeviceMappingList.get_by_instance_uuid': (
        BOTH, _RESTART),
    'nova.objects.instance_action.InstanceActionList.get_by_instance_uuid': (
        BOTH, _RESTART),
    # The driver is not handed all instances, and what was evacuated is
    # destroyed, whatever the driver says.
    f'{MANAGER}.init_host': (
        BOTH, 'test_many.TestStays.test_unfinished_evacuation '
              'test_standby.TestStandby.test_queue '
              'test_standby.TestStandby.test_queue_that_is_lost'),
    'nova.virt.driver.ComputeDriver.process_instances_at_startup': (
        BOTH, 'test_many.TestStart.'
              f'test_what_it_has_done_itself_is_read_again {_RESTART}'),
    # Nodes one after the other.
    f'{MANAGER}.update_available_resource': (
        BOTH, 'test_fallback.TestAbsent.test_row_per_node'),
    # All providers instead of the host's.
    f'{TRACKER}._update_to_placement': (
        BOTH, 'test_lifecycle.TestInventory.'
              'test_classes_and_traits_come_and_go'),
    'nova.scheduler.utils.resources_from_flavor': (
        BOTH, 'test_many.TestStays.test_allocation_is_put_back'),
    # How a process comes and goes.
    'nova.service.Service.start': (
        BOTH, 'test_nova.TestStoodOn.test_host_that_waits_does_nothing_else '
              'test_standby.TestStandby.'
              'test_host_that_is_new_to_nova_since'),
    'nova.service.Service.stop': (BOTH, _STOP),
    f'{MANAGER}.cleanup_host': (BOTH, _STOP),
    # The driver's list of power states serves one of these.
    f'{MANAGER}._sync_power_states': (
        BOTH, 'test_many.TestPowerStates.test_one_list_serves_a_sync'),
    # The list is made by another function.
    'nova.objects.compute_node.ComputeNodeList.get_all_by_host': (
        BOTH, SMOKE),
    f'{PARENT}.get_num_instances': (
        BOTH, 'test_lifecycle.TestRequests.test_every_field_arrives'),
    # An image of no known type ends a build.
    f'{PARENT}.spawn': (
        (32,), 'test_failed_nodes.TestNode.test_deploy_fails'),
    # Another list of Ironic's states.
    f'{PARENT}.destroy': (
        (32,), 'test_failures.TestService.test_row_is_lost'),
    f'{PARENT}.unrescue': ((32,), _POWER),
    # There is no graphical console.
    f'{PARENT}.get_vnc_console': ((32,), _POWER),
    f'{PARENT}._get_vnc_console': ((32,), _POWER),
    # What becomes of the cache of what was detached.
    f'{MANAGER}._process_instance_vif_deleted_event': (
        BOTH, 'test_lifecycle.TestHardware.test_interfaces_and_config_drive'),
    f'{MANAGER}.pre_live_migration': (BOTH, NOBODY),
    f'{MANAGER}._do_pre_live_migration': (BOTH, NOBODY),
    f'{MANAGER}.revert_resize': (BOTH, NOBODY),
}


def root(release):
    """Where a release of Nova is unpacked."""
    return (pathlib.Path(sysconfig.get_path('purelib')) if release == NEWEST
            else TREE / '.tox' / 'nova' / release)


class Nova:
    """The source text of a release of Nova.

    :param root: the folder that has the package ``nova``.
    """

    def __init__(self, root):
        self._root = root

    @functools.cache  # noqa: B019
    def module(self, name):
        """A module's syntax tree; None if there is no such module."""
        path = self._root.joinpath(*name.split('.'))
        for each in path.with_suffix('.py'), path / '__init__.py':
            if each.exists():
                return ast.parse(each.read_text())
        return None

    @functools.cache  # noqa: B019
    def _found(self, name):
        """The module, name and node of what is called so, or None."""
        module, _, last = name.rpartition('.')
        if not module:
            return None
        tree = self.module(module)
        if tree is None:
            owner = self._found(module)
            if owner is None or not isinstance(owner[2], ast.ClassDef):
                return None
            return self._member(owner, last)
        for node in tree.body:
            if last in _names(node):
                return module, name, node
        source = imported(tree).get(last)
        # What a package offers of its own modules.
        if source and source != name and source.startswith('nova.'):
            return self._found(source)
        if module == 'nova.objects':
            # They register themselves there when they are imported.
            for path in sorted((self._root / 'nova/objects').glob('*.py')):
                inner = f'{module}.{path.stem}'
                for node in (self.module(inner).body if
                             f'class {last}(' in path.read_text() else ()):
                    if isinstance(node, ast.ClassDef) and node.name == last:
                        return inner, f'{inner}.{last}', node
        return None

    def _member(self, owner, name):
        """What a class calls so, its own or inherited."""
        module, full, node = owner
        for each in node.body:
            if name in _names(each):
                return module, f'{full}.{name}', each
        if name in _own(node):
            # An attribute of its objects.
            return module, f'{full}.{name}', None
        known = imported(self.module(module))
        for base in node.bases:
            first, _, rest = ast.unparse(base).partition('.')
            path = known.get(first, f'{module}.{first}')
            found = self._found(f'{path}.{rest}' if rest else path)
            if found and isinstance(found[2], ast.ClassDef):
                member = self._member(found, name)
                if member:
                    return member
        return None

    def full(self, name):
        """A name as that where it is defined; None if it is not there."""
        found = self._found(name)
        return found and found[1]

    def node(self, name):
        """The syntax tree of what is called so, or None."""
        found = self._found(name)
        return found and found[2]

    def text(self, name):
        """What a name stands for, without what a reader alone sees.

        None where there is nothing of that name.
        """
        found = self._found(name)
        if found is None:
            return None
        node = found[2]
        if isinstance(node, ast.ClassDef):
            # How it is made; its methods are looked at by their own names.
            node = ast.ClassDef(**{**vars(node), 'body': [
                each for each in node.body if isinstance(each, ast.Assign)
                or '__init__' in _names(each)] or [ast.Pass()]})
        return '' if node is None else ast.dump(_bare(node))

    def signature(self, name):
        """The signature of a function, of a method without its ``self``."""
        node = self.node(name)
        if isinstance(node, ast.ClassDef):
            node = self.node(f'{name}.__init__')
        if not isinstance(node, ast.FunctionDef):
            return None
        called = signature(node)
        bound = isinstance(self.node(name.rpartition('.')[0]), ast.ClassDef)
        if bound or isinstance(self.node(name), ast.ClassDef):
            _, *rest = called.parameters.values()
            called = called.replace(parameters=rest)
        return called

    def methods(self, name):
        """The names of a class's own methods."""
        return {each.name for each in self.node(name).body
                if isinstance(each, ast.FunctionDef)}


def _names(node):
    """The names that a statement gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {each.id for target in node.targets
                for each in ast.walk(target) if isinstance(each, ast.Name)}
    return set()


class _Bare(ast.NodeTransformer):

    def _without_docstring(self, node):
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        # Nova 34 writes the one as the other two.
        node.decorator_list = [
            each for found in node.decorator_list
            for each in (_REMOTABLE if ast.unparse(found) ==
                         'base.remotable_classmethod' else [found])]
        return node

    visit_FunctionDef = visit_ClassDef = _without_docstring


_REMOTABLE = [ast.parse(each, mode='eval').body
              for each in ('classmethod', 'base.remotable')]


def _bare(node):
    return _Bare().visit(ast.parse(ast.unparse(node)))


def imported(tree):
    """What a module's names stand for that it has imported."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {(each.asname or each.name.partition('.')[0]):
                      (each.name if each.asname
                       else each.name.partition('.')[0])
                      for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {each.asname or each.name: f'{node.module}.{each.name}'
                      for each in node.names}
    return found


def signature(node):
    """The signature of a function's definition."""
    kinds, args = inspect.Parameter, node.args
    plain = [*args.posonlyargs, *args.args]
    optional = len(plain) - len(args.defaults)
    found = [kinds(each.arg, kinds.POSITIONAL_OR_KEYWORD,
                   default=kinds.empty if number < optional else None)
             for number, each in enumerate(plain)]
    if args.vararg:
        found.append(kinds(args.vararg.arg, kinds.VAR_POSITIONAL))
    found += [kinds(each.arg, kinds.KEYWORD_ONLY,
                    default=kinds.empty if default is None else None)
              for each, default in zip(args.kwonlyargs, args.kw_defaults,
                                       strict=True)]
    if args.kwarg:
        found.append(kinds(args.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)


class Driver:
    """What our source text has to do with Nova.

    :ivar overridden: our methods by the name of Nova's that each overrides
    :ivar used: names of Nova's that are called, or else used
    :ivar calls: pairs of such a name and of the call of it
    """

    def __init__(self, nova):
        self._nova = nova
        self.overridden, self.used, self.calls = {}, set(), []
        for path in sorted(OURS.glob('*.py')):
            tree = ast.parse(path.read_text())
            self._known = {
                name: full for name, full in imported(tree).items()
                if full.partition('.')[0] == 'nova'}
            for node in tree.body:
                parent, own = None, set()
                if isinstance(node, ast.ClassDef):
                    parent = next(filter(None, (
                        self._named(ast.unparse(base)) for base in node.bases
                    )), None)
                    own = _own(node)
                if parent:
                    self._note_overridden(node, parent)
                self._note_used(node, parent, own)

    def _note_overridden(self, node, parent):
        for each in node.body:
            for name in _names(each):
                full = self._nova.full(f'{parent}.{name}')
                if full:
                    self.overridden[full] = each

    def _note_used(self, node, parent, own):
        inner = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                name = self._name(each.func, parent, own)
                # Not what is called of what it is.
                if name and ast.unparse(each.func).endswith(
                        name.rpartition('.')[2]):
                    self.calls.append((name, each))
            if isinstance(each, ast.Attribute) and each not in inner:
                # Of a.b.c not a.b again.
                inner |= {part for part in ast.walk(each) if part is not each
                          and isinstance(part, ast.Attribute)
                          and ast.unparse(each).startswith(
                              ast.unparse(part) + '.')}
                name = self._name(each, parent, own)
                if name:
                    self.used.add(name)

    def _name(self, node, parent, own):
        """What of Nova's an expression names; None if it names nothing."""
        text = ast.unparse(node)
        if parent and text.startswith(('super().', 'super(')):
            return f'{parent}.{text.rpartition(").")[2]}'
        for name, full in HANDED.items():
            if text.startswith(name + '.'):
                rest = text.removeprefix(name + '.').partition('.')[0]
                if name == 'instance' and not isinstance(
                        self._nova.node(f'{full}.{rest}'), ast.FunctionDef):
                    return None  # A field.
                return f'{full}.{rest}'
        if parent and text.startswith('self.'):
            name = text.removeprefix('self.').partition('.')[0]
            if name not in own and name.isidentifier():
                return f'{parent}.{name}'
        return self._named(text)

    def _named(self, text):
        first, *rest = text.split('.')
        if first not in self._known or not all(
                each.isidentifier() for each in rest):
            return None
        name = self._known[first]
        for each in rest:
            if self._nova.module(name) is None and not isinstance(
                    self._nova.node(name), ast.ClassDef):
                break
            name = f'{name}.{each}'
        return name if self._nova.module(name) is None else None


@functools.cache
def _own(node):
    """The names that a class or its objects have by themselves."""
    return {name for each in node.body for name in _names(each)} | {
        target.attr for each in ast.walk(node) if isinstance(each, ast.Assign)
        for part in each.targets for target in ast.walk(part)
        if isinstance(target, ast.Attribute)
        and ast.unparse(target.value) == 'self'}


def callers(nova, overridden):
    """Nova's own methods that call what we override."""
    names = {name.rpartition('.')[2] for name in overridden} - {'__init__'}
    found = set()
    for owner, driver in CALLERS.items():
        for each in nova.node(owner).body:
            if isinstance(each, ast.FunctionDef) and any(
                    isinstance(node, ast.Attribute) and node.attr in names
                    and ast.unparse(node.value) == driver
                    for node in ast.walk(each)):
                found.add(f'{owner}.{each.name}')
    return found


@functools.cache
def nova(release):
    return Nova(root(release))


@functools.cache
def driver():
    return Driver(nova(NEWEST))


def seams():
    """The names of all that our source text has to do with."""
    inherited = {f'{PARENT}.{name}' for release in (NEWEST, *OLDER)
                 for name in nova(release).methods(PARENT)}
    calling = {name for release in (NEWEST, *OLDER)
               for name in callers(nova(release), driver().overridden)}
    found = {*driver().overridden, *driver().used, *inherited, *calling,
             *BESIDE}
    # By one name each.
    return {nova(NEWEST).full(name) or name for name in found}


def releases_that_differ(name):
    newest = nova(NEWEST).text(name)
    return tuple(int(each.partition('.')[0]) for each in OLDER
                 if nova(each).text(name) != newest)


def tests(number):
    """The tests to be run on an older release, sorted.

    What an even older one has as well is looked at there alone.

    :param number: the first of the release's version.
    """
    release, *older = itertools.dropwhile(
        lambda each: not each.startswith(f'{number}.'), OLDER)
    return sorted({SMOKE, 'test_nova.TestSignatures.test_public_methods', *(
        each for name, (releases, covered) in DIFFERS.items()
        if number in releases and nova(release).text(name) not in (
            nova(other).text(name) for other in older)
        for each in covered.split())})


if __name__ == '__main__':
    if sys.argv[1:]:
        print('|'.join(each.replace('.', r'\.') + r'(\[|$)'
                       for each in tests(int(sys.argv[1]))))
    else:
        print(*OLDER, sep='\n')
