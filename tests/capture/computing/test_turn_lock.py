"""A lock that is handed on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nfold.capture.computing.turn_lock import TurnLock


@contextmanager
def held_while_another_waits(lock: TurnLock, order: list[str]) -> Iterator[threading.Thread]:
    """Hold a lock that a thread waits for, which then says so."""

    def take() -> None:
        with lock:
            order.append("waiting")

    waiting = threading.Thread(target=take)
    with lock:
        assert not lock.is_wanted
        waiting.start()
        while not lock.is_wanted:
            pass
        yield waiting


def test_who_waits_comes_before_who_had_it_last() -> None:
    lock, order = TurnLock(), list[str]()
    with held_while_another_waits(lock, order) as waiting:
        pass
    with lock:
        order.append("again")
    waiting.join()
    assert order == ["waiting", "again"]
    assert not lock.is_wanted


def test_its_holder_takes_it_again_also_while_another_waits() -> None:
    lock, order = TurnLock(), list[str]()
    with held_while_another_waits(lock, order) as waiting:
        with lock:
            order.append("twice")
        order.append("once")
    waiting.join()
    assert order == ["twice", "once", "waiting"]
