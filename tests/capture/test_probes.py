"""Programs on which tracers are silently wrong: captured exactly, or kept whole and said so."""

import copy
import re

import pytest
import torch
from cutting import assert_equal, play
from hidden import HELD, SHARED, Harmless, KeepsActivations
from probes import (
    AddedBuffer,
    AutocastRegion,
    BackwardHooks,
    BooleanMask,
    BranchOnSize,
    BranchOnValue,
    ChangesInput,
    Checkpointed,
    Counter,
    CustomFunction,
    GradientHook,
    GradientInForward,
    GRULoop,
    HalvesOfBatch,
    InstanceCheck,
    LateCounter,
    LateSchedule,
    LateWindow,
    ListedWeights,
    LoopOverBatch,
    Mapped,
    MovingAverage,
    NoGradRegion,
    NoiseOfBatchSize,
    NormedByFunction,
    OddBatches,
    PairsOfSamples,
    PythonRandom,
    RareCoin,
    Spectral,
    TorchRandomBranch,
    WeightNorm,
    WrongInRow,
    WrongInside,
    WrongPastIt,
)
from torch import nn
from zoo import Net, rows

from nfold.capture.capture import capture, recapture
from nfold.capture.cutting.captured import Captured
from nfold.errors import ProgramError

EXACT = {
    NoGradRegion: "fx",
    AutocastRegion: "fx",
    CustomFunction: "fx",
    WeightNorm: "fx",
    BooleanMask: "fx",
    BackwardHooks: "fx",
    ListedWeights: "fx",
    BranchOnSize: "fx",
    GradientInForward: "export",
    InstanceCheck: "fx",
    GRULoop: "fx",
}
MIXING = [HalvesOfBatch, PairsOfSamples, OddBatches]
WHOLE = [Checkpointed, ChangesInput, GradientHook]
HELD_LINES = {BranchOnValue: 149, LoopOverBatch: 180, Mapped: 348}
STATEFUL = {
    MovingAverage: "average",
    AddedBuffer: "total",
    Counter: "count",
    Spectral: "_u",
    LateCounter: "number",
    LateSchedule: "schedule",
    LateWindow: "window",
    NormedByFunction: "mean",
    **HELD,
}
DRAWING = {NoiseOfBatchSize: "fx", TorchRandomBranch: "fx", PythonRandom: "opaque", RareCoin: "opaque"}


def captured(probe: type[nn.Module]) -> Captured:
    net = Net(probe, rows)
    return capture(net.model(), net.loss, net.example(), rebuild=net.model)


def assert_equals_module(found: Captured) -> None:
    """Compare the finest cut with the module on a batch and a size that the gate has not seen."""
    net = Net(nn.Identity, rows)
    names = [[operator.name] for operator in found.graph.operators]
    model = copy.deepcopy(found.model)
    model.zero_grad(set_to_none=True)
    inputs, target = net.example().batch(6, 9)
    loss = net.loss(model(inputs), target)
    loss.backward()
    expected = {"loss": loss.detach()} | {name: parameter.grad for name, parameter in model.named_parameters()}
    tolerance = 1e-2 if isinstance(model, AutocastRegion) else 1e-10
    assert_equal(play(found, names, net.example().batch(6, 9)), expected, tolerance)


@pytest.mark.parametrize("probe", EXACT, ids=lambda probe: probe.__name__)
def test_exact(probe: type[nn.Module]) -> None:
    found = captured(probe)
    assert found.graph.capture == EXACT[probe]
    assert len(found.graph.operators) > 2
    assert not found.graph.indivisible
    assert_equals_module(found)


@pytest.mark.parametrize("probe", MIXING, ids=lambda probe: probe.__name__)
def test_what_depends_on_the_size_of_the_batch_is_computed_for_every_size(probe: type[nn.Module]) -> None:
    found = captured(probe)
    assert found.graph.capture == "fx"
    assert found.graph.indivisible
    assert_equals_module(found)


@pytest.mark.parametrize("probe", WHOLE, ids=lambda probe: probe.__name__)
def test_whole(probe: type[nn.Module]) -> None:
    found = captured(probe)
    assert [operator.name for operator in found.graph.operators] == ["model"]
    assert found.graph.capture == "opaque"
    assert any("one operator" in note for note in found.graph.notes)
    assert not found.graph.static_gradients
    assert_equals_module(found)


