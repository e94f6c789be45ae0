# SPDX-License-Identifier: Apache-2.0
"""The check for plain English that "make lint" runs."""

import textwrap

import pytest

from tools import words


@pytest.mark.parametrize('text, phrase', [
    ('Count the nodes anew.', 'anew'),
    ('Meanwhile it waits.', 'Meanwhile'),
    ('def test_table_beside_ours():', 'beside'),
    ("'The lease '\n    'is over.'", 'is over'),
    ("f'Host {host} was '\n    f'told.'", 'was told'),
    ('# There are so\n# many nodes.', 'so many'),
    ('First. Of these, two are free.', 'Of'),
])
def test_banned_phrase(text, phrase):
    assert words.find_phrases(f'\n{text}') == [
        (2 + text.partition(phrase.split()[0])[0].count('\n'), phrase)]


@pytest.mark.parametrize('text', [
    'besides, smallest, tells us, retold, one of them, Office',
    'The sum is over 60.',
    '| Taken | Out Of Service |',
])
def test_plain_text(text):
    assert words.find_phrases(text) == []


def test_participles():
    code = textwrap.dedent('''\
        import shown
        found = 1
        class Node:
            refused: int
            def claim(self, held, /, *given, told=None, **asked):
                self._claimed = held
                self.claimed = other.found
        def begun(of_row):
            for each in rows: pass
            for each in rows: pass
            with hold(kept=1) as lost: pass
            if made := [listed for listed in rows]: pass
            try: pass
            except Error as caught: pass
            lambda gone: gone
            match rows:
                case [Node() as chosen, *unseen]: pass
        is_held = nodes = expected = token = HELD = 1
        ''')
    _phrases, participles, _total = words.check_file('node.py', code)
    assert sorted(participles) == [
        (2, 'found'), (5, 'asked'), (5, 'given'), (5, 'held'), (5, 'told'),
        (6, '_claimed'), (7, 'claimed'), (8, 'of_row'), (9, 'each'),
        (11, 'lost'), (12, 'listed'), (12, 'made'), (14, 'caught'),
        (15, 'gone'), (17, 'chosen'), (17, 'unseen')]


def test_variables_are_counted_by_function():
    *_hits, total = words.check_file('node.py', textwrap.dedent('''\
        row = 1
        def read(row):
            row = row.x
            column = 2
        '''))
    assert total == 3


@pytest.mark.parametrize('text, status', [
    ('row = 1\n', 0), ('found = 1\n', 1), ('# is over\n', 1)])
def test_exit_status(text, status, monkeypatch, capsys):
    monkeypatch.setattr(words, 'read_files', lambda: [('a.py', text)])
    assert words.main([]) == status
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == status
    assert all(line.startswith('a.py:1: ') for line in lines)
