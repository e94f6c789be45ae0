# SPDX-License-Identifier: Apache-2.0
"""The documentation is complete, and describes what exists."""

import ast
import collections
import configparser
import fnmatch
import importlib.metadata
import importlib.util
import itertools
import json
import pathlib
import re
import shlex
import textwrap
from xml.etree import ElementTree

from alembic import script
from ironic.common import policy as ironic_policy
from oslo_config import cfg
from oslo_policy import policy as oslo_policy
import pytest
import yaml

from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations import policy
from ironic_reservations import verdicts
from ironic_reservations.api import capacity
from ironic_reservations.api import errors
from ironic_reservations.api import fence
from ironic_reservations.api import groups
from ironic_reservations.api import hosts
from ironic_reservations.api import notices
from ironic_reservations.api import reservations
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.api import routes
from ironic_reservations.api import specs
from ironic_reservations.api import version
from ironic_reservations.cmd import dbsync
from ironic_reservations.cmd import exporter
from ironic_reservations.cmd import manage
from ironic_reservations.cmd import status
from ironic_reservations.db import models
from ironic_reservations.fleet import explanation
from ironic_reservations.matching import request_spec
from ironic_reservations.osc.audit import kinds
from ironic_reservations.shared import constants
from tests.common import programs
from tools import trial_cloud

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = ROOT / 'doc' / 'source'
API_REF = ROOT / 'api-ref' / 'source'

# Texts by path without suffix, such as "how-to/install".
PAGES = {f'{path.relative_to(SOURCE).with_suffix("")}': path.read_text()
         for path in SOURCE.rglob('*.rst')}
REFERENCE = (API_REF / 'reservations.inc').read_text()
PARAMETERS = yaml.safe_load((API_REF / 'parameters.yaml').read_text())
SAMPLES = {path.name: json.loads(path.read_text())
           for path in (API_REF / 'samples').iterdir()}
FIGURES = sorted((SOURCE / 'figures').glob('*.inc'))


def split_call(method, path):
    """Return the texts of a call's request and responses."""
    _, _, rest = REFERENCE.partition(f'.. rest_method::  {method} {path}\n')
    assert rest, f'{method} {path} is not documented'
    text, _, _ = rest.partition('.. rest_method::')
    request, _, answers = text.partition('\nResponse\n')
    return request, answers


def names_in(text, *places):
    """Return the names of the parameters in these places."""
    return {name for name, key in re.findall(
                r'^   - (\S+): (\S+)$', text, re.MULTILINE)
            if PARAMETERS[key]['in'] in places}


def keys(properties):
    """Return the names of a schema's properties; inner ones are dotted."""
    names = set()
    for name, inner in properties.items():
        names |= {name} | {f'{name}.{key}'
                           for key in inner.get('properties', {})}
    return names


def paths(value, prefix=''):
    """Return the keys of a value; inner ones are dotted."""
    names = set()
    for name, inner in value.items():
        names.add(prefix + name)
        if isinstance(inner, list) and isinstance(inner[0], dict):
            names |= paths(inner[0], f'{prefix}{name}.')
    return names


def attributes(wsme_type):
    return {attribute.name
            for attribute in wsme_type._wsme_attributes}


# An explanation with all its keys.
EXPLANATION = paths({'explanation': [responses.present_explanation(
    matching.Matcher(request_spec.RequestSpec.from_dict(
        {'candidate_nodes': ['b']})).explain(
            [(matching.Node(id=1, uuid='a'), None, 1)]))]})

QUOTA = paths({'quota': [vars(verdicts.Quota('', 0, 0, 0))]})

COLLECTION = '/v1/reservations'
ONE = '/v1/reservations/{instance_uuid}'
CAPACITY = '/v1/reservations/capacity'
HOSTS = '/v1/reservations/hosts'
HOST = '/v1/reservations/hosts/{host}'
GROUPS = '/v1/reservations/groups'
NOTICES = '/v1/reservations/notices'
NOTICE = '/v1/reservations/notices/{uuid}'
GROUP = '/v1/reservations/groups/{uuid}'
#: Keys that only a dry run of a group has.
DRY_RUN_OF_GROUP = {'members', 'domains', 'segments', 'level'}
#: Keys of a group in a list, and of a group by itself.
LISTED_GROUP = attributes(groups.Group) - {'reservations', 'next'}
ONE_GROUP = attributes(groups.Group) - {'members', 'domains', 'segments'}


