"""Losses that read weights past the outputs of the model, through what all models of the program share."""

from dataclasses import replace

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop
from nets import program
from torch.nn import functional as F

import nfold
from nfold.capture.program.building import build_model
from nfold.errors import PlanError, ProgramError
from nfold.runtime.guards.own_weights import OwnWeights

DECAY = 1e-2


def penalised():
    """A program whose loss finds the model that was built last, and adds the norm of its weights."""
    plain, built = program("plain"), []

    def build():
        built[:] = [plain.model()]
        return built[0]

    def loss(outputs, targets):
        return F.cross_entropy(outputs, targets) + DECAY * sum(each.abs().sum() for each in built[0].parameters())

    return replace(plain, model=build, loss=loss)


def test_such_a_model_stays_whole_and_says_why():
    mine = penalised()
    graph = graph_of(mine)
    assert [each.name for each in graph.operators] == ["model"]
    assert "past the outputs of the model" in graph.notes[0]
    with pytest.raises(PlanError, match="past the outputs of the model"):
        make_plan(mine, graph, "pipeline", 2, 0, chunks=4)


def test_who_builds_another_model_takes_the_weights_away():
    mine = penalised()
    graph, model = graph_of(mine), build_model(mine, torch.device("cpu"))
    own = OwnWeights(mine, model, mine.train_data(), graph)
    own.check()
    build_model(mine, torch.device("cpu"))
    with pytest.raises(ProgramError, match="another model than the one that this rank trains"):
        own.check()


def test_ranks_that_are_threads_are_refused_and_one_is_not(tmp_path):
    mine = penalised()
    with pytest.raises(ProgramError, match="another model than the one that this rank trains"):
        nfold.train(mine, workers=2, strategy="ring", steps=3, chunks=2, out=tmp_path / "two")
    alone = nfold.train(mine, workers=1, steps=3, chunks=2, out=tmp_path / "one")
    assert difference(alone.state_dict(), plain_loop(mine, 3, 2).state_dict()) <= 1e-9
