"""Emulated nodes that come, leave and are killed while a run trains: the result is one device's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elastic import CHUNKS, SCRIPT, Elastic
from harness import difference, plain_loop
from nets import NUM_SAMPLES, images, program
from torch.utils.data import Subset

from nfold.launch.emulation import parse_fault
from nfold.launch.emulation.faults import Moment, perform
from nfold.planning.residency.resident_order import placed_order
from nfold.program import ProgramSource
from nfold.runtime.data.resident_samples import ResidentSamples

HOLDING = """
[[node]]
name = "last"
samples = 24
uplink = "200 Mbit/s"

[[node]]
name = "first"
samples = 20
uplink = "200 Mbit/s"

[[node]]
name = "idle"
uplink = "200 Mbit/s"
"""
CLUSTER = '[[node]]\nname = "n"\ncount = {count}\nuplink = "200 Mbit/s"\n'

WIDE = """
import nfold, torch
from torch import nn
def program():
    torch.manual_seed(3)
    data = torch.utils.data.TensorDataset(torch.randn(96, 256, dtype=torch.float64), torch.arange(96) % 3)
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 512), nn.Linear(512, 3)).double(),
        loss=nn.functional.cross_entropy, train_data=lambda: data, batch_size=96, epochs=10**6, seed=1,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5),
    )
"""

ENDLESS = """
import sys
from dataclasses import replace
sys.path.insert(0, {folder!r})
import nets
def program():
    return replace(nets.program("plain"), epochs=10**5)
"""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240), pytest.mark.usefixtures("emulation")]


def of_nodes(tmp_path: Path, count: int, text: str = "", cluster: str = CLUSTER, **wishes: Any) -> Elastic:
    (tmp_path / "c.toml").write_text(cluster.format(count=count))
    script = tmp_path / "mine.py"
    script.write_text(text or SCRIPT.format(folder=str(Path(__file__).parents[2])))
    source = ProgramSource.parse(f"{script}:program")
    return Elastic(source, tmp_path / "run", workers=None, emulate=tmp_path / "c.toml", **{"chunks": CHUNKS} | wishes)


def happen(run: Elastic, text: str) -> None:
    """Let a fault happen now."""
    ranks = run.job._emulated
    assert ranks is not None
    fault = parse_fault(f"{text}@0s", ranks._box.cluster)
    ranks.warn(fault)
    perform(Moment(at_s=0.0, fault=fault, ends=False), ranks._box)


def test_nodes_are_killed_come_back_and_leave(tmp_path):
    run = of_nodes(tmp_path, 2, nodes="1:2", checkpoint_every=3)
    run.train(4)
    happen(run, "kill n-0")
    assert run.until_planned(2).nodes == ("n-1",)
    happen(run, "join n-0")
    assert run.until_planned(3).nodes == ("n-1", "n-0")
    happen(run, "leave n-1")
    assert run.until_planned(4).nodes == ("n-0",)
    run.train(2)
    ended = run.end()
    assert [(event.kind, event.who) for event in ended.report.events] == [
        ("loss", "n-0"), ("join", "n-0"), ("leave", "n-1"),
    ]  # fmt: skip
    assert difference(ended.state_dict(), plain_loop(program("plain"), run.step, CHUNKS).state_dict()) <= 1e-9


@pytest.mark.exhaustive
def test_with_too_few_left_the_run_is_kept_and_ends(tmp_path):
    run = of_nodes(tmp_path, 2, nodes="2:2")
    run.train(2)
    happen(run, "leave n-1")
    with pytest.raises(KeyboardInterrupt, match="--nodes 2:2"):
        run.train(10**6)
    assert any("fewer than the run may go on with would stay" in note for note in run.told.notes)


@pytest.mark.exhaustive
def test_a_node_that_slows_down_gets_fewer_chunks(tmp_path):
    run = of_nodes(tmp_path, 2, WIDE)
    run.train(80)
    happen(run, "slow n-1 0.1")
    run.until_noted("it gets")
    while run.told.plans[-1].samples_of(1) >= run.told.plans[-1].samples_of(0):
        run.train(1)
    run.train(2)
    ended = run.end()
    assert {event.kind for event in ended.report.events} == {"speed"}
    mine = ProgramSource.parse(f"{tmp_path / 'mine.py'}:program").load()
    assert difference(ended.state_dict(), plain_loop(mine, run.step, CHUNKS).state_dict()) <= 1e-9


@pytest.mark.exhaustive
def test_each_sample_is_visited_once_an_epoch_wherever_it_lives(tmp_path):
    here = {"nodes": "1:3", "place": "waterfill", "fault": ["join last@600s"], "checkpoint_every": 3}
    text = ENDLESS.format(folder=str(Path(__file__).parents[2]))
    run = of_nodes(tmp_path, 0, text, HOLDING, chunks=None, steps=None, **here)
    run.train(4)
    happen(run, "kill idle")  # what came to it is still where it came from
    assert run.until_planned(2).nodes == ("first",)
    happen(run, "join last")
    assert run.until_planned(3).nodes == ("first", "last")
    told = run.until_noted("last brings 24 samples: they count from epoch")
    longer_from = int(told.split("from epoch ")[1].split()[0]) - 1
    happen(run, "leave first")
    assert run.until_planned(4).nodes == ("last",)
    run.train(6)
    ended, runs = run.end(), run.folder.placed().runs
    # Who joins is numbered last, whatever its place in the file.
    order = [*range(24, NUM_SAMPLES), *range(24)]
    mine = replace(program("plain"), train_data=lambda: Subset(images(), order))
    samples = ResidentSamples(runs, mine.batch_size, mine.seed)
    alone = plain_loop(mine, run.step, 0, samples=samples)
    assert difference(ended.state_dict(), alone.state_dict()) <= 1e-9
    for epoch in range(samples.epoch_steps.begun(run.step)):
        visited = placed_order(runs, mine.seed, epoch, mine.batch_size).number
        assert sorted(visited) == [*range(NUM_SAMPLES if epoch >= longer_from else 20)]
