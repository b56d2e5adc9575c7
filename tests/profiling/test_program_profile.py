"""A profile is complete, sane and leaves no trace."""

import gc
import itertools
import random
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.core import codec
from nfold.core.graph import ModelGraph
from nfold.core.profile import ChunkTiming, Profile
from nfold.errors import ProgramError
from nfold.machine.limits import CoreShare
from nfold.profiling import profile_program
from nfold.profiling.bench import Bench
from nfold.profiling.compute import time_loading, time_whole
from nfold.profiling.measure import Meter
from nfold.profiling.measured_memory import SavedTensorCounter
from nfold.profiling.program_profile import fitting
from nfold.program import Program

DATA = [(torch.full((1, 8, 8), float(index % 7)), index % 5) for index in range(20)]


def small_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 5))


def program(**changes: Any) -> Program:
    arguments: dict[str, Any] = {
        "model": small_cnn,
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: torch.optim.Adam(parameters),
        "train_data": lambda: DATA,
        "batch_size": 8,
    }
    return Program(**(arguments | changes))


def profiled(**changes: Any) -> tuple[ModelGraph, Profile]:
    graph, profiles = profile_program(program(**changes), chunk_sizes=(8, 2), thread_counts=(1,), budget_s=5.0)
    return graph, profiles[1]


def test_batches_of_one_sample_are_refused_where_a_module_needs_two() -> None:
    mine = program(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5)))
    with pytest.raises(ProgramError, match=r"module 2 does not compute on 1 sample, .* batch size of at least 2"):
        profile_program(mine, chunk_sizes=(1,), thread_counts=(1,))


class FixedBatch(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.view(8, 64))


def test_a_program_of_one_size_of_batch_is_measured_at_that() -> None:
    _, profile = profiled(model=lambda: FixedBatch(64, 5))
    assert [timing.chunk_size for timing in profile.whole] == [8]
    assert profile.activation_bytes_per_sample > 0


def test_a_profile_is_complete_and_round_trips() -> None:
    graph, profile = profiled()
    assert codec.loads(ModelGraph, codec.dumps(graph)) == graph
    assert codec.loads(Profile, codec.dumps(profile)) == profile
    names = [operator.name for operator in graph.operators]
    assert names == ["0", "2", "3", "4", "loss"]
    assert [found.operator for found in profile.operators] == names
    for timings in [profile.whole, *(found.timings for found in profile.operators)]:
        assert [timing.chunk_size for timing in timings] == [2, 8]
        assert all(_positive(timing) for timing in timings)
    assert (profile.device_kind, profile.num_threads) == ("cpu", 1)


def _positive(timing: ChunkTiming) -> bool:
    return timing.forward.median_s > 0 and timing.backward.median_s > 0 and timing.forward.repeats >= 1


def test_bytes_are_counted() -> None:
    graph, profile = profiled()
    elements = 4 * 9 + 4 + 144 * 5 + 5
    assert profile.parameter_bytes == graph.parameter_bytes == 4 * elements
    # Adam: two moments per element and a step per parameter.
    assert profile.optimizer_bytes == 2 * 4 * elements + 4 * 4
    # Input, ReLU's result, dropout's mask and result, log-softmax and target at least.
    assert 4 * (64 + 144 + 144 + 5) < profile.activation_bytes_per_sample < 4 * (64 + 5 * 144 + 30)
    assert 0 < profile.base_bytes <= profile.peak_bytes


def test_operators_add_up_to_the_whole() -> None:
    _, profile = profiled()
    forward, backward = profile.whole_s(4)
    seconds = profile.operators_s(4)
    assert sum(pair[0] for pair in seconds.values()) == pytest.approx(forward)
    assert sum(pair[1] for pair in seconds.values()) == pytest.approx(backward)


def test_it_leaves_no_trace() -> None:
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    data = [(image.clone(), label) for image, label in DATA]
    profiled()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), torch.get_num_threads())
    assert all(torch.equal(image, DATA[index][0]) for index, (image, _) in enumerate(data))


