# SPDX-License-Identifier: Apache-2.0

import gc

import pytest

from ironic_reservations import garbage


@pytest.fixture(autouse=True)
def _restore():
    yield
    gc.enable()


@pytest.mark.parametrize('is_enabled', [True, False])
@pytest.mark.parametrize('error', [None, ValueError])
def test_collector_is_paused_and_restored(is_enabled, error):
    @garbage.pause_collection
    def work():
        states.append(gc.isenabled())
        if error:
            raise error

    states = []
    if not is_enabled:
        gc.disable()
    if error:
        with pytest.raises(error):
            work()
    else:
        work()
    assert states == [False]
    assert gc.isenabled() == is_enabled
