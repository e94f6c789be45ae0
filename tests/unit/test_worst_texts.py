# SPDX-License-Identifier: Apache-2.0
"""No text takes quadratic time: see worst_texts."""

import pytest

from tests.common import growth
from tests.unit import worst_texts


@pytest.mark.parametrize('name', worst_texts.CALLS)
def test_twice_the_text_costs_twice_as_much(name):
    growth.check(worst_texts.CALLS[name])


@pytest.fixture(scope='module')
def application():
    with worst_texts.application() as found:
        yield found


@pytest.mark.parametrize('name', worst_texts.REQUESTS)
def test_twice_the_request_costs_twice_as_much(application, name):
    growth.check(worst_texts.send(application, name))