def test_it_leaves_no_copy_of_the_model() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 1789), nn.ReLU(), nn.Linear(1789, 5))

    profiled(model=model)
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # modules of torch's own that warn when they are asked for their class
        left = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and 1789 in each.shape]
    assert left == []


def test_each_number_of_threads_is_measured_on_the_first_weights() -> None:
    built: list[nn.Module] = []

    def remembered() -> nn.Module:
        built.append(small_cnn())
        return built[-1]

    graph, profiles = profile_program(program(model=remembered), chunk_sizes=(8,), thread_counts=(2, 1), budget_s=0.2)
    assert {count: profile.num_threads for count, profile in profiles.items()} == {2: 2, 1: 1}
    for profile in profiles.values():
        assert [found.operator for found in profile.operators] == [operator.name for operator in graph.operators]
        assert all(_positive(timing) for timing in profile.whole)
    moved = [model for model in built if model[0].weight.grad is not None]
    assert len(moved) == 2, "the second was not measured on weights that the first had changed"


@pytest.mark.parametrize(("cores", "times"), [(4.0, 1.0), (0.25, 4.0)])
def test_less_than_a_core_measures_for_longer(monkeypatch: pytest.MonkeyPatch, cores: float, times: float) -> None:
    budgets: list[float] = []

    def noted(bench: Bench, chunk_sizes: tuple[int, ...], budget_s: float) -> tuple[ChunkTiming, ...]:
        budgets.append(budget_s)
        return time_whole(bench, chunk_sizes, 0.01)

    monkeypatch.setattr("nfold.profiling.program_profile.available_cores", lambda: CoreShare(cores, 0.0))
    monkeypatch.setattr("nfold.profiling.program_profile.time_whole", noted)
    profile_program(program(), chunk_sizes=(2,), thread_counts=(1,), budget_s=0.1)
    assert budgets == [pytest.approx(0.05 * times)], "half of what there is"


@pytest.mark.parametrize(
    ("worked", "share", "waited"),
    [
        (1.0, CoreShare(1.0, 0.0), 0.0),
        (0.9, CoreShare(1.0, 0.0), 0.0),
        (0.25, CoreShare(1.0, 0.0), 0.75),
        (0.25, CoreShare(0.25, 0.01), 0.0),
        (0.1, CoreShare(0.2, 0.5), 0.4),
        (0.02, CoreShare(0.2, 4.5), 0.0),  # it began with nothing left of its grant
        (0.02, CoreShare(4.0, 4.5), 0.98),  # a reader alone never uses it up
    ],
)
def test_what_of_reading_keeps_no_processor_busy(worked: float, share: CoreShare, waited: float) -> None:
    """Of each second `worked` is a processor's; with a part of a core it has no more than that part to give."""
    now, working_s = itertools.count(), iter([0.0, 5 * worked])
    data = TensorDataset(torch.zeros(4, 1), torch.zeros(4))
    sample_s, found = time_loading(Meter(clock=lambda: next(now)), data, 100.0, share, lambda: next(working_s))
    assert sample_s == 5 / 4
    assert found == pytest.approx(waited)


def test_what_the_sampler_keeps_apart_is_not_joined_to_time_reading() -> None:
    data = [(torch.zeros(1 + index % 2), 0) for index in range(20)]
    now = itertools.count()
    sample_s, _ = time_loading(
        Meter(clock=lambda: next(now)),
        data,
        100.0,
        CoreShare(1.0, 0.0),
        itertools.count().__next__,
        batches=lambda: [list(range(0, 20, 2)), list(range(1, 20, 2))],
    )
    assert sample_s == pytest.approx(5 / 20)


def test_an_opaque_model_is_one_operator() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                y = self.inner(x.flatten(1))
                return y if y.sum() > 0 else y * 2
            finally:
                del x

    graph, profile = profiled(model=Branching)
    assert graph.capture == "opaque"
    assert [found.operator for found in profile.operators] == ["model"]
    assert profile.operators[0].timings == profile.whole


