"""A plan for described machines promises only what `train` keeps: the evaluation between steps needs room too."""

from dataclasses import replace

import pytest
from grids import chain, channel, facts, profile

from nfold.core.cluster import Cluster, Node
from nfold.core.job import Known
from nfold.core.plan import Asynchrony
from nfold.errors import PlanError
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.choosing.search import plan
from nfold.runtime.control import commands as cmd
from nfold.verbs import declared_plan
from nfold.verbs.declared_plan import plan_declared
from nfold.verbs.results.summary import RunOutcome, question_of
from nfold.verbs.running.observer import NullObserver

MIB = 1 << 20
GRAPH = chain(2 * MIB, 2 * MIB, 2 * MIB)
"""Three operators with 8 MiB of weights each, and the loss."""


def question(*, evaluates, chunks=None):
    costly = profile(GRAPH, base_bytes=100 * MIB, optimizer_bytes=2 * 24 * MIB)
    return facts(GRAPH, 1, profiles={1: costly}, evaluates=evaluates, chunks=chunks)


def known(*, evaluates):
    asked = question(evaluates=evaluates)
    return Known(graph=GRAPH, profiles=dict(asked.profiles), cluster=asked.cluster, plan=plan(asked, "single"))


@pytest.fixture
def measured(monkeypatch):
    """Let the program be measured like this."""

    def measure(**fields):
        found = cmd.Measured(question(**fields), RunSteps(num_samples=320, batch_size=32, total_steps=10))
        monkeypatch.setattr(declared_plan, "measure_alone", lambda *_: RunOutcome(measured=found))

    return measure


def described(mib):
    link = channel()
    nodes = (
        Node(name=f"n{index}", cores=1.0, memory_bytes=mib * MIB, local=link, uplink=link, downlink=link)
        for index in range(3)
    )
    return Cluster(nodes=tuple(nodes))


@pytest.mark.long
def test_it_counts_the_evaluation_that_training_will_count(measured):
    """The nodes have room to train a stage, and not for the whole model beside it."""

    def planned(*, evaluates):
        measured(evaluates=evaluates)
        return plan_declared("program.py", described(150), {"strategy": "pipeline"}, NullObserver())

    assert planned(evaluates=False).workers == 3
    with pytest.raises(PlanError, match="to evaluate the whole model, which rank 0 fetches"):
        planned(evaluates=True)


def test_a_part_of_a_core_computes_that_much_slower(measured):
    measured(evaluates=False)

    def planned_s(cores):
        nodes = tuple(replace(node, cores=cores) for node in described(1 << 20).nodes)
        return plan_declared(
            "program.py", Cluster(nodes=nodes), {"strategy": "single", "workers": 1}, NullObserver()
        ).predicted.step_s

    whole_s = planned_s(1.0)
    assert planned_s(0.5) == pytest.approx(2 * whole_s, rel=0.35), "what a period grants comes at full speed"
    assert planned_s(0.1) == pytest.approx(10 * whole_s, rel=0.35)
    assert planned_s(2.0) == whole_s, "it has one thread"


def test_a_program_that_gives_its_own_number_of_chunks_keeps_it(measured):
    for chunks in (1, 6):
        measured(evaluates=False, chunks=chunks)
        assert plan_declared("program.py", described(1 << 20), {}, NullObserver()).chunks == chunks


@pytest.mark.parametrize("evaluates", [False, True])
def test_a_run_is_asked_again_as_it_was_planned(evaluates):
    before = known(evaluates=evaluates)
    assert before.plan is not None
    assert question_of(before.plan, before).evaluates is evaluates
    assert question_of(replace(before.plan, evaluates=not evaluates), before).evaluates is not evaluates


def test_an_asynchronous_run_is_asked_again_with_its_own_bound():
    before = known(evaluates=False)
    assert before.plan is not None
    bounded = replace(before.plan, asynchrony=Asynchrony(bound=2, staleness_aware=True))
    asked = question_of(bounded, before)
    assert (asked.staleness, asked.staleness_aware) == (2, True)
    synchronous = question_of(before.plan, before)
    assert (synchronous.staleness, synchronous.staleness_aware) == (None, False)
