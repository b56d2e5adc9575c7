"""Whole runs whose members come and go while they train, with the real coordinator: threads, then processes."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elastic import CHUNKS, SCRIPT, Elastic
from harness import difference, plain_loop
from nets import NUM_SAMPLES, images, program
from torch.utils.data import Dataset

from nfold.program import ProgramSource
from nfold.verbs.ranks.thread_ranks import threads_put_back


def one_device(steps: int, net: str = "plain") -> Any:
    return plain_loop(program(net), steps, CHUNKS).state_dict()


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.mark.parametrize("strategy", ["ring", "ssp", pytest.param("ps-async", marks=pytest.mark.exhaustive)])
def test_a_third_comes_while_two_train_and_one_of_them_leaves(tmp_path, strategy):
    is_exact = strategy != "ps-async"
    wishes = {"staleness": 0} if strategy == "ssp" else {}
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, strategy=strategy, **wishes)
    run.train(3)
    assert run.session.request() == (2,)
    grown = run.until_planned(2)
    assert (grown.workers, grown.chunks) == (3, CHUNKS)
    run.train(3)
    run.session.release(0)
    assert run.until_planned(3).workers == 2
    run.train(3)
    assert not (run.folder.path / "checkpoint.safetensors").exists(), "the state goes from memory to memory"
    ended = run.end()
    if is_exact:
        assert difference(ended.state_dict(), one_device(run.step, "residual")) <= 1e-9


class SlowlyRead(Dataset):  # type: ignore[type-arg]
    """The images, each of which takes 20 ms to be read once somebody is to come."""

    def __init__(self) -> None:
        self._images, self.read_s = images(), 0.0

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.read_s)
        return self._images[index]


@pytest.mark.timeout(60)
def test_who_comes_waits_for_nobody_who_still_reads_samples(tmp_path):
    """Ranks that are threads share a lock: who builds has it while it waits for the others, who read with it."""
    samples = SlowlyRead()
    run = Elastic(replace(program("plain"), train_data=lambda: samples), tmp_path / "run")
    run.train(2)
    samples.read_s = 0.02
    run.train(1)
    run.session.request()
    assert run.until_planned(2).workers == 3
    run.train(1)
    run.end()


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_whoever_comes_and_goes_the_result_is_one_devices(tmp_path):
    """One to four members, ten times others, rank 0 among them."""
    run, chosen, here, worlds = Elastic(program("residual"), tmp_path / "run"), random.Random(3), [0, 1], set()
    run.train(1)
    for number in range(10):
        if len(here) == 1 or (len(here) < CHUNKS and chosen.random() < 0.5):
            here += run.session.request()
        else:
            run.session.release(here.pop(chosen.randrange(len(here))))
        worlds.add(run.until_planned(number + 2).world_size)
        run.train(chosen.randint(1, 3))
    assert worlds >= {1, 2, 3}
    assert difference(run.end().state_dict(), one_device(run.step, "residual")) <= 1e-9


@pytest.mark.processes
@pytest.mark.timeout(240)
def test_processes_come_and_go_while_the_others_stay(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parents[2])))
    run = Elastic(ProgramSource.parse(f"{script}:program"), tmp_path / "run")
    run.train(2)
    pids = run.pids()
    run.session.request()
    assert run.until_planned(2).workers == 3
    assert {member: pid for member, pid in run.pids().items() if member < 2} == pids, "those who stay are the same"
    script.write_text(script.read_text().replace('"plain"', '"residual"'))
    assert run.session.request() == (3,)
    refused = run.until_noted("not let in")
    assert "rank 0 and member 3 built different programs: only the model of" in refused
    run.session.release(0)
    assert run.until_planned(3).workers == 2
    run.until_gone(0, 3)
    assert set(run.pids()) == {1, 2}
    ended = run.end()
    assert difference(ended.state_dict(), one_device(run.step)) <= 1e-9