def test_a_slow_program_is_measured_twice_and_its_operators_at_few_sizes() -> None:
    ticks = itertools.count(0.0, 10.0)
    _, profiles = profile_program(
        program(), chunk_sizes=(2, 4, 8), thread_counts=(1,), budget_s=0.1, clock=lambda: next(ticks)
    )
    profile = profiles[1]
    assert [timing.forward.repeats for timing in profile.whole] == [2, 2, 2]
    assert [[timing.chunk_size for timing in found.timings] for found in profile.operators] == [[2]] * 5


def _raise(*_: Any) -> Any:
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": _raise}, r"Program\(model=...\) raised KeyError"),
        ({"model": lambda: nn.Linear}, "must be a function that returns a torch.nn.Module, it returned type"),
        ({"train_data": _raise}, r"Program\(train_data=...\) raised KeyError"),
        ({"train_data": list}, "empty dataset"),
        ({"optimizer": _raise}, r"Program\(optimizer=...\) raised KeyError"),
        ({"loss": _raise}, "the loss _raise refused outputs"),
    ],
    ids=["model", "class", "data", "empty", "optimizer", "loss"],
)
def test_programs_that_cannot_work(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        profiled(**changes)


def test_what_operators_keep_is_counted_once_and_adds_up() -> None:
    graph, profile = profiled()
    found = profile.saved_bytes()
    assert list(found) == [operator.name for operator in graph.operators]
    assert sum(found.values()) == pytest.approx(profile.activation_bytes_per_sample)
    # The convolution keeps the image and its own result, which it hands on in place; dropout only its mask.
    assert found["0"] == 4 * (64 + 144)
    assert found["2"] == 0
    assert 144 <= found["3"] <= 4 * 144
    assert found["4"] == 4 * 144


def test_a_value_that_two_operators_keep_counts_for_the_first() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 5), nn.Linear(64, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.flatten(1)
            return self.a(x) + self.b(x)

    _, profile = profiled(model=Twice)
    found = profile.saved_bytes()
    assert (found["a"], found["b"]) == (4 * 64, 0)


def test_what_is_kept_is_counted_where_torch_allows_no_hooks_on_what_is_saved() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def output(point: torch.Tensor) -> torch.Tensor:
        return net(point).squeeze(-1)

    class Slopes(nn.Module):
        def __init__(self, allows_hooks: bool) -> None:
            super().__init__()
            self.net, self.allows_hooks = net, allows_hooks

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            if not self.allows_hooks:
                torch.func.vmap(torch.func.jacrev(output))(points.detach())
            return output(points)

    bytes_kept = []
    for allows_hooks in (True, False):
        model, points = Slopes(allows_hooks), torch.rand(6, 2)
        bytes_kept.append(SavedTensorCounter(model).count(lambda model=model, points=points: model(points).sum())[1])
    # Points and tanh's result.
    assert bytes_kept == [4 * 6 * (2 + 8)] * 2


def test_a_program_with_torch_func_in_forward_is_measured() -> None:
    class Slopes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(64, 5)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            rows = images.flatten(1)
            return self.net(rows) + torch.func.vmap(torch.func.jacrev(lambda row: self.net(row).tanh()))(rows).sum(2)

    _, profile = profiled(model=Slopes)
    # The input, and a slope for each of 5 outputs.
    assert 4 * 64 <= profile.activation_bytes_per_sample < 4 * 64 * 5 * 8


def test_a_batch_that_has_no_room_whole_is_not_measured_whole() -> None:
    assert fitting((2, 8, 32), 100.0, 3200.0) == (2, 8, 32)
    assert fitting((2, 8, 32), 100.0, 3199.0) == (2, 8)
    assert fitting((2, 8, 32), 100.0, -1.0) == (2,)
