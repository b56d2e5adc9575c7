"""Emulated nodes that come, leave and are killed while a run trains: the result is one device's."""

from pathlib import Path
from typing import Any

import pytest
from elastic import CHUNKS, SCRIPT, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.launch.emulation import parse_fault
from nfold.launch.emulation.faults import Moment, perform
from nfold.program import ProgramSource

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

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240), pytest.mark.usefixtures("emulation")]


def of_nodes(tmp_path: Path, count: int, text: str = "", **wishes: Any) -> Elastic:
    (tmp_path / "c.toml").write_text(CLUSTER.format(count=count))
    script = tmp_path / "mine.py"
    script.write_text(text or SCRIPT.format(folder=str(Path(__file__).parents[2])))
    source = ProgramSource.parse(f"{script}:program")
    return Elastic(source, tmp_path / "run", workers=None, emulate=tmp_path / "c.toml", chunks=CHUNKS, **wishes)


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