@pytest.mark.parametrize(('method', 'path', 'place', 'schema'), [
    ('POST', COLLECTION, 'query', reservations.CREATE_QUERY.schema),
    ('POST', COLLECTION, 'body', specs.REQUEST_SPEC),
    ('GET', COLLECTION, 'query', reservations.LIST_QUERY.schema),
    ('GET', ONE, 'query', reservations.SHOW_QUERY.schema),
    ('PATCH', ONE, 'query', reservations.WRITE_QUERY.schema),
    ('PATCH', ONE, 'body', reservations.PATCH_BODY.schema['items']),
    ('DELETE', ONE, 'query', reservations.WRITE_QUERY.schema),
    ('PATCH', GROUP, 'body', groups.PATCH_BODY.schema['items']),
    ('POST', GROUPS, 'query', groups.CREATE_QUERY.schema),
    ('GET', GROUPS, 'query', groups.LIST_QUERY.schema),
    ('GET', GROUP, 'query', groups.SHOW_QUERY.schema),
    ('GET', CAPACITY, 'query', capacity.QUERY.schema),
    ('GET', NOTICES, 'query', notices.LIST_QUERY.schema),
    ('POST', NOTICES, 'body', {'properties': dict.fromkeys(
        notices.CREATE_BODY.schema['properties'], {})}),
    ('PATCH', NOTICE, 'query', notices.UPDATE_QUERY.schema),
    ('PATCH', NOTICE, 'body', notices.PATCH_BODY.schema['items']),
    ('GET', HOSTS, 'query', hosts.LIST_QUERY.schema),
    ('PUT', HOST, 'body', hosts.ACQUIRE_BODY.schema),
    ('PUT', HOST, 'path', {'properties': {
        name: routes.NAMES.schema['properties'][name] for name in ['host']}}),
    ('DELETE', HOST, 'query', hosts.GIVE_UP_QUERY.schema),
])
def test_request_parameters(method, path, place, schema):
    request, _ = split_call(method, path)
    assert names_in(request, place) == keys(schema['properties'])


def test_request_parameters_of_a_new_group():
    """The inner request is documented with the creation of a reservation."""
    request, _ = split_call('POST', GROUPS)
    assert names_in(request, 'body') == {
        *groups.CREATE_BODY.schema['properties']}


@pytest.mark.parametrize(('method', 'path', 'names'), [
    ('POST', COLLECTION, {
        *attributes(resources.Reservation), *EXPLANATION, *QUOTA,
        *attributes(resources.DryRun) - DRY_RUN_OF_GROUP}),
    ('POST', GROUPS, ONE_GROUP | {'ignored', 'level'} | paths({
        'members': [{'wanted': 8, 'available': 5}],
        'segments': [{'wanted': 4, 'available': 3}],
        'domains': [{'value': 'r3', 'nodes': 5}]})),
    ('GET', GROUPS, {'groups', 'next'} | LISTED_GROUP | paths(
        {'domains': [{'value': 'r3', 'nodes': 5}]})),
    ('GET', GROUP, ONE_GROUP),
    ('DELETE', GROUP, set()),
    ('GET', COLLECTION, {'reservations', 'next'}),
    ('GET', ONE, {*attributes(resources.Reservation)}),
    ('PATCH', ONE, set()),
    ('DELETE', ONE, set()),
    ('GET', CAPACITY,
     {'capacity', 'next', *attributes(resources.Profile)}),
    ('GET', NOTICES, {'notices', 'next', *attributes(resources.Notice)}),
    ('POST', NOTICES, {'notices'}),
    ('PATCH', NOTICE, {'notices'}),
    ('GET', HOSTS, {'hosts', 'next', *attributes(hosts.Host)}),
    ('PUT', HOST, {'host', 'holder', 'expires_at'}),
    ('DELETE', HOST, set()),
])
def test_response_parameters(method, path, names):
    _, responses = split_call(method, path)
    assert names_in(responses, 'body') == names


@pytest.mark.parametrize(('method', 'path', 'headers'), [
    ('POST', COLLECTION, {'Location', 'Retry-After'}),
    ('POST', GROUPS, {'Location'}),
    ('POST', NOTICES, {'Location'}),
    ('GET', CAPACITY, {'Age', 'Cache-Control'}),
])
def test_headers(method, path, headers):
    assert names_in(''.join(split_call(method, path)), 'header') == headers


@pytest.mark.parametrize('key', PARAMETERS)
def test_parameters_are_used_and_described(key):
    assert re.search(rf'^   - \S+: {re.escape(key)}$', REFERENCE,
                     re.MULTILINE)
    assert PARAMETERS[key]['description'].strip()


