# SPDX-License-Identifier: Apache-2.0
"""The page "The path of a request" shows the statements that are sent."""

import pathlib
import re
import uuid

import pytest

from ironic_reservations.fleet import counts
from tests.common import application

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/explanation/walk.rst'
BODY = {'resource_class': 'walk', 'expires_in': 600, 'extra_specs': {
    'trait:CUSTOM_GPU': 'required', 'capabilities:boot_mode': 'uefi'}}
NODE = {'resource_class': 'walk', 'traits': ['CUSTOM_GPU'], 'properties': {
    'memory_mb': 1, 'cpus': 1, 'local_gb': 1,
    'capabilities': 'boot_mode:uefi'}}


def read_page(title):
    """Return the statements below a title, as regular expressions."""
    _, _, rest = PAGE.read_text().partition(f'\n{title}')
    _, section, *_ = re.split(r'\n=+\n', rest)
    lines = re.findall(r'^   (\S.*);$', section, re.MULTILINE)
    assert lines, title
    return [re.escape(line).replace('…', '.*') for line in lines]


def check_statements(title, ironic, status, body):
    with application.record_statements(with_commits=True) as statements:
        ironic.create(status=status, **body)
    statements = [' '.join(text.split()) for text in statements]
    expected = read_page(title)
    assert len(statements) == len(expected), statements
    for pattern, statement in zip(expected, statements, strict=True):
        assert re.fullmatch(pattern, statement), (pattern, statement)


@pytest.mark.on('server')
def test_statements_of_a_hold(ironic, monkeypatch):
    # The first count is used until a request recounts.
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
    one, other = ({'instance_uuid': str(uuid.uuid4()), **BODY}
                  for _ in range(2))
    with ironic.fleet(NODE):
        ironic.capacity()
        check_statements('201: ', ironic, 201, one)
        check_statements('200: ', ironic, 200, one)
        check_statements('409: ', ironic, 409, {**one, 'extra_specs': {}})
        check_statements('422: ', ironic, 422, other)
        ironic.expire(one['instance_uuid'])
        check_statements('201 after ', ironic, 201, other)