@pytest.mark.parametrize("probe", HELD_LINES, ids=lambda probe: probe.__name__)
def test_whole_lines(probe: type[nn.Module]) -> None:
    found = captured(probe)
    line = f"probes.py:{HELD_LINES[probe]}"
    assert [operator.name for operator in found.graph.operators] == ["first", line, "last", "loss"]
    assert found.graph.whole == (line,)
    assert not found.graph.static_gradients
    assert_equals_module(found)


def test_only_modules_in_which_a_trace_goes_wrong_are_kept_whole() -> None:
    found = captured(WrongInside)
    names = [operator.name for operator in found.graph.operators]
    assert found.graph.capture == "fx"
    assert found.graph.notes[-1] == "kept whole, since operator by operator they go wrong: row.1.1, several.0"
    assert {"first", "row.1.1", "several.0", "several.2", "last"} < set(names)
    assert len(names) > 8
    assert not any("one operator" in note for note in found.graph.notes)


@pytest.mark.parametrize(("probe", "whole"), [(WrongInside, 3), (WrongInRow, 3), (WrongPastIt, 1)])
def test_other_ranks_keep_the_same_parts_whole(probe: type[nn.Module], whole: int) -> None:
    found, net = captured(probe), Net(probe, rows)
    assert found.graph.capture == "fx"
    assert len(found.graph.whole) == whole
    again = recapture(net.model(), net.loss, net.example(), found.graph)
    assert again.layout.traced.opaque == found.graph.whole
    for each in (found, again):
        assert_equals_module(each)


def test_who_changes_the_input_is_named() -> None:
    note, *_ = captured(ChangesInput).graph.notes
    assert note == "the model cannot be cut into operators: it changes its input in place, by mul_"


@pytest.mark.parametrize("probe", STATEFUL, ids=lambda probe: probe.__name__)
def test_state_forbids_chunks(probe: type[nn.Module]) -> None:
    assert STATEFUL[probe] in captured(probe).graph.indivisible


@pytest.mark.parametrize("probe", SHARED, ids=lambda probe: probe.__name__)
def test_state_that_copies_share_is_refused(probe: type[nn.Module]) -> None:
    with pytest.raises(ProgramError, match=rf"forward changes {re.escape(SHARED[probe])} whenever it is called"):
        captured(probe)


def test_what_two_modules_count_together_keeps_the_model_whole() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = LateSchedule(), nn.Sequential(nn.Linear(5, 12), LateSchedule())
            self.two[1].schedule = self.one.schedule

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))

    assert [operator.name for operator in captured(Two).graph.operators] == ["model"]


def test_a_hook_may_write_down_what_a_layer_puts_out() -> None:
    graph = captured(KeepsActivations).graph
    assert {"first", "last"} <= {operator.name for operator in graph.operators}
    assert not graph.indivisible


def test_code_that_only_names_what_copies_share_is_captured_as_before() -> None:
    found = captured(Harmless)
    assert (found.graph.capture, found.graph.indivisible) == ("fx", "")
    assert_equals_module(found)


@pytest.mark.parametrize("probe", DRAWING, ids=lambda probe: probe.__name__)
def test_draws_repeat(probe: type[nn.Module]) -> None:
    found = captured(probe)
    net, names = Net(probe, rows), [[operator.name] for operator in found.graph.operators]
    assert found.graph.capture == DRAWING[probe]
    assert sum(operator.num_random for operator in found.graph.operators) == 1
    losses = [play(found, names, net.example().batch(4), chunk)["loss"] for chunk in (0, 1, 2, 3, 4, 5, 0)]
    assert losses[0] == losses[-1]
    assert len(set(losses)) > 1


def test_an_untraceable_line_stays_whole_and_the_rest_is_cut() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.probe, self.after = nn.Linear(12, 12), BranchOnValue(), nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.after(self.probe(self.before(x)))

    found = captured(Outer)
    names = ["before", "probe.first", "probes.py:149", "probe.last", "after", "loss"]
    assert [operator.name for operator in found.graph.operators] == names
    assert found.graph.notes[-1].startswith("probes.py:149 is one operator, cut off before and after: `return x * 2 if")
    assert not found.graph.static_gradients
    assert_equals_module(found)


def test_a_stateful_block_stays_whole() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.probe = nn.Linear(12, 12), Counter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.probe(self.before(x))

    graph = captured(Outer).graph
    assert "probe.count" in graph.indivisible
    assert [operator.name for operator in graph.operators] == ["before", "probe", "loss"]
