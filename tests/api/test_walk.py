# SPDX-License-Identifier: Apache-2.0
"""The statements that the page "The walk of POST" shows are those sent."""

import pathlib
import re
import uuid

import pytest

from ironic_reservations.fleet import counts
from tests.common import application

PAGE = pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'walk.rst'
WANTED = {'resource_class': 'walk', 'expires_in': 600, 'extra_specs': {
    'trait:CUSTOM_GPU': 'required', 'capabilities:boot_mode': 'uefi'}}
NODE = {'resource_class': 'walk', 'traits': ['CUSTOM_GPU'], 'properties': {
    'memory_mb': 1, 'cpus': 1, 'local_gb': 1,
    'capabilities': 'boot_mode:uefi'}}


def shown(title):
    """The statements below a title, as regular expressions."""
    _, _, rest = PAGE.read_text().partition(f'\n{title}')
    _, section, *_ = re.split(r'\n=+\n', rest)
    lines = re.findall(r'^   (\S.*);$', section, re.MULTILINE)
    assert lines, title
    return [re.escape(line).replace('…', '.*') for line in lines]


def check(title, ironic, status, body):
    with application.record_statements(with_commits=True) as sent:
        ironic.create(status=status, **body)
    sent = [' '.join(each.split()) for each in sent]
    expected = shown(title)
    assert len(sent) == len(expected), sent
    for pattern, statement in zip(expected, sent, strict=True):
        assert re.fullmatch(pattern, statement), (pattern, statement)


@pytest.mark.on('server')
def test_walk(ironic, monkeypatch):
    # What is counted at first serves until a request counts for itself.
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
    one, other = ({'instance_uuid': str(uuid.uuid4()), **WANTED}
                  for _ in range(2))
    with ironic.fleet(NODE):
        ironic.capacity()
        check('201: ', ironic, 201, one)
        check('200: ', ironic, 200, one)
        check('409: ', ironic, 409, {**one, 'extra_specs': {}})
        check('422: ', ironic, 422, other)
        ironic.expire(one['instance_uuid'])
        check('201 after a lapse', ironic, 201, other)