@pytest.mark.parametrize('code', sorted({code for _, code in errors.STATUS}))
def test_status_codes(code):
    assert str(code) in re.findall(r'\d+', REFERENCE)


def test_own_version():
    assert re.findall(r'^   \* - (\d+\.\d+)$', REFERENCE, re.MULTILINE)[
        -1] == version.OWN_VERSION
    assert f'``{version.OWN_HEADER}``' in REFERENCE


def test_fence():
    _, _, text = REFERENCE.partition('\nFence\n=====\n')
    assert re.findall(r'^   \* - ``(\w+)``$', text, re.MULTILINE) == [
        *fence.PARAMETERS.schema['properties']]
    for name in fence.HEADER, fence.RESPONSE_HEADER:
        assert name in text and name in PAGES['explanation/security']


# The API does not reveal which nodes can be claimed.
REASONS = sorted({*matching.REASONS} - {matching.CLAIMABLE})


@pytest.mark.parametrize(('word', 'text'), [
    pytest.param(word, text, id=f'{place}: {word}')
    for place, text, words in (
        ('state', PARAMETERS['state']['description'], constants.STATES),
        ('sort_key', PARAMETERS['sort_key']['description'],
         constants.SORT_KEYS),
        ('by', PARAMETERS['explanation.eliminated.by']['description'],
         REASONS),
        ('matching', PAGES['reference/matching'], REASONS),
        ('metrics', ' '.join(PAGES['reference/metrics'].split()),
         [*constants.NODE_STATES, *explanation.CAUSES]),
        ('configuration', PAGES['reference/configuration'],
         [f'[{group or "DEFAULT"}] {opt.name}'
          for group, opts in conf.ironic_opts.items() for opt in opts]))
    for word in words])
def test_words_are_documented(word, text):
    assert f'``{word}``' in text


@pytest.mark.parametrize('name', SAMPLES)
def test_samples_are_shown(name):
    assert f'.. literalinclude:: samples/{name}\n' in REFERENCE


@pytest.mark.parametrize('opt', conf.reservations_opts,
                         ids=lambda opt: opt.name)
def test_options(opt):
    assert opt.help
    assert '.. show-options::\n\n   ironic_reservations\n' in (
        PAGES['reference/configuration'])
    # The generated page describes the option; another page explains its use.
    assert f'``{opt.name}``' in PAGES['reference/configuration']
    assert any(f'``[reservations] {opt.name}``' in page.replace('\n', ' ')
               for page in PAGES.values())


@pytest.mark.parametrize('rule', policy.rules, ids=lambda rule: rule.name)
def test_policies(rule):
    assert rule.description
    assert f'   * - ``{rule.name}``\n' in PAGES['reference/policy']
    assert '.. show-policy::' in PAGES['reference/policy']


# Horizon finds the modules below these packages by their names.
PACKAGES = sorted(
    path.parent for folder in ('ironic_reservations', 'nova_driver')
    for path in (ROOT / folder).rglob('__init__.py')
    if path.parent.parent.name != 'horizon')


def read_docstring(package):
    return ast.get_docstring(ast.parse((package / '__init__.py').read_text()))


@pytest.mark.parametrize('package', PACKAGES, ids=lambda path: path.name)
def test_modules_are_listed(package):
    """The docstring lists all modules; the contributor guide includes it."""
    names = [name for entry in re.findall(
        r'^\* (``.*?):', read_docstring(package), re.MULTILINE | re.DOTALL)
        for name in re.findall(r'``(\w+)``', entry)]
    assert sorted(names) == sorted(
        path.stem for path in package.glob('[!_]*.py'))
    assert (f'.. include:: ../../{package.relative_to(ROOT)}/__init__.py\n'
            '      :start-after: """\n'
            '      :end-before: """\n') in PAGES['contributor']


def find_paths():
    """Yield all files and folders of the tree, with a slash before each."""
    for path in ROOT.iterdir():
        yield from (f'/{inner.relative_to(ROOT)}' for inner in [
            path, *([] if path.name in ('.git', '.tox')
                    else path.rglob('*'))])


def find_definitions(paths):
    """Return the names that each package, module and class defines."""
    definitions = collections.defaultdict(set)
    for path in paths:
        _, *folders, name = path.split('/')
        if not path.endswith('.py'):
            continue
        for outer, inner in itertools.pairwise(
                [*folders, name.removesuffix('.py')]):
            definitions[outer].add(inner)
        tree = ast.parse((ROOT / path[1:]).read_text())
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.ClassDef):
                definitions[getattr(scope, 'name', None)
                            or name.removesuffix('.py')].update(
                    getattr(node, 'name', None) or getattr(node, 'id', None)
                    or getattr(node, 'attr', None) for node in ast.walk(scope)
                    if isinstance(getattr(node, 'ctx', ast.Store()),
                                  ast.Store))
    return definitions


