"""What Prometheus is told of a run."""

import urllib.request
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nfold.runtime.control import commands as cmd
from nfold.verbs.jobs.run_figures import RunFigures
from nfold.verbs.watching.prometheus import Prometheus, figures_of
from nfold.verbs.watching.run_totals import RunTotals


def sums(totals):
    return {family.name: {tuple(map("=".join, labels)): value for labels, value in family.figures.items()}
            for family in totals.families()}  # fmt: skip


def test_steps_are_added_up_rank_by_rank(happenings):
    totals = RunTotals()
    for happening in (happenings.planned(), happenings.step_done(0), happenings.step_done(1)):
        totals.take(happening)
    found = sums(totals)
    assert (found["nfold_steps_total"], found["nfold_samples_total"]) == ({(): 2}, {(): 32})
    assert found["nfold_rank_payload_bytes_total"] == {("rank=0", "node=n1"): 200, ("rank=1", "node=n2"): 200}
    seconds = found["nfold_rank_seconds_total"]
    assert seconds["rank=1", "node=n2", "kind=backward"] == pytest.approx(0.06)
    assert sum(seconds.values()) == pytest.approx(0.4), "all of two steps of two ranks"


def test_a_node_is_counted_once_however_many_ranks_it_has(happenings):
    totals = RunTotals()
    plan = replace(happenings.plan, nodes=("n1", "n1"))
    totals.take(replace(happenings.planned(), plan=plan))
    for rank in range(2):
        (sample,) = happenings.sampled(rank).samples
        totals.take(cmd.Sampled(samples=(replace(sample, node="n1"),)))
    totals.take(happenings.sampled(1))  # of a node that has left
    found = sums(totals)
    assert found["nfold_link_sent_bytes_total"] == {("node=n1",): 2000}
    assert found["nfold_rank_processor_seconds_total"]["rank=1", "node=n1", "kind=compute"] == 1.0


def test_what_changes_is_counted_from_nought(happenings):
    totals = RunTotals()
    assert sums(totals)["nfold_replans_total"] == {(): 0}
    known = SimpleNamespace(cluster=happenings.cluster)
    totals.take(cmd.Replanned(known=known, plan=happenings.plan, next_step=1))
    totals.take(cmd.KeepCheckpoint(step=1, file=SimpleNamespace()))
    totals.noted()
    found = sums(totals)
    assert [found[f"nfold_{name}_total"][()] for name in ("replans", "checkpoints", "notes", "link_changes")] == [
        1,
        1,
        1,
        0,
    ]


def test_a_moment_has_loss_metrics_parts_memory_and_links(happenings):
    figures = RunFigures()
    for happening in (happenings.planned(), happenings.step_done(4), happenings.sampled(1)):
        figures.take(happening, at=1.0)
    figures.take(cmd.Evaluated(step=5, epoch=0, metrics={"accuracy": float("nan")}), at=1.0)
    families = {family.name: family.figures for family in figures_of(figures.state(2.0), "/runs/a")}
    assert families["nfold_step"] == {(): 5}
    assert families["nfold_loss"] == {(): 0.5}
    assert str(families["nfold_metric"]) == "{(('name', 'accuracy'),): nan}"
    assert families["nfold_step_part_seconds"][("kind", "compute"),] == pytest.approx(0.05)
    memory = {(("rank", "1"), ("node", "n2"), ("role", "worker")): 300 << 20}
    assert families["nfold_rank_memory_bytes"] == memory, "rank 0 has not looked yet"
    assert (
        families["nfold_link_bytes_per_second"][("node", "n1"), ("direction", "up"), ("origin", "measured")] == 12.5e6
    )
    assert families["nfold_phase"][("phase", "building"),] == 1


def test_who_asks_is_answered_until_the_run_ends(happenings):
    notes = []
    prometheus = Prometheus(("127.0.0.1", 0), "--prometheus 0", "/runs/a")
    with prometheus.opened(notes.append):
        prometheus.take(happenings.planned())
        prometheus.take(happenings.step_done(0))
        address = notes[0].removeprefix("figures for Prometheus: ")
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "\nnfold_steps_total 1\n" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address[:-1], timeout=10)
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address, timeout=10)
