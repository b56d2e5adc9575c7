"""Models cut among ranks, from the command line: trained, evaluated, stopped and gone on with under other plans."""

import json

import pytest
import torch
from safetensors.torch import load_file

import nfold as library
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.search import to_plan
from nfold.planning.reductions.reductions_without_servers import placed
from nfold.runtime.rank import rank_of_generation
from nfold.runtime.rank.evaluation import evaluate

STEPS = 10
"""Two epochs."""


@pytest.fixture
def script(nfold, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "steady.py"


@pytest.fixture(scope="module")
def alone(module_shell):
    script, out = module_shell.folder / "steady.py", module_shell.folder / "alone"
    return library.train(script, workers=1, strategy="single", steps=STEPS, debug=True, out=out)


def check_equal(run, alone):
    """Losses, last metrics and parameters are the same but for the last bits of float32."""
    mine, others = ([line for line in each.history if not line["metrics"]] for each in (run, alone))
    assert [line["step"] for line in mine] == list(range(1, STEPS + 1))
    assert [line["loss"] for line in mine] == pytest.approx([line["loss"] for line in others], rel=1e-4)
    assert run.history[-1]["metrics"] == pytest.approx(alone.history[-1]["metrics"], rel=1e-3)
    state = run.state_dict()
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("pipeline", 2), pytest.param("hybrid", 3, marks=pytest.mark.exhaustive), ("hypergraph", 2)],
)
def test_a_cut_model_learns_the_same(script, alone, strategy, workers):
    run = library.train(script, workers=workers, strategy=strategy, steps=STEPS, debug=True, out=strategy)
    assert run.plan.strategy == strategy
    assert {rank for ranks in run.plan.placement.owners.values() for rank in ranks} == set(range(workers))
    check_equal(run, alone)
    assert run.report.sent_bytes_per_step == run.plan.predicted.sent_bytes_per_step
    assert (run.folder / "report.html").exists()


@pytest.mark.parametrize(
    ("strategy", "workers"), [pytest.param("pipeline", 3, marks=pytest.mark.exhaustive), ("hypergraph", 2)]
)
def test_one_chunk_is_enough_for_ranks_that_share_the_operators(script, strategy, workers):
    alone, run = (
        library.train(script, workers=count, strategy=each, chunks=1, steps=STEPS, debug=True, out=each)
        for count, each in ((1, "single"), (workers, strategy))
    )
    assert (run.plan.strategy, run.plan.chunks) == (strategy, 1)
    assert {rank for ranks in run.plan.placement.owners.values() for rank in ranks} == set(range(workers))
    check_equal(run, alone)
    assert run.report.sent_bytes_per_step == run.plan.predicted.sent_bytes_per_step


def test_a_batch_that_cannot_be_cut_is_placed_by_operators_and_not_refused(nfold, tmp_path):
    script = tmp_path / "steady.py"
    summed = 'partial(nn.functional.cross_entropy, reduction="sum")'
    text = script.read_text().replace("loss=nn.functional.cross_entropy", f"loss={summed}").replace("chunks=4,", "")
    script.write_text(f"from functools import partial\n{text.replace('lr=0.005', 'lr=0.0003')}")
    train = ("train", "steady.py", "-n", "2", "--steps", "2", "--debug", "--json")

    chosen, placed = (nfold(*train, "--strategy", each, "--out", each) for each in ("auto", "hypergraph"))

    assert (chosen.code, placed.code) == (0, 0), chosen.err + placed.err
    rejected = json.loads((tmp_path / "auto" / "plan.json").read_text())["rejected"]
    (why,) = [loser["why"] for loser in rejected if loser["strategy"] == "ring"]
    assert why.startswith("the batch cannot be cut into chunks: the loss is not a mean over samples")
    plan = json.loads((tmp_path / "hypergraph" / "plan.json").read_text())
    assert (plan["workers"], plan["chunks"]) == (2, 1)
    result = nfold(*train, "--strategy", "ring")
    result.check_explained("the batch cannot be cut into 2 chunks", "Use --strategy pipeline")