def test_names_in_the_contributor_guide():
    """It names only files, modules, classes, functions and tests that exist.

    A single word has to occur somewhere in the code; "module.function" and
    "Class.method" have to be defined so.
    """
    paths = [*find_paths()]
    definitions = find_definitions(paths)
    text = '\n'.join((ROOT / path[1:]).read_text() for path in paths if (
        re.search(r'(\.(py|sh|yaml|cfg|toml|ini)|Makefile)$', path)))
    words = {*re.findall(r'\w+', text)}

    def exists(name):
        if '/' in name or re.search(
                r'\.(py|rst|inc|in|cfg|toml|txt|svg)$', name):
            return any(path.endswith(f'/{name}'.rstrip('/'))
                       for path in paths)
        if '.' in name:
            return name in text or all(
                inner in definitions[outer]
                for outer, inner in itertools.pairwise(name.split('.')))
        return name in words

    guide = '\n'.join([PAGES['contributor'], *map(read_docstring, PACKAGES)])
    names = re.findall(r'``([\w.][\w./]*)(?:=\w+)?``', guide)
    assert {name for name in names if not exists(name)} <= {
        # Folders that are created, and one of Horizon.
        '.tox', 'dist', 'openstack_dashboard/local/enabled'}


#: Each role implies the ones before it.
ROLES = ('reader', 'member', 'manager', 'admin')


@pytest.fixture(scope='module')
def ironic():
    """The enforcer of Ironic's default policies."""
    config = cfg.ConfigOpts()
    config([], project='ironic', default_config_files=[])
    enforcer = oslo_policy.Enforcer(config)
    enforcer.suppress_deprecation_warnings = True
    enforcer.register_defaults(ironic_policy.list_policies())
    return enforcer


@pytest.mark.parametrize(('rule', 'step'), [
    ('node:set_power_state', 'power it on and off'),
    ('node:update_instance_info', '``node set --instance-info``'),
    ('node:set_provision_state', '``node deploy``, ``node undeploy``'),
    ('node:vif:attach', '``node vif attach`` and ``detach``'),
    ('node:vif:detach', '``node vif attach`` and ``detach``'),
    ('node:set_maintenance', '``node maintenance``'),
    ('volume:create', '``volume target create``'),
])
def test_roles_that_ironic_requires(ironic, rule, step):
    required = [next(role for number, role in enumerate(ROLES)
                     if ironic.enforce(
                         f'baremetal:{rule}',
                         {'node.owner': 'owner', 'node.lessee': 'lessee'},
                         {'roles': ROLES[:number + 1], 'project_id': project}))
                for project in ('owner', 'lessee')]
    [documented_roles] = [roles for steps, *roles in re.findall(
        r'^   \* - ((?:.*\n)+?)     - ``(.*)``\n     - ``(.*)``$',
        PAGES['how-to/without-nova'], re.MULTILINE) if step in steps]
    assert documented_roles == required


def osc_commands():
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    for line in setup['options.entry_points'][
            'openstack.baremetal.v1'].strip().splitlines():
        name, _, value = line.partition(' = ')
        yield pytest.param(name.replace('_', ' '), value, id=name)


@pytest.mark.parametrize(('name', 'value'), list(osc_commands()))
def test_commands_of_the_client(name, value):
    # The page is generated from the commands' own help.
    pattern, = re.findall(r'^\.\. autoprogram-cliff:: openstack\.baremetal'
                          r'\.v1\n   :command: (.*)$',
                          PAGES['reference/cli'], re.MULTILINE)
    assert fnmatch.fnmatch(name, pattern)
    assert f'$ openstack {name}' in PAGES['reference/cli']
    command = importlib.metadata.EntryPoint(name, value, '').load()
    assert command.__doc__
    for action in command(None, None).get_parser(name)._actions:
        assert action.help, action.option_strings or action.dest


def find_blocks(text, language):
    """Return the code blocks of a page in a language."""
    return [textwrap.dedent(block) for _, block in re.findall(
        rf'^( *)\.\. code-block:: {language}\n\n((?:\1   .*\n|\n)+)',
        text, re.MULTILINE)]


