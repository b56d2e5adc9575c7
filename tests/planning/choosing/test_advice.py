"""No advice that nfold itself would refuse: every flag that a refusal advises is obeyed."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from grids import chain, channel, facts
from pretended import GRAPH as ONE

import nfold
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import check_staleness
from nfold.planning.choosing.advice import Change, advise, changes
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.comparing_candidates import fewer_workers
from nfold.planning.choosing.search import check_possible, has_all, plan, possible_plan
from nfold.planning.choosing.strategies import STRATEGIES, named
from nfold.planning.choosing.wishes import check_chunks, check_ranks

FLAGS = {"-n": "workers", "--servers": "servers", "--chunks": "chunks", "--strategy": "strategy"}
ADVICE = re.compile(r"(?:[Uu]se|[Ll]eave out|[Aa]dd|[Tt]ry|[Bb]egin again with) (.*?)(?:\.(?= |$)|; |$)")
CHAIN = chain(1000, 300, 7)
GRAPHS = {
    "plain": CHAIN,
    "indivisible": replace(CHAIN, indivisible="the loss is no mean over samples"),
    "one operator": ONE,
    "whole updates": replace(CHAIN, update_scope="model"),
    "whole updates, indivisible": replace(CHAIN, update_scope="model", indivisible="its norm is of a batch"),
    "one operator, indivisible": replace(ONE, indivisible="it carries state"),
    "unweighable": replace(CHAIN, unweighable="a group of the optimizer has no learning rate `lr`"),
    "clips": replace(CHAIN, clips_gradients=True),
    "writes": replace(CHAIN, parameters=tuple(replace(each, written=True) for each in CHAIN.parameters)),
}
NAMES = [strategy.name for strategy in STRATEGIES if strategy.name != "hypergraph"] + ["auto"]
WISHES = [
    {"workers": workers, "servers": servers, "chunks": chunks, "batch_size": batch_size, "memory": memory}
    for (workers, servers), chunks, batch_size, memory in product(
        [(1, 0), (1, 1), (1, 2), (2, 0), (3, 2), (4, 0), (9, 0)], [None, 1, 2, 6], [3, 4, 24], [1 << 40]
    )
] + [
    {"workers": 4, "servers": 0, "chunks": chunks, "batch_size": 24, "memory": memory}
    for chunks, memory in product([None, 2], [6000, 12000, 30000])
]


def advised(message: str) -> list[Change]:
    """Read what a message tells to type, whoever wrote it."""
    found = []
    for sentence in ADVICE.findall(message):
        for run in re.findall(r"(?:(?:-n|--servers|--chunks|--strategy) [\w-]+ ?)+", sentence):
            pairs = re.findall(r"(-n|--\w+) ([\w-]+)", run)
            found.append(Change(**{FLAGS[f]: v if f == "--strategy" else int(v) for f, v in pairs}))
    return found


def question(graph, *, memory, **wishes):
    asked = facts(graph, wishes.pop("workers"), wishes.pop("servers"), **wishes)
    nodes = tuple(replace(node, memory_bytes=memory) for node in asked.cluster.nodes)
    return replace(asked, cluster=replace(asked.cluster, nodes=nodes))


def obey(asked, strategy: str, change: Change) -> None:
    """Do what was advised, as the command line would."""
    other, name = change.of(asked), change.strategy or strategy
    check_ranks(name, other.workers, other.servers)
    check_staleness(name, other.staleness, aware=other.staleness_aware)
    check_chunks(name, other.workers, other.chunks)
    names = ("single", "ring", "ps") if name == "auto" else (name,)
    plan(other, name, among=[each for each in STRATEGIES if each.name in names])


def refusals(graph, strategy: str, every: int = 7, first: int = 0):
    for wishes in WISHES[first::every]:
        asked = question(graph, **wishes)
        for ask in (check_possible, plan):
            try:
                ask(asked, strategy)
            except PlanError as error:
                yield asked, str(error)
                break


@pytest.mark.parametrize(
    "every", [pytest.param(5, marks=pytest.mark.exhaustive), pytest.param(15, marks=pytest.mark.long), len(WISHES)]
)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("strategy", NAMES)
def test_whatever_a_refusal_advises_is_not_refused(graph, strategy, every):
    """Each strategy and graph has other wishes than the one before, so that together they have nearly all."""
    first = (NAMES.index(strategy) * len(GRAPHS) + list(GRAPHS).index(graph)) % every
    for asked, message in refusals(GRAPHS[graph], strategy, every, first):
        for change in advised(message):
            try:
                obey(asked, strategy, change)
            except PlanError as error:
                pytest.fail(f"{message!r} advises {change.flags!r}, which is refused: {error}")


def test_most_refusals_advise_something():
    told = [message for name in NAMES for _, message in refusals(GRAPHS["indivisible"], name, every=13)]
    assert len(told) > 20
    assert sum(bool(advised(message)) for message in told) > 0.5 * len(told)


@pytest.mark.parametrize("workers", [2, 3, 9])
def test_what_cannot_be_spread_is_told_to_train_alone_however_many_changes_that_takes(workers):
    asked = facts(GRAPHS["one operator, indivisible"], workers, batch_size=24, chunks=2)
    with pytest.raises(PlanError) as refused:
        plan(asked, "hypergraph")
    for change in advised(str(refused.value)):
        obey(asked, "hypergraph", change)
    assert advised(str(refused.value))


def test_a_wrong_advice_would_be_noticed():
    asked = facts(GRAPHS["one operator, indivisible"], 2, batch_size=24)
    (change,) = advised("the batch cannot be cut. Use --strategy pipeline --chunks 1.")
    assert change == Change(strategy="pipeline", chunks=1)
    with pytest.raises(PlanError):
        obey(asked, "ring", change)


@pytest.mark.parametrize("graph", GRAPHS)
def test_whatever_is_refused_while_it_trains_may_begin_again_on_one_worker(graph):
    (change,) = advised("the loss is not a mean over samples. Begin again with -n 1 --strategy single --chunks 1.")
    asked = question(GRAPHS[graph], workers=4, servers=0, chunks=4, batch_size=24, memory=1 << 40)
    obey(asked, "ring", change)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            "Use -n 2, --strategy ring --chunks 1 or --servers 0.",
            ["-n 2", "--chunks 1 --strategy ring", "--servers 0"],
        ),
        ("--servers 2 with -n 1: too many", []),
        ("ring: use --strategy ring", ["--strategy ring"]),
    ],
)
def test_what_counts_as_advice(text, flags):
    assert [change.flags for change in advised(text)] == flags


def test_the_smallest_changes_come_first_and_keep_all_workers():
    asked = question(CHAIN, workers=4, servers=2, chunks=3, batch_size=24, memory=1 << 40)
    found = list(changes(asked, "ps"))
    assert [len(change.parts) for change in found] == sorted(len(change.parts) for change in found)
    assert found[0].parts == {"servers"}


def test_one_worker_is_advised_one_strategy():
    asked = question(CHAIN, workers=2, servers=0, chunks=None, batch_size=24, memory=1 << 40)
    names = {
        strategy: {change.strategy for change in changes(asked, strategy) if change.of(asked).workers == 1}
        for strategy in ("pipeline", "single")
    }
    assert names == {"pipeline": {None, "single"}, "single": {None}}


def test_auto_is_not_advised_where_it_would_leave_workers_idle():
    """A model of one operator whose batch stays whole trains on one worker, whatever is asked for."""
    whole = question(
        GRAPHS["one operator, indivisible"], workers=2, servers=0, chunks=None, batch_size=24, memory=1 << 40
    )
    assert advise(whole, "ring", has_all) == "Use -n 1."
    cut = question(GRAPHS["indivisible"], workers=2, servers=0, chunks=None, batch_size=24, memory=1 << 40)
    assert advise(cut, "ring", has_all).startswith("Use --strategy pipeline")


def test_a_run_that_goes_on_is_never_told_to_change_its_chunks():
    asked = question(GRAPHS["plain"], workers=4, servers=0, chunks=2, batch_size=24, memory=1 << 40)
    assert any(change.chunks for change in changes(asked, "ring"))
    settled = replace(asked, chunks_are_settled=True)
    assert not any(change.chunks for change in changes(settled, "ring"))
    assert "--chunks" not in advise(settled, "ring", has_all)


def test_what_was_asked_of_staleness_stays_understood():
    asked = replace(question(CHAIN, workers=2, servers=0, chunks=None, batch_size=24, memory=1 << 40), staleness=2)
    assert {change.strategy for change in changes(asked, "ssp")} <= {None}


@pytest.mark.parametrize("graph", ["plain", "indivisible", "whole updates", "one operator"])
@pytest.mark.parametrize("chunks", [None, 1, 2])
def test_a_strategy_that_shall_have_all_workers_has_them(graph, chunks):
    """Where links are slow few workers train; a chunk or two do not give all of them something under every strategy."""
    asked = question(GRAPHS[graph], workers=4, servers=0, chunks=chunks, batch_size=24, memory=1 << 40)
    slow = replace(asked.cluster.nodes[0], local=channel(bandwidth_bytes_per_s=1e3, latency_s=0.1))
    slow = replace(asked, cluster=replace(asked.cluster, nodes=(slow,)))
    found = possible_plan(slow, "auto")
    for note in found.notes if found else ():
        for name in re.findall(r"Use --strategy (\w+) to have all", note):
            assert possible_plan(slow, name).placement.working == (0, 1, 2, 3)


def test_a_strategy_that_leaves_some_idle_is_not_advised_to_have_all():
    asked = question(CHAIN, workers=4, servers=0, chunks=None, batch_size=24, memory=1 << 40)
    strategies = [named(name) for name in ("single", "ring")]
    won, best = (simulate_proposal(asked, each.name, next(iter(each.propose(asked)))) for each in strategies)
    assert "Use --strategy ring to have all." in fewer_workers(4, won, best, "", has_all=lambda name: name == "ring")
    assert "Use" not in fewer_workers(4, won, best, "", has_all=lambda name: False)


SOURCES = Path(nfold.__file__).parent
BY_HAND = re.compile(
    r"(?:[Uu]se|[Tt]ry|[Ll]eave out|[Bb]egin again with) [^\"]*?(?:--strategy|-n|--chunks) [\w{][^\"]*"
)
KNOWN = {
    "planning/choosing/comparing_candidates.py": ["Use --strategy {best.strategy} to have all."],
    "runtime/checkpoint/joined_facts.py": ["use -n 1 --strategy single."],
    "runtime/parameters/buffers.py": ["use --strategy ring --servers 0."],
    "runtime/step/chunk_statistics.py": ["use -n 1 --strategy single."],
    "runtime/guards/checked_loss.py": ["Begin again with -n 1 --strategy single --chunks 1."],
    "runtime/step/gradient_signals.py": ["Use -n 1 --strategy single."],
    "runtime/guards/uneven_samples.py": ["Begin again with -n 1 --strategy single --chunks 1."],
    "runtime/guards/trial_occasions.py": ["Begin again with -n 1 --strategy single --chunks 1."],
    "runtime/parameters/optimizer_updates.py": ["Use --strategy ssp --staleness 0."],
    "verbs/options/range_checks.py": ["Leave out -n and --servers.", "Use --nodes {fits}, or more --chunks unless"],
    "verbs/running/going_on.py": ["Leave out --chunks {", "Use -n {chunks}{"],
}
"""Advice that `planning/choosing/advice.py` does not find, since it is given while training or before anything is
known: one worker is possible for whatever trained on several, a ring for what had servers, and so is a wish that is
left out; the candidate of a note was simulated."""


def test_no_other_advice_of_flags_stands_in_the_sources():
    """Whoever adds some lets `planning/choosing/advice.py` find it, or says above why it holds."""
    for path in SOURCES.rglob("*.py"):
        name = str(path.relative_to(SOURCES))
        found = [] if name == "planning/choosing/advice.py" else BY_HAND.findall(path.read_text())
        unknown = [text for text in found if not any(known in text for known in KNOWN.get(name, []))]
        assert unknown == [], f"{name} advises flags that nobody checks"
