# SPDX-License-Identifier: Apache-2.0

import gc
import threading
from unittest import mock

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


def test_threads_that_overlap_leave_the_collector_on():
    """A thread that begins while it is paused must not pause it for good."""
    start, end = threading.Event(), threading.Event()

    @garbage.pause_collection
    def wait():
        start.set()
        assert end.wait(60)

    def check_and_end():
        # The first thread ends between the check and what follows it.
        end.set()
        thread.join(60)
        return False

    thread = threading.Thread(target=wait)
    thread.start()
    assert start.wait(60)
    with mock.patch.object(garbage.gc, 'isenabled', check_and_end):
        garbage.pause_collection(list)()
    assert gc.isenabled()


@pytest.mark.parametrize('number, is_visited', [(100, False), (2000, True)])
def test_many_new_objects_are_visited_once(number, is_visited, monkeypatch):
    monkeypatch.setattr(garbage, 'MANY', 1000)
    old = [[[None] for _ in range(number)]]
    gc.collect()
    before = [generation['collections'] for generation in gc.get_stats()]

    @garbage.pause_collection
    def replace():
        new = [[None] for _ in range(number)]
        old.clear()
        return new

    objects = replace()
    after = [generation['collections'] for generation in gc.get_stats()]
    assert [end - start for end, start in zip(after, before, strict=True)] == [
        0, 0, is_visited]
    assert len(objects) == number