def find_command_lines():
    """Yield each page and line that shows a command for the reader."""
    pages = {**PAGES, **{name: (ROOT / f'{name}.rst').read_text()
                         for name in ('README', 'CONTRIBUTING')}}
    for page, text in sorted(pages.items()):
        blocks = '\n'.join(find_blocks(text, 'bash'))
        for line in [*re.findall(r'^ *[$#] ((?:.*\\\n)*.*)$', text,
                                 re.MULTILINE),
                     *re.findall(r'^ *((?:.*\\\n)*.*)$', blocks,
                                 re.MULTILINE)]:
            yield page, re.sub(r'\\\n\s*', '', line)
        for line in re.findall(r'``((?:make|tox|python -m) [^`]*[^`-])``',
                               text):
            yield page, line


def find_commands(pattern):
    """Return the groups of all matches of a pattern in those lines."""
    return [pytest.param(*match.groups(), id=f'{page}: {match[0].strip()}')
            for page, line in find_command_lines()
            for match in re.finditer(pattern, line)]


@pytest.mark.parametrize(('arguments',), find_commands(
    r'(?:^|[ (])openstack (?:-v )?(baremetal reservation [^|;)]*)'))
def test_client_commands_on_the_pages(arguments):
    """The command exists and accepts the arguments."""
    name, value = max((
        command.values for command in osc_commands()
        if f'{arguments} '.startswith(f'{command.values[0]} ')),
        key=lambda values: len(values[0]))
    parser = importlib.metadata.EntryPoint(name, value, '').load()(
        None, None).get_parser(name)
    arguments = re.sub(r' [12]?>\S+', '', arguments.removeprefix(name))
    # A variable of the shell may stand for a number.
    parser.parse_args(shlex.split(re.sub(r'\$[A-Z]+', '8', arguments)))


@pytest.mark.parametrize(('is_trial', 'members', 'image'), [
    (False, 8, 'debian'), (True, 3, trial_cloud.IMAGE)])
def test_guide_that_can_be_pasted(is_trial, members, image):
    """Its blocks, one after the other, set all variables that they use."""
    first, *blocks = find_blocks(PAGES['how-to/set-aside'], 'bash')
    if is_trial:
        _, _, text = PAGES['how-to/set-aside'].partition('In the trial cloud')
        blocks = re.findall(r'^ {6}\$ (.*)$', text.partition('#.')[0],
                            re.MULTILINE) + blocks
    output = programs.run('bash', '-euc', '\n'.join([
        'openstack() { echo "$OS_CLOUD: $*"; }', first, *blocks]))
    [group] = set(re.findall(r'--uuid (\S+)', output))
    assert f'group show {group}' in output
    assert re.findall('^(.*): server create (.*)$', output, re.MULTILINE) == [
        ('demo', f'--flavor {trial_cloud.FLAVOR} --image {image} --network '
                 f'{trial_cloud.NETWORK} --property '
                 f'reservations:claim={group} server-{number}')
        for number in range(1, members + 1)]
    assert {*re.findall('^([^:]*):', output, re.MULTILINE)} <= {
        *trial_cloud.USERS}


@pytest.mark.parametrize('page', [
    'how-to/nova', 'how-to/kolla', 'explanation/driver'])
def test_number_of_attempts(page):
    """Nova's conductor counts them, and has a configuration of its own."""
    assert re.search('nova-conductor.*attempts', PAGES[page])


def test_filter_of_nova_api(tmp_path):
    """The commands of the guide may be repeated, and continued."""
    path = pathlib.Path(trial_cloud.write_paste_config(tmp_path))
    text = path.read_text()
    parser = configparser.ConfigParser()
    parser.read_string(text)
    assert [value.split()[-2:] for section in parser.values()
            for name, value in section.items() if name == 'keystone'] == [
                ['named_node', 'osapi_compute_app_v21']] * 2
    section = text[text.index('\n[filter:named_node]'):]
    for former in text, text.replace(section, '') + section, text.replace(
            ' named_node ', ' '):
        path.write_text(former)
        programs.run('sh', SOURCE / 'examples/named-node.sh', path)
        assert path.read_text() == text


def test_constraints_of_installations():
    """They are the operator's, as pip must change no library of Ironic's."""
    pages = {**PAGES, 'README': (ROOT / 'README.rst').read_text()}
    names = {page: re.findall(r'pip install -c (\S+)', text)
             for page, text in pages.items() if page != 'contributor'}
    assert {page for page in names if names[page]} == {
        'README', *(f'how-to/{name}' for name in (
            'dashboard', 'install', 'nova', 'quota', 'upgrade'))}
    assert {*itertools.chain(*names.values())} == {'YOUR-CONSTRAINTS'}


