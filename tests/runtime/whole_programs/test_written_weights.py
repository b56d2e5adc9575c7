"""Models whose forward writes to weights, cut among ranks: exact, or refused before they train."""

import sys
from pathlib import Path

import pytest
import torch
from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners
from test_cut_probes import of

sys.path.append(str(Path(__file__).parents[2] / "capture"))

from writing import ANOTHERS, OWN, Renormed, renormed

from nfold.core.placement import Placement
from nfold.errors import PlanError
from nfold.planning.reductions.buckets import buckets_of

STEPS, RANKS = 6, 3


@pytest.mark.parametrize("build", [*OWN, *ANOTHERS], ids=lambda build: build.__name__)
def test_what_forward_writes_is_there_in_the_next_step_wherever_its_operator_is(build):
    program = of(build)
    graph = graph_of(program)
    owners = random_owners(graph, 1, RANKS, seed=7)
    placement = Placement(num_chunks=1, world_size=RANKS, owners=owners)
    played = play(
        program, graph, placed_plan(program, owners, RANKS, buckets_of(graph, placement, "ring", 4096)), STEPS
    )
    assert difference(played.state, plain_loop(program, STEPS, 1).state_dict()) <= 1e-9


@pytest.mark.parametrize("strategy", ["ps", "ps-async"])
def test_servers_that_would_not_see_it_are_refused(strategy):
    program = of(renormed)
    with pytest.raises(
        PlanError, match=r"forward itself writes to probe\.middle\.weight, and separate servers would not see it"
    ):
        make_plan(program, graph_of(program), strategy, 1, 1, chunks=1)


def test_the_limit_is_not_reached_before_it_trains():
    """What trials of the program see of it changes no value."""
    program = of(renormed)
    for model, is_reached in ((program.model(), False), (plain_loop(program, STEPS, 1), True)):
        rows = model.get_parameter("probe.middle.weight").detach()
        assert (float(torch.linalg.vector_norm(rows, dim=1).max()) >= Renormed.longest - 1e-6) == is_reached
