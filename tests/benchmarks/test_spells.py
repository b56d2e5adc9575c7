"""Slow moments of a shared machine are told from a fixed piece of work."""

import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import spells
from spells import FEWEST_SAMPLES, SLOW, Sample, Stolen, Watch, slow_share, stolen_share


def sampled(*took_s: float) -> list[Sample]:
    return [Sample(float(index), each) for index, each in enumerate(took_s)]


def test_slow_is_what_takes_longer_than_the_same_processor_does_when_it_is_quick() -> None:
    quick, slower = sampled(*[1.0] * 30, *[SLOW * 1.1] * 10), sampled(*[3.0] * 30, *[SLOW * 2.9] * 10)
    assert slow_share([quick], 0, 29) == 0
    assert slow_share([quick], 30, 39) == 1
    assert slow_share([quick], 20, 39) == pytest.approx(0.5)
    assert slow_share([quick, slower], 20, 39) == pytest.approx(0.25)


def test_nothing_is_said_of_a_time_with_too_few_samples() -> None:
    assert slow_share([sampled(*[1.0] * 30)], 50, 60) == 0
    assert slow_share([sampled(*[1.0] * 5, *[9.0] * (FEWEST_SAMPLES - 6))], 0, 100) == 0
    assert slow_share([sampled(*[1.0] * 5, *[9.0] * (FEWEST_SAMPLES - 5))], 0, 100) > 0.5


def test_what_others_were_given_is_a_part_of_all_processors_time() -> None:
    counted = [Stolen(float(at_s), max(0.0, at_s - 10.0)) for at_s in range(21)]
    assert stolen_share(counted, 2, 0, 10) == 0
    assert stolen_share(counted, 2, 10, 20) == pytest.approx(0.5)
    assert stolen_share(counted, 4, 0, 20) == pytest.approx(0.125)
    assert stolen_share(counted, 2, 19.5, 20.5) == 0, "one count tells no difference"


def test_a_watch_samples_every_processor_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spells, "EVERY_S", 0.0)
    monkeypatch.setattr(spells, "slow_share", lambda processors, *_: min(map(len, processors)))
    monkeypatch.setattr(spells, "stolen_share", lambda counted, *_: len(counted))
    before = threading.active_count()
    with Watch() as watch:
        while min(watch.slow_share(0.0, 1.0), watch.stolen_share(0.0, 1.0)) < 3:
            pass
    num_samples = watch.slow_share(0.0, 1.0)
    assert threading.active_count() == before
    assert watch.slow_share(0.0, 1.0) == num_samples