@pytest.mark.parametrize(('program', 'arguments'), find_commands(
    r'(?:^|[ /])ironic-reservations-(\w+) (.*)'))
def test_server_commands_on_the_pages(program, arguments):
    options = re.findall(r'--([a-z-]+)[ =]\S+ ?', arguments)
    rest = re.sub(r'--([a-z-]+)[ =]\S+ ?', '', arguments).strip()
    names = ['config-file', *(opt.name for opt in exporter.OPTIONS
                              if program == 'exporter')]
    assert {*options} <= {*names}
    assert rest in {
        'dbsync': ['COMMAND', *dbsync.COMMANDS, 'drop --force'],
        'exporter': [''],
        'manage': ['COMMAND', *manage.COMMANDS],
        'status': ['upgrade check']}[program]


@pytest.mark.parametrize(('program', 'arguments'), find_commands(
    r'^(make|tox|\S+python -m|python -m(?= tests)) (.*?)(?: +# .*)?$'))
def test_development_commands_on_the_pages(program, arguments):
    """The target, environment or module exists, and so do the files."""
    target, *others = shlex.split(arguments)
    if program == 'tox':
        setup = configparser.ConfigParser()
        setup.read(ROOT / 'tox.ini')
        assert target == '-e'
        assert f'testenv:{others.pop(0)}' in setup
    elif program == 'make':
        targets = {target, *(word for word in others if '=' not in word)}
        matches = re.findall(r'^([a-z-]+):|^##     ([a-z0-9.-]+) ',
                             (ROOT / 'Makefile').read_text(), re.MULTILINE)
        assert targets <= {name or f'test-{suite}' for name, suite in matches}
    else:
        assert importlib.util.find_spec(target)
    for path in re.findall(r'\btests/[\w./]+', arguments):
        assert (ROOT / path).exists()


@pytest.mark.parametrize('kind', kinds.KINDS.values(),
                         ids=lambda kind: kind.name)
def test_kinds_of_the_audit(kind):
    """The tables are generated from the classes."""
    assert kind.__doc__ and kind.instructions
    assert kind.repair is None or kind.repair.__doc__ and kind.exclusions
    for directive in 'kinds', 'repairs':
        assert f'.. audit-{directive}::\n' in PAGES['how-to/audit']


@pytest.mark.parametrize(('program', 'names'), [
    ('ironic-reservations-dbsync', dbsync.COMMANDS),
    ('ironic-reservations-exporter', []),
    ('ironic-reservations-manage', manage.COMMANDS),
    ('ironic-reservations-status',
     [name for name, _ in status.Checks._upgrade_checks]),
])
def test_commands_of_the_api_hosts(program, names):
    heading = f'\n{program}\n{"=" * len(program)}\n'
    _, title, text = PAGES['reference/cli'].partition(heading)
    assert title
    section = re.split(r'\n=+\n', text)[0]
    assert re.findall(r'^``(.*)``$', section, re.MULTILINE) == [*names]


@pytest.mark.parametrize('opt', exporter.OPTIONS, ids=lambda opt: opt.name)
def test_options_of_the_exporter(opt):
    assert opt.help
    assert f'``--{opt.name}``' in PAGES['reference/metrics']
    assert f'--{opt.name} {opt.default}' in PAGES['reference/cli']


