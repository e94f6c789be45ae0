# SPDX-License-Identifier: Apache-2.0
"""The count that the workers of all API hosts share."""

import multiprocessing
import os
import signal
import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import fleet as fleets
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import queries


@pytest.fixture
def workers(fleet, monkeypatch):
    """Three workers that have counted nothing yet."""
    monkeypatch.setattr(fleets, 'AGE_TO_COST', 10 ** 6)
    monkeypatch.setattr(fleets, 'WORTH_SHARING', 0)
    fleet.execute(sa.delete(models.fleet_count))
    return [fleets.Latest(shared=fleets.Shared()) for _ in range(3)]


def set_row(fleet, **values):
    fleet.execute(sa.update(models.fleet_count).values(**values))


@engine.retry
def recent(worker):
    """What a worker's next search goes by: numbers of nodes by class."""
    return {profile.node.resource_class: profile.total
            for profile in worker.recent().profiles}


def counted(fleet):
    """The statements that count, as they come."""
    return fleet.statements('fact_memory_mb')


@pytest.mark.on('sqlite', 'mariadb')
def test_one_counts_for_all(fleet, workers):
    fleet.add({}, {'resource_class': 'silver'}, {})
    with counted(fleet) as counts:
        found = [recent(worker) for worker in workers for _ in range(2)]
    assert found == [{'gold': 2, 'silver': 1}] * 6
    assert len(counts) == 1


@pytest.mark.on('sqlite', 'mariadb')
def test_shared_profiles_are_those_that_were_counted(fleet, workers):
    fleet.add({'traits': ['CUSTOM_B', 'CUSTOM_A'], 'shard': 'a ',
               'properties': {'memory_mb': '4096.0', 'cpus': 8,
                              'capabilities': 'gpu:\u00e4,x'}},
              {'traits': ['CUSTOM_A', 'CUSTOM_B'], 'shard': 'a ',
               'properties': {'memory_mb': '4096.0', 'cpus': 8,
                              'capabilities': 'gpu:\u00e4,x'},
               'maintenance': True, 'owner': None, 'lessee': '\U0001f600'},
              {'properties': r'{"memory_mb": 1, "cpu_arch": "\ud800"}',
               'reservation': 'conductor-1'},
              {'properties': None, 'resource_class': None})

    @engine.retry
    def profiles(worker):
        return {profile.key: (profile.facts, profile.counts, profile.first,
                              profile.last, profile.free)
                for profile in worker.recent().profiles}

    own, read, _ = map(profiles, workers)
    assert len(own) == 4 and own == read


@pytest.mark.on('sqlite', 'mariadb')
def test_old_count_is_counted_again_for_all(fleet, workers):
    fleet.add({})
    assert recent(workers[0]) == recent(workers[1]) == {'gold': 1}
    fleet.add({})
    set_row(fleet, counted_at=1)
    # What a worker has read stays young for it.
    assert recent(workers[0]) == {'gold': 1}
    with counted(fleet) as counts:
        assert recent(workers[2]) == {'gold': 2}
    assert len(counts) == 1
    assert recent(fleets.Latest(shared=fleets.Shared())) == {'gold': 2}


@pytest.fixture
def elsewhere(fleet):
    """A worker that counts and takes its time: a function that begins."""
    def begin():
        assert fleet.execute(queries.begin_count(
            fleets.LONGEST_COUNT)).rowcount
    return begin


@pytest.mark.on('sqlite', 'mariadb')
def test_others_go_on_with_an_old_count_while_one_is_counting(
        fleet, workers, elsewhere, monkeypatch):
    fleet.add({})
    recent(workers[0])
    monkeypatch.setattr(fleets, 'AGE_TO_COST', 0)
    fleet.add({})
    elsewhere()
    with counted(fleet) as counts:
        assert recent(workers[0]) == {'gold': 1}
        # The next one has no count of its own and reads the old one.
        assert recent(workers[1]) == {'gold': 1}
    assert counts == []
    set_row(fleet, counting_until=0)
    assert recent(workers[0]) == {'gold': 2}


