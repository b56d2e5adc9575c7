"""Which plans are refused because their bits would be other than one device's, and how the others sum."""

from dataclasses import replace

import pytest
from grids import chain, facts, model, parameter, place

from nfold.core.tasks import Receive, Send
from nfold.errors import PlanError
from nfold.planning.choosing.exactness import exactly, program_objection, why_inexact
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Proposal
from nfold.planning.scheduling.rank_schedules import rank_schedules

GRAPH = chain(40, 30, 20)
TIED = model({"A": ("input",), "B": ("a",), "C": ("b",), "Loss": ("c", "target")}, (parameter("w", 8, "A", "C"),))
RINGED = model({"A": ("input",), "B": ("a",), "Loss": ("b", "target")}, (parameter("w", 8, "A", "Loss"),))
"""Its first and last operators use one weight, so every pipeline cuts them apart."""
THREE = model({"A": ("input",), "B": ("a",), "C": ("a", "b"), "Loss": ("a", "c", "target")}, (parameter("w", 8, "A"),))
TWO = model({"A": ("input",), "B": ("a",), "Loss": ("a", "b", "target")}, (parameter("w", 8, "A"),))


def exact(graph, workers=2, **fields):
    return facts(graph, workers, **{"fraction_bits": 40, "chunks": 2, **fields})


def why(graph, *owners, **fields):
    """Why a placement is refused, with the ranks of each operator's two chunks."""
    names = [operator.name for operator in graph.operators]
    placement = place(dict(zip(names, owners, strict=True)), 2)
    proposal = Proposal(placement=placement, reductions=(), workers=2, servers=0, **fields)
    return why_inexact(exact(graph), proposal)


def test_whole_chunks_are_exact_wherever_they_are_computed():
    for graph in (TIED, THREE):
        assert why(graph, *[(0, 1)] * 4) == ""


def test_a_weight_whose_operators_are_cut_apart_is_no_single_addend():
    assert "the operators that use w are cut apart" in why(TIED, (0, 0), (0, 0), (1, 1), (1, 1))
    assert "the operators that use w are cut apart" in why(TIED, (0, 0), (1, 1), (0, 0), (0, 0)), "in two segments"
    assert why(TIED, (0, 0), (0, 0), (0, 0), (1, 1)) == ""


def test_three_gradients_of_a_tensor_have_an_order_and_two_have_none():
    assert "3 operators use a and are cut apart" in why(THREE, (0, 0), (0, 0), (1, 1), (1, 1))
    assert why(THREE, (0, 0), (1, 1), (1, 1), (1, 1)) == "", "all of them are in one segment"
    assert why(TWO, (0, 0), (0, 0), (1, 1)) == ""


def test_parts_and_what_a_trial_has_found_are_refused():
    assert "A is cut into parts" in why(GRAPH, *[(0, 1)] * 4, splits={"A": 2})
    found = replace(GRAPH, inexact_cut="a kernel rounds otherwise")
    assert why(found, (0, 0), (0, 0), (1, 1), (1, 1)) == "a kernel rounds otherwise"
    assert why(found, *[(0, 1)] * 4) == ""


def test_without_the_wish_nothing_is_refused_or_changed():
    placement = place({name: (0, 1) for name in ("A", "B", "C", "Loss")}, 2)
    proposal = Proposal(placement=placement, reductions=(), workers=2, servers=0, splits={"A": 2})
    asked = facts(GRAPH, 2)
    assert (why_inexact(asked, proposal), exactly(asked, proposal)) == ("", proposal)


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_an_asynchronous_strategy_is_refused(strategy):
    with pytest.raises(PlanError, match="each gradient is applied when it comes"):
        plan(exact(GRAPH), strategy, among=(named(strategy),))


@pytest.mark.parametrize(
    ("graph", "fields", "told"),
    [
        (replace(GRAPH, parameters=(replace(GRAPH.parameters[0], sparse_dims=1),)), {}, "of a.weight is sparse"),
        (replace(GRAPH, parameters=(replace(GRAPH.parameters[0], dtype="complex64"),)), {}, "of type complex64"),
        (GRAPH, {"chunk_shares": (0.25, 0.75)}, "what lives on a node"),
    ],
)
def test_programs_that_no_plan_is_exact_for_are_refused(graph, fields, told):
    asked = exact(graph, **fields)
    assert told in program_objection(asked)
    with pytest.raises(PlanError, match=f"--exact: .*{told}"):
        plan(asked, "ring")


def test_auto_takes_what_is_exact_and_says_why_others_are_not():
    chosen = plan(exact(RINGED))
    assert all(each.fraction_bits == 40 for each in chosen.reductions)
    assert "cut apart" in next(loser.why for loser in chosen.rejected if loser.strategy == "pipeline")
    with pytest.raises(PlanError, match="--strategy pipeline: the operators that use w are cut apart"):
        plan(exact(RINGED), "pipeline", among=(named("pipeline"),))


@pytest.mark.parametrize(("strategy", "servers", "sizes"), [("ring", 0, {8, 4}), ("ps", 0, {8, 4}), ("ps", 2, {8, 4})])
def test_addends_take_eight_bytes_and_sums_and_values_what_they_are(strategy, servers, sizes):
    found = plan(exact(GRAPH, servers=servers), strategy, among=(named(strategy),))
    tasks = [task for rank in rank_schedules(found, GRAPH) for task in rank.tasks]
    sent = [task for task in tasks if isinstance(task, Send)]
    assert {task.payload_bytes // (task.data.stop - task.data.start) for task in sent} == sizes
    assert {(task.purpose, task.data.kind) for task in sent} == (
        {("reduce", "addend"), ("gather", "gradient")}
        if strategy == "ring"
        else {("push", "addend"), ("pull", "value")}
    )
    assert found.predicted.sent_bytes_per_step == sum(task.payload_bytes for task in sent)
    complete = [task for task in tasks if isinstance(task, Receive) and task.completes]
    assert sum(task.data.stop - task.data.start for task in complete if task.data.kind == "addend") == 90


def test_shares_of_servers_end_where_parameters_end():
    found = plan(exact(GRAPH), "ps", among=(named("ps"),))
    borders = {border for each in found.reductions for share in each.shares for border in (share.start, share.stop)}
    assert borders <= {0, 20, 50, 90, 30, 70, 40, 60}
