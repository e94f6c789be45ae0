# SPDX-License-Identifier: Apache-2.0
"""Regular expressions match texts of clients and nodes in linear time.

The other threads of the process wait during a match.
"""

import ast
import gc
import importlib
import pathlib
import re
import time

import pytest

from ironic_reservations.api import schema

ROOT = pathlib.Path(__file__).parents[2]
NODE = '/v1/nodes/11111111-2222-4333-8444-555555555555'

#: Beginnings of texts that the expressions of a module match; the rest is one
#: of PARTS, many times, and END.
PREFIXES = {
    'ironic_reservations.shared.resources': ['resources', 'resources:'],
    'ironic_reservations.matching.constraints': ['', '-', '[', "['", '[a'],
    'ironic_reservations.matching.operators': ['', '<', 's='],
    'ironic_reservations.matching.nodes': ['', '1', '1.', '1e'],
    'ironic_reservations.matching.extra_specs': [
        'resources', 'trait', 'trait:', 'reservations:trait:',
        'capabilities:', 'CUSTOM_'],
    'ironic_reservations.api.limits': ['', '"', '"\\'],
    'ironic_reservations.api.routes': ['/v1/reservations', '/v1/'],
    'ironic_reservations.api.fence': [NODE, f'{NODE}/.', '/v1/volume/targets'],
    'ironic_reservations.api.markers': [''],
    'ironic_reservations.horizon.api': [''],
    'ironic_reservations.horizon.forms': ['', 'a', 'a='],
    'ironic_reservations.shared.extra_specs': [
        'resources', 'trait', 'reservations:trait:', 'capabilities:'],
    'ironic_reservations.shared.names': ['', 's'],
    'ironic_reservations.osc.units': ['', '1'],
    'ironic_reservations.shared.text': ['', '2030-12-31T18:00:00.'],
    'ironic_reservations.shared.spelling': ['resources', 'trait'],
    'nova_driver.named_node': ['', '/a', '/servers'],
    'nova_driver.node_faults': ['', 'nodes/', '/nodes/'],
    'nova_driver.wanted': ['reservations:', 'reservations:trait:'],
}
METHODS = {'ironic_reservations.api.limits': 'findall'}
PARTS = ('a', '1', ' ', '\t ', ',', ' ,', "'a',", '["', '\\"', '"', '/', '/.',
         '/a', ':', '-', '_', '<', '[]', '\x85', 'A_')
END = '~\n'
SHORT, LONG = 8 * 1024, 64 * 1024


def module(name):
    """Return the values of a module by their names."""
    if name.startswith('ironic_reservations') and '.horizon.' not in name:
        return vars(importlib.import_module(name))
    # Nova and Ironic register options of the same names, and Django is not
    # installed here.
    values = {'re': re}
    for statement in ast.parse(
            (ROOT / name.replace('.', '/')).with_suffix('.py').read_text()
            ).body:
        if isinstance(statement, ast.Assign) and (
                isinstance(statement.value, ast.Constant)
                or 're.compile(' in ast.unparse(statement)):
            exec(ast.unparse(statement), values)
    return values


def patterns(value):
    """Yield all compiled expressions in a value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from patterns(item)


def seconds(match, text):
    """Return the least processor time that a match takes in this thread."""
    times = []
    for _ in range(3):
        before = time.thread_time()
        match(text)
        times.append(time.thread_time() - before)
    return min(times)


def check_duration(pattern, method, prefix):
    """Fail where a text of eight times the length takes far more time.

    A quadratic match takes 64 times as long, and seconds for 64 KiB; less than
    50 ms may be noise.
    """
    match = getattr(pattern, method)
    for part in PARTS:
        short, long = ((prefix + part * (length // len(part)) + END)
                       for length in (SHORT, LONG))
        if isinstance(pattern.pattern, bytes):
            short, long = short.encode(), long.encode()
        spent = seconds(match, long)
        assert spent < max(0.05, 24 * seconds(match, short)), (pattern, part)


@pytest.fixture(autouse=True)
def no_garbage_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize('name', PREFIXES)
def test_matching_takes_linear_time(name):
    expressions = list(patterns(module(name)))
    assert expressions
    for pattern in expressions:
        for prefix in PREFIXES[name]:
            check_duration(pattern, METHODS.get(name, 'fullmatch'), prefix)


@pytest.mark.parametrize('pattern', sorted({
    value['pattern'] for value in vars(schema).values()
    if isinstance(value, dict) and isinstance(value.get('pattern'), str)}))
def test_validating_takes_linear_time(pattern):
    check_duration(re.compile(pattern), 'search', '')


def test_all_modules_are_listed():
    assert {'.'.join(path.relative_to(ROOT).with_suffix('').parts)
            for package in ('ironic_reservations', 'nova_driver')
            for path in (ROOT / package).rglob('*.py')
            if 're.compile(' in path.read_text()} == set(PREFIXES)