@pytest.mark.on('mariadb')
def test_worker_that_dies_while_counting_is_waited_for_in_vain(
        fleet, workers, monkeypatch):
    """For a while; then the next one counts."""
    monkeypatch.setattr(fleets, 'LONGEST_COUNT', 1)
    fleet.add({})
    recent(workers[0])
    monkeypatch.setattr(fleets, 'AGE_TO_COST', 0)
    fleet.add({})
    process = multiprocessing.get_context('fork').Process(
        target=die_while_counting, args=[fleet])
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert recent(workers[0]) == {'gold': 1}
    time.sleep(1.1)
    assert recent(workers[0]) == {'gold': 2}


def die_while_counting(fleet):
    """A process of its own: killed before its count is there."""
    fleet.engine.dispose(close=False)
    worker = fleets.Latest(
        lambda: os.kill(os.getpid(), signal.SIGKILL), fleets.Shared())
    recent(worker)


@pytest.mark.on('mariadb')
@pytest.mark.parametrize('error', [
    db_exc.DBDeadlock(), db_exc.DBConnectionError()], ids=repr)
def test_count_that_the_database_aborts_is_run_again(fleet, workers, error):
    def fail():
        raise error

    fleet.add({})
    with fleet.before('SELECT', fail, containing='fact_memory_mb'):
        assert recent(workers[0]) == {'gold': 1}


def test_other_error_of_a_count_is_told(fleet, workers):
    def fail():
        raise ZeroDivisionError

    fleet.add({})
    recent(workers[0])
    set_row(fleet, counted_at=1)
    with pytest.raises(ZeroDivisionError):
        recent(fleets.Latest(fail, fleets.Shared()))
    # The next one goes on with what there is, and counts a while later.
    assert recent(workers[1]) == {'gold': 1}


@pytest.mark.on('sqlite', 'mariadb')
@pytest.mark.parametrize('values', [
    {'counted_at': 9e9}, {'counted_at': 0, 'counting_until': 9e9}],
    ids=['counted', 'counting'])
def test_clock_that_was_set_back(fleet, workers, values):
    """What was written in the future holds nobody up."""
    fleet.add({})
    recent(workers[0])
    fleet.add({})
    set_row(fleet, **values)
    assert recent(workers[1]) == recent(workers[2]) == {'gold': 2}


def test_count_of_too_many_profiles_is_not_shared(fleet, workers,
                                                  monkeypatch):
    monkeypatch.setattr(fleets, 'LARGEST_SHARED', 10)
    fleet.add({})
    with counted(fleet) as counts:
        for worker in workers * 2:
            assert recent(worker) == {'gold': 1}
    assert len(counts) == len(workers)


@pytest.mark.on('sqlite', 'mariadb')
def test_row_that_is_missing_holds_nobody_up(fleet, workers, monkeypatch):
    fleet.add({})
    recent(workers[0])
    fleet.execute(sa.delete(models.fleet_count))
    monkeypatch.setattr(fleets, 'AGE_TO_COST', 0)
    fleet.add({})
    assert recent(workers[0]) == recent(workers[1]) == {'gold': 2}
    assert len(fleet.execute(sa.select(models.fleet_count))) == 1


def test_fresh_count_is_not_taken_from_others(fleet, workers):
    fleet.add({})
    recent(workers[0])
    fleet.add({})

    @engine.retry
    def fresh(worker):
        return worker.at_most(0)[0].total

    assert fresh(workers[1]) == 2
    # Its own count is younger than the shared one.
    assert recent(workers[1]) == {'gold': 2}


def test_fresh_count_is_its_own_whatever_the_clocks_say(fleet, workers):
    """The shared one seems to be of this moment, and is not."""
    fleet.add({})
    recent(workers[0])
    fleet.add({})
    set_row(fleet, counted_at=functions.epoch())

    @engine.retry
    def fresh(worker):
        return worker.at_most(0)[0].total

    recent(workers[1])
    assert fresh(workers[1]) == 2


def test_quick_count_is_not_written(fleet, workers, monkeypatch):
    monkeypatch.setattr(fleets, 'WORTH_SHARING', 1000)
    fleet.add({})
    with fleet.statements('reservations_fleet') as found:
        for worker in workers * 2:
            recent(worker)
    assert {text.split()[0] for text in found} == {'SELECT'}


def test_count_of_another_version_is_not_read(fleet, workers, monkeypatch):
    """As while the API hosts are upgraded one after the other."""
    fleet.add({})
    recent(workers[0])
    monkeypatch.setattr(fleets, 'FORMAT', fleets.FORMAT + 1)
    fleet.add({})
    assert recent(workers[1]) == recent(workers[2]) == {'gold': 2}