def test_extras():
    """The page lists all of them, and no page or file names another."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    extras = sorted(setup['options.extras_require'])
    _, _, section = PAGES['how-to/install'].partition('\nExtras\n')
    assert re.findall(r'^``(\w+)``$', section, re.MULTILINE) == extras
    texts = '\n'.join(path.read_text() for path in [
        *SOURCE.rglob('*.rst'), *SOURCE.rglob('*.yml'), *SOURCE.rglob('*.j2'),
        ROOT / 'README.rst', ROOT / 'devstack/plugin.sh'])
    names = ','.join(re.findall(
        r'(?:ironic-reservations|(?<!\S)["\'`]*\.)\[([\w,]+)\]', texts))
    assert {*names.split(',')} == {*extras}


def test_planned_removals():
    """The page names all options and policies that are deprecated."""
    names = [
        *re.findall(r"'(\w+)',[^()]*\bDeprecated\b",
                    (ROOT / 'nova_driver/conf.py').read_text()),
        *(opt.name for opt in conf.reservations_opts
          if opt.deprecated_for_removal),
        *(rule.name for rule in policy.rules
          if rule.deprecated_rule or rule.deprecated_for_removal)]
    assert names
    for name in names:
        assert re.search(rf'``[^`]*\b{name}\b[^`]*``',
                         PAGES['reference/removals'])


def test_revision_on_the_installation_page():
    """It is what the command prints that is shown there."""
    head = script.ScriptDirectory.from_config(
        dbsync.make_config(None)).get_current_head()
    assert f'\n      done, at {head}\n' in PAGES['how-to/install']


def test_tables_on_the_installation_page():
    tables = [table.name for table in models.Base.metadata.sorted_tables]
    number = ('no one two three four five six seven eight nine'
              ).split()[len(tables)]
    assert f' {number} tables ' in PAGES['how-to/install']
    for name in tables:
        assert f'``{name}``' in PAGES['how-to/install']


#: Questions of operators and users, and the page that answers each.
QUESTIONS = {
    'What is it, and how do I try it?': 'tutorial',
    'How do I install it into my Ironic?': 'how-to/install',
    'How do I install it with Kolla-Ansible?': 'how-to/kolla',
    'How do I run it with Kolla-Ansible?': 'how-to/kolla-operate',
    'What do I change on compute hosts and the scheduler?': 'how-to/nova',
    'How do my hosts with servers get there, and back?': 'how-to/switching',
    'Do my scripts still work?': 'how-to/scripts',
    'How do I reserve a rack for a project until Friday?': 'how-to/set-aside',
    'How do I give a rack to a project for months?': 'how-to/pool',
    'How do I reserve several machines at once?': 'how-to/groups',
    'How do I keep a machine for one purpose?': 'how-to/dedicated',
    'How do I keep two servers in different racks?': 'how-to/servers',
    'I have no Nova: how do I get a machine?': 'how-to/without-nova',
    'How much may a project reserve?': 'how-to/quota',
    'Who may do what?': 'reference/policy',
    'Why did a server end in ERROR?': 'how-to/troubleshooting',
    'A machine is broken: what now?': 'how-to/repair',
    'How does a project give back a broken machine?': 'how-to/give-back',
    'How do I announce work on a rack?': 'how-to/maintenance',
    'How do I take a machine out of service?': 'how-to/retire',
    'A compute host is dead: what now?': 'how-to/lost-host',
    'May I restart nova-compute while it builds?': 'how-to/restart',
    'How does a second process take over by itself?': 'how-to/standby',
    'Do Nova, Placement and Ironic agree?': 'how-to/audit',
    'I restored a backup of the database: what now?': 'how-to/restore',
    'How do I upgrade, and which versions fit?': 'how-to/upgrade',
    'What will a later release remove?': 'reference/removals',
    'How do I get rid of it?': 'how-to/uninstall',
    'How do I drain nodes of Slurm?': 'how-to/slurm',
    'What could go into Ironic or Nova?': 'explanation/upstream',
    'What do I monitor, and what alerts are there?': 'how-to/monitor',
    'Which extra specs are compared with a node?': 'reference/matching',
    'Does it meet the requirements of NVIDIA?': 'reference/nvidia',
    'How fast is it with 100,000 nodes?': 'explanation/performance',
    'What can one project do to another?': 'explanation/security',
    'What happens if a database of the cluster fails?':
        'explanation/availability',
}


@pytest.mark.parametrize('question', QUESTIONS)
def test_index_leads_to_the_answer(question):
    """The index lists the page, which begins with its purpose."""
    page = QUESTIONS[question]
    assert f'\n   {page}\n' in PAGES['index']
    assert re.search(r'^This (?:page|guide|tutorial) ', PAGES[page],
                     re.MULTILINE)


@pytest.mark.parametrize(('word', 'page'), [
    ('taint', 'how-to/dedicated'), ('cordon', 'how-to/repair'),
    ('quota', 'how-to/quota'), ('drain', 'how-to/lost-host'),
    ('pool', 'how-to/pool'), ('retired', 'how-to/retire')])
def test_words_of_other_systems_on_the_index(word, page):
    assert re.search(rf'^\* :doc:`{page}`: .*\b{word}\b', PAGES['index'],
                     re.MULTILINE)


@pytest.mark.parametrize(('word', 'page'), [
    ('slurm', 'how-to/slurm'), ('tomorrow', 'how-to/set-aside'),
    ('black hole', 'how-to/troubleshooting'),
    ('saturday', 'how-to/maintenance'), ('terraform', 'how-to/scripts'),
    ('undo', 'how-to/troubleshooting'),
    ('undo', 'how-to/lost-host'), ('back up', 'how-to/restore'),
    ('drain', 'how-to/slurm')])
def test_search_finds_the_page(word, page):
    """Sphinx searches neither directives nor their options."""
    prose = re.sub(r'^ *(?:\.\.|:\w+:).*', '', PAGES[page], flags=re.MULTILINE)
    assert word in prose.replace('*', '').lower()


def test_scripts_for_nvidias_suite():
    """All are on the page, and steps in the files of the suite."""
    folder = SOURCE / 'examples/nvidia'
    assert {*re.findall(r':download:`[^`]* </examples/nvidia/([^>]*)>`',
                        PAGES['reference/nvidia'])} == {
        path.name for path in folder.iterdir() if path.is_file()}
    steps = [step for path in folder.glob('*.yaml')
             for command in yaml.safe_load(path.read_text())[
                 'commands'].values() for step in command['steps']]
    # NVIDIA has it in a suite for Kubernetes.
    assert {f'{step["name"]}.py' for step in steps} | {'cordon_node.py'} == {
        path.name for path in folder.glob('[!_]*.py')}
    for step in steps:
        assert step['command'] == f'python ./{step["name"]}.py'


def test_all_pages_are_in_the_index():
    assert PAGES.keys() - {'index'} <= {
        *re.findall(r'^   ([a-z-]+(?:/[a-z-]+)?)$', PAGES['index'],
                    re.MULTILINE)}


def test_links_of_the_readme():
    links = re.findall(r'<([^<>]+)>`_', (ROOT / 'README.rst').read_text())
    assert links
    assert [link for link in links if not link.startswith('https://')
            and not (ROOT / link).is_file()] == []


@pytest.mark.parametrize('path', sorted((SOURCE / '_images').glob('*.svg')),
                         ids=lambda path: path.stem)
def test_pictures_are_shown_and_described(path):
    """Each has a text for readers who cannot see it, and a dark variant."""
    text = '\n'.join([*PAGES.values(), (ROOT / 'README.rst').read_text()])
    assert re.search(
        rf'^\.\. image:: \S*\b{path.name}\n   :alt: \S', text, re.MULTILINE)
    ElementTree.parse(path)
    picture = path.read_text()
    assert any(style in picture for style in (
        'prefers-color-scheme: dark',
        # These have their own background.
        'style="fill: #ffffff"', '<rect fill="#292929"'))


def test_figures_are_on_the_page():
    """The page includes all tables that the benchmarks write."""
    names = re.findall(r'^\.\. include:: \.\./figures/(.*)$',
                       PAGES['explanation/performance'], re.MULTILINE)
    assert sorted(names) == [path.name for path in FIGURES]


@pytest.mark.parametrize('path', FIGURES, ids=lambda path: path.stem)
def test_table_of_figures(path):
    """It has all sizes, each row all cells, and a note names its run."""
    text = path.read_text()
    [header] = re.findall('   :header: (.*)', text)
    if '000 nodes"' in header:
        assert re.findall('"([^"]+) nodes"', header) == [
            '1,000', '3,000', '10,000', '100,000']
    rows = [row.split('|') for row in re.findall(r'   (.* \| .*)', text)]
    assert rows
    assert {len(row) for row in rows} == {header.count('|') + 1}
    assert all(cell.strip() for row in rows for cell in row)
    assert text.endswith('; all figures are of one run.\n')


def test_messages_of_the_troubleshooting_page_exist():
    sources = '\n'.join(
        path.read_text() for folder in ('ironic_reservations', 'nova_driver')
        for path in (ROOT / folder).rglob('*.py'))
    messages = [text for text in re.findall(
                    r'``([^`]+)``', PAGES['how-to/troubleshooting'])
                if re.match(r'[A-Zhr].* .* ', text)
                # This one is Python's.
                and not text.startswith('No module')]
    assert len(messages) >= 7
    assert [text for text in messages if text not in sources] == []


def test_releases_in_the_readme():
    table = yaml.safe_load(
        (ROOT / 'tests/install/deployments.yaml').read_text())
    _, _, section = (ROOT / 'README.rst').read_text().partition(
        '\nTested versions\n')
    lines = re.findall(r'\* - Ironic (.*)', section)
    assert {release for line in lines
            for release in re.findall(r'\d+\.\d+\.\d+', line)} == {
                row['ironic'] for row in table}


def test_own_version_on_the_page():
    assert (f'.. |own| replace:: {version.OWN_VERSION}\n'
            in PAGES['reference/versions'])
