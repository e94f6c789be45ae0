# SPDX-License-Identifier: Apache-2.0
"""All of Unicode is stored, compared and searched for unchanged."""

import pytest

from tests.common import contract
from tests.common import request_keys
from tests.common import service

OURS = service.OURS
POOL = [{}]

pytestmark = pytest.mark.on('sqlite', 'server', 'utf8')

TEXTS = {
    'emoji': '\U0001f600' * 255, 'last-of-unicode': '\U0010ffff' * 255,
    'accents': '\u00e9\u0301\u00df\u0130' * 60, 'ideographs': '\u6f22' * 255,
    'right-to-left': '\u202e\u05d0\u200f', 'no-characters': '\ufffe\uffff',
    'quotes': '\'"`\\\'" OR 1=1; -- %s %(x)s {} ${x} ' * 5,
    'wildcards': '%_*?[]', 'spaces': ' a ',
}

#: Keys whose texts are stored, but not compared with nodes.
TEXTS_NOT_COMPARED = [name for name in request_keys.TEXTS
                      if not request_keys.KEYS[name].is_compared]

#: With characters that only values may contain.
VALUES = {**TEXTS, 'controls': '\x01\x07\x1b\x7f\x85\u2028',
          'lines': 'a\r\nb\tc'}


@pytest.mark.parametrize('text', TEXTS.values(), ids=TEXTS)
def test_text_is_stored_unchanged(ironic, pool, node_class, text):
    http = ironic.http
    body = {
        **dict.fromkeys(TEXTS_NOT_COMPARED, text),
        'resource_class': node_class, 'extra_specs': {text: text * 4},
        'image': {'id': text, 'properties': {text: text * 4}},
    }
    post_response = http.post(OURS, json=body)
    contract.check(post_response, 201)
    reservation = post_response.json()
    assert reservation.pop('ignored') == [text]
    try:
        for name in {*TEXTS_NOT_COMPARED, 'extra_specs', 'image'}:
            assert {**reservation['request_spec'],
                    **reservation}[name] == body[name]
        fields = ','.join(reservation.keys() - {'links', 'more_notices'})
        for name in 'host', 'project_id':
            for more in {}, {'limit': 1, 'sort_key': name}:
                response = http.get(OURS, params={name: text, 'fields': fields,
                                                  **more})
                contract.check(response, 200)
                row, = response.json()['reservations']
                assert {**row, 'links': reservation['links']} == reservation
        repeat = http.post(OURS, json={
            **body, 'instance_uuid': reservation['instance_uuid']})
        contract.check(repeat, 200)
    finally:
        contract.check(http.delete(f'{OURS}/{reservation["instance_uuid"]}',
                                   params={'host': text}), 204)


#: Request bodies with a text as a name, and as a value.
IN_NAMES = {
    'resource_class': lambda text: {'resource_class': text},
    'conductor_group': lambda text: {'conductor_group': text},
    'shard': lambda text: {'shard': text},
    'candidate_nodes': lambda text: {'candidate_nodes': [text, 'x']},
    'capability-name': lambda text: {
        'extra_specs': {f'capabilities:{text[:240]}': 'x'}},
}
IN_VALUES = {
    'capability': lambda text: {
        'extra_specs': {'capabilities:x': text[:1000]}},
    'candidates-of-flavor': lambda text: {
        'extra_specs': {'reservations:candidate_nodes': text}},
    'capabilities': lambda text: {'extra_specs': {'capabilities': text}},
    'architecture': lambda text: {
        'image': {'properties': {'hw_architecture': text}}},
}


@pytest.mark.parametrize('body, text', [
    pytest.param(body, text, id=f'{where}-{name}')
    for bodies, texts in ((IN_NAMES, TEXTS), (IN_VALUES, VALUES))
    for where, body in bodies.items() for name, text in texts.items()])
def test_text_that_no_node_has(ironic, pool, node_class, body, text):
    response = ironic.http.post(OURS, json={
        'resource_class': node_class, **body(text)})
    contract.check(response, 422)


@pytest.mark.parametrize('text', TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize('name', ['host', 'node', 'resource_class',
                                  'project_id'])
def test_text_that_no_name_matches(ironic, pool, name, text):
    response = ironic.http.get(OURS, params={name: text})
    contract.check(response, 200)
    assert response.json()['reservations'] == []
