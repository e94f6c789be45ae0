# SPDX-License-Identifier: Apache-2.0

import threading
import time

from ironic_reservations import interval


def test_due_once():
    each = interval.Interval(1000)
    assert [each.due() for _ in range(3)] == [True, False, False]


def test_due_again_when_it_is_over():
    each = interval.Interval(0.5)
    assert each.due() and not each.due()
    time.sleep(0.51)
    assert each.due() and not each.due()


def test_due_always():
    each = interval.Interval(0)
    assert [each.due() for _ in range(3)] == [True, True, True]


def test_again():
    each = interval.Interval(1000)
    assert each.due()
    each.again()
    assert each.due() and not each.due()


def test_one_thread_of_many():
    each, begin, found = interval.Interval(1000), threading.Barrier(8), []

    def ask():
        begin.wait(60)
        found.append(each.due())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [False] * 7 + [True]
