# SPDX-License-Identifier: Apache-2.0
"""The breaks of tests.mutants fit the code as it is now."""

import collections

import pytest
import yaml

from tests.mutants import __main__ as mutants

ROWS = yaml.safe_load(mutants.TABLE.read_text())


@pytest.mark.parametrize('row', [
    pytest.param(row, id=row['name']) for row in ROWS])
def test_break_fits(row):
    mutant = mutants.Mutant(**row)
    text = (mutants.ROOT / mutant.file).read_text()
    assert mutant.broken(text) != text
    assert mutant.noticed_by
    for test in mutant.noticed_by:
        path, _, name = test.partition('::')
        assert name.partition('[')[0] in (
            mutants.ROOT / path).read_text() if name else True


def test_names_are_unique():
    names = collections.Counter(row['name'] for row in ROWS)
    assert max(names.values()) == 1
