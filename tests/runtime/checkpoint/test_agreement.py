"""Ranks that drift apart, since something in a program is not repeatable, are found before anything is saved."""

import pytest
import torch
from harness import graph_of, make_plan, play
from nets import program

from nfold.errors import NonFiniteLoss, ProgramError
from nfold.runtime.checkpoint.agreement import fingerprints, first_diverged
from nfold.runtime.checkpoint.joined_facts import check_agreement, check_finite


class Private(torch.optim.SGD):
    """Adds noise from a generator of its own, another one on each rank, which no seed of the program reaches."""

    made = 0

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.01)
        Private.made += 1
        self.generator = torch.Generator().manual_seed(Private.made)

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                noise = torch.randn(parameter.shape, generator=self.generator, dtype=parameter.dtype)
                parameter.data.add_(noise, alpha=0.01)


@pytest.fixture(scope="module")
def graph():
    return graph_of(program("plain"))


def test_an_optimizer_with_a_generator_of_its_own_is_reported_with_parameter_and_operator(graph):
    mine = program("plain", optimizer=Private)
    plan = make_plan(mine, graph, "ring", 2, 0, chunks=4)
    with pytest.raises(ProgramError, match=r"ranks 0 and 1 hold different values of conv\.weight, which operator conv"):
        play(mine, graph, plan, 2)


def test_last_bits_may_differ_and_more_may_not(graph):
    plan = make_plan(program("plain"), graph, "ring", 2, 0, chunks=4)
    parameters = {each.name: torch.nn.Parameter(torch.randn(each.num_elements)) for each in graph.parameters}
    own = fingerprints(0, plan.reductions, parameters)
    assert set(own) == set(parameters)
    with torch.no_grad():
        parameters["fc.weight"].mul_(1 + 1e-6)
    check_agreement([own, fingerprints(1, plan.reductions, parameters)], graph, 5)
    with torch.no_grad():
        parameters["fc.weight"].mul_(1 + 1e-2)
    with pytest.raises(ProgramError, match=r"fc\.weight.*after 5 steps"):
        check_agreement([own, fingerprints(1, plan.reductions, parameters)], graph, 5)


def test_what_one_rank_holds_alone_has_no_fingerprint(graph):
    plan = make_plan(program("plain"), graph, "single", 1, 0, chunks=4)
    assert fingerprints(0, plan.reductions, {}) == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_on_all_ranks_is_no_drift_but_divergence(graph, value):
    plan = make_plan(program("plain"), graph, "ring", 2, 0, chunks=4)
    parameters = {each.name: torch.nn.Parameter(torch.ones(each.num_elements)) for each in graph.parameters}
    assert first_diverged(0, plan.reductions, parameters) == ""
    finite = fingerprints(1, plan.reductions, parameters)
    with torch.no_grad():
        parameters["fc.weight"][3] = value
    marks = [fingerprints(rank, plan.reductions, parameters) for rank in (0, 1)]
    check_agreement(marks, graph, 5)
    with pytest.raises(ProgramError, match=r"hold different values of fc\.weight"):
        check_agreement([marks[0], finite], graph, 5)
    found = [first_diverged(rank, plan.reductions, parameters) for rank in (0, 1)]
    assert found == ["fc.weight", ""], "the first of those who hold it looks for all"
    with pytest.raises(
        NonFiniteLoss, match=r"training diverged: fc\.weight holds NaN or infinite values after 5 steps"
    ):
        check_finite(found, 5)
    check_finite(["", ""], 5)
