"""Programs on which tracers are silently wrong, with their operators on several ranks: exact, or refused in words."""

import sys
from pathlib import Path

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners, with_more
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "capture"))

import probes
from hidden import HELD

from nfold.core.placement import Placement
from nfold.errors import PlanError
from nfold.planning.reductions.buckets import buckets_of
from nfold.program import Program

PROBES = [each for each in vars(probes).values() if isinstance(each, type) and issubclass(each, probes.Base)][1:]
PROBES += HELD
STATEFUL = (
    *(probes.MovingAverage, probes.AddedBuffer, probes.Counter, probes.Spectral),
    *(probes.LateCounter, probes.LateSchedule, probes.LateWindow, probes.NormedByFunction),
    *HELD,
)
CHUNKED = (probes.BranchOnValue, probes.HalvesOfBatch, probes.PairsOfSamples, probes.OddBatches)
ALWAYS = (
    *(probes.CustomFunction, probes.MovingAverage, probes.BranchOnValue, probes.PythonRandom, probes.Checkpointed),
    *(probes.GradientHook, probes.ListedWeights),
)
STEPS, CHUNKS, RANKS = 3, 4, 3


class Around(nn.Module):
    """Layers before and after a probe, so that there is always something to cut."""

    def __init__(self, probe: type[nn.Module]) -> None:
        super().__init__()
        self.before, self.probe, self.after = nn.Linear(12, 12), probe(), nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.tanh(self.probe(self.before(x))))


def rows() -> TensorDataset:
    draw = torch.Generator().manual_seed(5)
    inputs = torch.randn(40, 12, generator=draw, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(5, (40,), generator=draw))


def of(probe: type[nn.Module], loss=F.cross_entropy) -> Program:
    return Program(
        model=lambda: Around(probe).double(),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        train_data=rows,
        batch_size=14,
        epochs=100,
        seed=3,
    )


def scattered(program, graph, chunks, ranks):
    """Play with every cell on a rank of its own choice."""
    owners = random_owners(graph, chunks, ranks, seed=7)
    placement = Placement(num_chunks=chunks, world_size=ranks, owners=owners)
    plan = placed_plan(program, owners, ranks, buckets_of(graph, placement, "ring", 4096))
    return play(program, graph, plan, STEPS)


def expected(program, graph, chunks):
    """The plain loop's parameters; one rank's where random numbers are drawn."""
    if any(operator.num_random for operator in graph.operators):
        return scattered(program, graph, chunks, 1).state
    return plain_loop(program, STEPS, chunks).state_dict()


@pytest.mark.parametrize("probe", with_more(ALWAYS, PROBES), ids=lambda probe: probe.__name__)
def test_a_probe_between_ranks_is_exact_and_in_one_chunk_where_it_looks_at_the_whole_batch(probe):
    program = of(probe)
    graph = graph_of(program)
    assert bool(graph.indivisible) == (probe in (*STATEFUL, *CHUNKED))
    chunks = 1 if graph.indivisible else CHUNKS
    if graph.indivisible:
        with pytest.raises(PlanError, match="cannot be cut into"):
            make_plan(program, graph, "ring", 2, 0, chunks=2)
    played = scattered(program, graph, chunks, RANKS)
    assert difference(played.state, expected(program, graph, chunks)) <= 1e-9


def summed(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum")


def weighted(outputs, targets):
    return F.cross_entropy(outputs, targets, weight=torch.arange(1.0, 6.0, dtype=outputs.dtype))


def ignoring(outputs, targets):
    return F.cross_entropy(outputs, targets, ignore_index=2)


def contrasting(outputs, targets):
    alike = targets[:, None] == targets[None]
    return (outputs @ outputs.T * torch.where(alike, -1.0, 1.0)).tanh().mean()


@pytest.mark.parametrize("loss", [summed, weighted, ignoring, contrasting])
def test_a_loss_that_is_no_mean_is_refused_chunks_and_exact_without(loss):
    program = of(probes.WeightNorm, loss)
    graph = graph_of(program)
    assert "not a mean over samples" in graph.indivisible
    with pytest.raises(PlanError, match="not a mean over samples"):
        make_plan(program, graph, "ring", 2, 0, chunks=2)
    played = scattered(program, graph, 1, RANKS)
    assert difference(played.state, expected(program, graph, 1)) <= 1e-9


def test_state_that_another_rank_has_changed_reaches_the_checkpoint():
    program = of(probes.MovingAverage)
    graph = graph_of(program)
    for rank in range(RANKS):
        owners = {operator.name: (rank if operator.name == "probe" else 0,) for operator in graph.operators}
        placement = Placement(num_chunks=1, world_size=RANKS, owners=owners)
        plan = placed_plan(program, owners, RANKS, buckets_of(graph, placement, "ring", 4096))
        half = play(program, graph, plan, 2)
        moved = play(program, graph, plan, STEPS, checkpoint=half.checkpoint)
        assert difference(moved.state, plain_loop(program, STEPS, 1).state_dict()) <= 1e-9
