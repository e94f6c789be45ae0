# SPDX-License-Identifier: Apache-2.0
"""The counters for Prometheus, which must not disturb requests."""

import os
import subprocess
import sys

from prometheus_client import multiprocess
import pytest

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.fleet import explanation
from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_policy
from ironic_reservations.shared import constants
from tests.unit import tables


def cause(*eliminated):
    return explanation.find_cause(verdicts.Explanation(1, dict(eliminated)))


@pytest.mark.parametrize('eliminated, expected', [
    ([], 'no nodes'),
    ([('resource_class=CUSTOM_GOLD', 5)], 'resource_class'),
    # Values of a request do not become labels.
    ([('shard=trait:a', 5)], 'shard'),
    ([('memory_mb>=9', 90), ('trait:CUSTOM_A=required', 1)], 'trait'),
    # Nodes match, but cannot be held.
    ([('vcpus>=9', 90), ('reserved', 2), ('not available', 3),
      ('locked', 1)], 'not available'),
    # Nodes can be held, but not as a group, or not at closer inspection.
    ([('reserved', 90), ('group:spread=capability:rack', 2)], 'group'),
    ([('reserved', 90), ('members=4', 2)], 'members'),
    ([('reserved', 90), ('malformed properties', 2)],
     'malformed properties'),
], ids=str)
def test_cause_of_a_refusal(eliminated, expected):
    assert cause(*eliminated) == expected


def test_causes_are_few():
    """The name of every constraint leads to one of them."""
    names = {constraint.name for match in ('at_least', 'exact')
             for constraint in tables.make_matcher(
                 tables.FULL_BODY, match).constraints}
    names |= {f'{size}>=1' for size in ('memory_mb', 'vcpus', 'local_gb')}
    names |= {constraint.name for constraint in matching.Matcher(
        tables.make_spec({'memory_mb': 1}),
        used_up=frozenset({'CUSTOM_GOLD'})).constraints}
    names |= {constraints.make_ownership(values.Ownership('a', kind)).name
              for kind in ('project', 'project_or_none')}
    names |= {group_policy.name_policy(policy, 'resource_class')
              for policy in constants.POLICIES}
    constraint, _ = matching.Matcher(
        tables.make_spec({}), dedicated=('CUSTOM_*',)).constraints
    names |= {*constraint.list_unmet(tables.make_node(
        traits=frozenset(['CUSTOM_A'])))}
    names |= {'members=3', 'lessee', 'resources:VGPU=1', matching.MALFORMED}
    names |= {*matching.REASONS} - {matching.CLAIMABLE}
    assert {cause((name, 1)) for name in names} | {cause()} == {
        *explanation.CAUSES}


def run(program, tmp_path, **env):
    """Return the output of a process that loads only the application."""
    (tmp_path / 'ironic.conf').write_text(
        '[DEFAULT]\nauth_strategy = noauth\n')
    process = subprocess.run(
        [sys.executable, '-c', f'''
import os, shutil, sys
import webob
from ironic_reservations import wsgi

def ask():
    print(webob.Request.blank('/v1/reservations/not-a-uuid').get_response(
        wsgi.application).status_int, flush=True)

{program}
'''], capture_output=True, text=True, check=True, timeout=60, env={
            **{key: value for key, value in os.environ.items()
               if key != 'PROMETHEUS_MULTIPROC_DIR'},
            'OS_IRONIC_RESERVATIONS_CONFIG_FILES': str(
                tmp_path / 'ironic.conf'), **env})
    return process.stdout.split(), process.stderr


def test_nothing_is_counted_by_default(tmp_path):
    output, _ = run("ask(); print('prometheus_client' in sys.modules)",
                    tmp_path)
    assert output == ['400', 'False']


def test_quota_is_a_cause(tmp_path):
    """The application also creates the folder."""
    folder = tmp_path / 'a' / 'b'
    run('''
from ironic_reservations import exception
from ironic_reservations import verdicts
from ironic_reservations.api import errors

ask()
for _ in range(3):
    errors.make_response(exception.QuotaExceeded(
        verdicts.Quota('secret', 1, 1, 1)))
''', tmp_path, PROMETHEUS_MULTIPROC_DIR=str(folder))
    assert {path.name.partition('_')[0] for path in folder.iterdir()} == {
        'counter', 'histogram'}
    values = {tuple(sample.labels.values()): sample.value
              for metric in multiprocess.MultiProcessCollector(
                  None, str(folder)).collect()
              for sample in metric.samples if sample.value
              and sample.name == 'ironic_reservations_refusals_total'}
    assert values == {('quota',): 3}


def test_folder_cannot_be_created(tmp_path):
    output, log = run('ask()', tmp_path,
                      PROMETHEUS_MULTIPROC_DIR=str(tmp_path / 'ironic.conf'))
    assert output == ['400']
    assert log.count('stopped counting for Prometheus') == 1


def test_folder_is_deleted_before_a_worker_starts(tmp_path):
    """Requests succeed without counters."""
    output, log = run('''
shutil.rmtree(os.environ['PROMETHEUS_MULTIPROC_DIR'])
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
ask()
ask()
''', tmp_path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path / 'counters'))
    assert output == ['400', '400']
    assert log.count('stopped counting for Prometheus') == 1