def test_state_moves_from_plan_to_plan(script, alone):
    """Momentum, running statistics and a tied weight go from a ring over cut models to one rank, and back."""
    run = library.train(script, workers=2, strategy="ring", steps=2, debug=True, out="moved")
    for steps, workers, strategy in (
        (4, 2, "pipeline"),
        (6, 3, "hypergraph"),
        (8, 1, "single"),
        (STEPS, 3, "hybrid"),
    ):
        run = library.resume("moved", workers=workers, strategy=strategy, steps=steps, debug=True)
        assert (run.plan.strategy, run.plan.workers) == (strategy, workers)
    check_equal(run, alone)


def test_workers_without_a_cell_keep_out_of_training_and_of_evaluations(script, alone, monkeypatch):
    """Two of three share the chunks; the first has nothing to do."""

    def planned(facts, strategy):
        ranks = tuple(1 + chunk % 2 for chunk in range(facts.chunks))
        proposal = placed(facts, {operator.name: ranks for operator in facts.graph.operators})
        return to_plan(facts, simulate_proposal(facts, strategy, proposal))

    def evaluated(program, model, dataset, part, num_parts, device, reader):
        parts.append((part, num_parts))
        return evaluate(program, model, dataset, part, num_parts, device, reader)

    parts = []
    monkeypatch.setattr("nfold.runtime.coordinator.job_planning.plan", planned)
    monkeypatch.setattr("nfold.runtime.rank.evaluator.evaluate", evaluated)
    run = library.train(script, workers=3, strategy="hybrid", steps=STEPS, debug=True, out="idle")
    assert run.plan.placement.working == (1, 2)
    check_equal(run, alone)
    assert set(parts) == {(0, 2), (1, 2)}


@pytest.mark.parametrize(("every", "asked"), [(None, [True, False]), (0, [False, False])])
def test_who_evaluates_a_cut_model_takes_the_weights_of_a_checkpoint(script, alone, monkeypatch, every, asked):
    calls = []
    collect = rank_of_generation.collect_from

    def counted(replica, *args, with_optimizer, **named):
        calls.append((args[0].rank, with_optimizer))
        return collect(replica, *args, with_optimizer=with_optimizer, **named)

    monkeypatch.setattr(rank_of_generation, "collect_from", counted)
    run = library.train(
        script, workers=2, strategy="pipeline", steps=STEPS, debug=True, checkpoint_every=every, out="cut"
    )
    check_equal(run, alone)
    epochs = sum(bool(line["metrics"]) for line in run.history)
    for rank in (0, 1):
        mine = [with_optimizer for each, with_optimizer in calls if each == rank]
        assert mine == [*[asked[0]] * epochs, asked[1]]


@pytest.mark.processes
def test_ranks_that_are_processes_do_the_same(shell, script, alone):
    result = shell.run("train", "steady.py", "-n", "2", "--strategy", "pipeline", "--steps", str(STEPS), "--out", "cut")
    assert result.code == 0, result.err
    found = load_file(shell.folder / "cut" / "model.safetensors")
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


FROZEN_FRONT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold


def data():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(1600, 1024, generator=generator), torch.randint(0, 512, (1600,), generator=generator)
    )


def program():
    return nfold.Program(
        model=lambda: nn.Sequential(nn.Linear(1024, 4096).requires_grad_(False), nn.Linear(4096, 512)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.01),
        train_data=data,
        batch_size=16,
        chunks=4,
    )
"""


@pytest.mark.processes
@pytest.mark.exhaustive
def test_a_frozen_front_may_be_much_faster_than_what_it_sends_to(shell):
    (shell.folder / "frozen.py").write_text(FROZEN_FRONT)
    options = ("--strategy", "pipeline", "--steps", "400", "--json", "--out", "frozen")
    result = shell.run("train", "frozen.py", "-n", "2", *options)
    assert result.code == 0, result.err
    document = result.document()
    assert document["sent_bytes_per_step"] == document["predicted"]["sent_bytes_per_step"] > 0
    owners = json.loads((shell.folder / "frozen" / "plan.json").read_text())["placement"]["owners"]
    if owners != {"0": [0] * 4, "1": [1] * 4, "loss": [1] * 4}:
        pytest.skip(f"by what was measured it is cut elsewhere, where gradients flow back: {owners}")


def test_more_workers_than_operators_are_refused_with_the_numbers(nfold):
    result = nfold("train", "steady.py", "-n", "10", "--chunks", "10", "--strategy", "pipeline", "--debug")
    assert result.code == 2
    assert result.message.startswith("nfold: --strategy pipeline: 10 workers need a stage each, and only ")
    assert "operators take time. Use --strategy hybrid" in result.message
