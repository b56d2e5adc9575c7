"""What is true of a program whatever captures it."""

import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
import torch
from hidden import Drifting
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, ZOO, Net, rows, words

from nfold.capture.capture import capture
from nfold.capture.example_batches import sample_batches
from nfold.capture.independence.divisible import why_indivisible
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import update_scope
from nfold.capture.program.autocast import AutocastLoss
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError
from nfold.profiling.measured_memory import resident_bytes


def graph_of(net: Net) -> ModelGraph:
    return capture(net.model(), net.loss, net.example()).graph


def linear() -> nn.Module:
    return nn.Linear(12, CLASSES)


def contrast(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    similar = outputs @ outputs.t()
    return F.cross_entropy(similar, torch.arange(len(outputs)))


class MeanOverBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y - y.mean(0)


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_may_be_cut_into_chunks(name: str) -> None:
    assert graph_of(ZOO[name]).indivisible == ""


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, target: F.cross_entropy(outputs, target, reduction="sum"),
        lambda outputs, target: F.cross_entropy(outputs, target, weight=torch.arange(1.0, CLASSES + 1).double()),
        lambda outputs, target: F.cross_entropy(outputs, target, ignore_index=0),
        contrast,
    ],
    ids=["sum", "weights", "ignored", "contrast"],
)
def test_a_loss_that_is_no_mean(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    assert "not a mean over samples" in graph_of(Net(linear, rows, loss=loss)).indivisible


WEIGHTS = torch.tensor([1.0, 1.0, 1.0, 1.0, 100.0]).double()


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(weight=WEIGHTS), "CrossEntropyLoss divides by the sum of the class weights"),
        (nn.NLLLoss(weight=WEIGHTS), "NLLLoss divides by the sum of the class weights"),
        (partial(F.cross_entropy, weight=WEIGHTS), "cross_entropy divides by the sum of the class weights"),
        (partial(F.nll_loss, ignore_index=4), r"nll_loss(ignore_index=4) divides by the number"),
        (nn.CrossEntropyLoss(ignore_index=4), "CrossEntropyLoss(ignore_index=4) divides by the number"),
        (nn.CrossEntropyLoss(reduction="sum"), "CrossEntropyLoss(reduction='sum') grows"),
        (AutocastLoss(nn.CrossEntropyLoss(weight=WEIGHTS), torch.bfloat16), "class weights"),
    ],
)
def test_a_loss_that_says_itself_that_it_is_no_mean(loss: Callable[[Any, Any], torch.Tensor], words: str) -> None:
    """The last class never occurs in the examples."""
    graph = graph_of(Net(linear, rows, loss=loss, target=lambda size: torch.arange(size) % (CLASSES - 1)))
    assert graph.indivisible.startswith("the loss is not a mean over samples: ")
    assert words in graph.indivisible


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.full((CLASSES,), 2.0).double()),
        partial(F.cross_entropy, label_smoothing=0.1),
    ],
)
def test_settings_that_leave_a_mean(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    assert graph_of(Net(linear, rows, loss=loss)).indivisible == ""


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=WEIGHTS),
        nn.BCEWithLogitsLoss(weight=WEIGHTS, pos_weight=WEIGHTS),
        nn.KLDivLoss(reduction="batchmean"),
    ],
)
def test_weights_that_count_places_leave_a_mean(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    """Class probabilities are divided by the number of samples, whatever their weights."""
    net = Net(linear, rows, loss=loss, target=lambda size: torch.rand(size, CLASSES).double().softmax(1))
    assert graph_of(net).indivisible == ""


def test_a_loss_whose_weights_show_only_far_into_sorted_data() -> None:
    data = [(torch.ones(12).double() * index, index * CLASSES // 400) for index in range(400)]
    weights = torch.tensor([1.0, 1.0, 1.0, 1.0, 5.0]).double()
    model = linear().double()

    def weighted(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, target, weight=weights)

    graph = capture(model, weighted, sample_batches(data)).graph
    assert "not a mean over samples" in graph.indivisible


class RoundedBySize(nn.Module):
    """Computes batches of another size with another kernel, as libraries do: the last bits differ."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (1.0 + 2 * torch.finfo(x.dtype).eps * (x.shape[0] % 7))


def squared_error(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((outputs[:, 0] - target) ** 2).mean()


def weighted_by_sample(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (F.cross_entropy(outputs, target.long() % CLASSES, reduction="none") * target).mean()


@pytest.mark.parametrize("loss", [squared_error, weighted_by_sample])
def test_a_loss_of_finer_targets_is_as_exact_as_its_outputs(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    """Python's numbers become float64, and so does the loss, while outputs keep the rounding of float32."""
    data = [(torch.sin(torch.arange(12.0) + index), 0.5 + index / 8) for index in range(96)]
    torch.default_generator.manual_seed(1)
    assert why_indivisible(RoundedBySize, loss, sample_batches(data)) == ""


class Truncating(nn.Module):
    """Cuts all sentences of a batch to the longest."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, CLASSES)

    def forward(self, inputs: Any) -> torch.Tensor:
        tokens, lengths = inputs
        return self.head(self.embed(tokens[:, : int(lengths.max())]))


class NormalizingFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / gradient.norm()


class Normalizing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return NormalizingFunction.apply(self.inner(x))


def test_outputs_that_depend_on_other_samples() -> None:
    assert "other samples" in graph_of(Net(MeanOverBatch, rows)).indivisible


class Drawing(nn.Module):
    """Draws in evaluation, too, as a sampled code does; `mixes` says what else it does with its batch."""

    def __init__(self, mixes: str = "") -> None:
        super().__init__()
        self.inner, self.mixes = nn.Linear(12, CLASSES), mixes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        y = F.rrelu(y, training=True) + torch.randn_like(y) * 0.1 + F.dropout(y, 0.5, training=True)
        if self.mixes == "neighbours":
            y = y + y.mean(0)
        if self.mixes == "others":
            y = 0.9 * y + 0.1 * y[torch.randperm(len(y))]
        if self.mixes == "others in training" and self.training:
            y = 0.9 * y + 0.1 * y[torch.randperm(len(y))]
        return y


def noisy(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs + 0.1 * torch.rand_like(outputs), target)


def noisy_sum(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs + 0.1 * torch.rand_like(outputs), target, reduction="sum")


def test_models_and_losses_that_draw_may_be_cut() -> None:
    assert graph_of(Net(Drawing, rows)).indivisible == ""
    assert graph_of(Net(linear, rows, loss=noisy)).indivisible == ""


@pytest.mark.parametrize("mixes", ["neighbours", "others", "others in training"])
def test_drawing_hides_no_dependence_on_other_samples(mixes: str) -> None:
    reason = graph_of(Net(partial(Drawing, mixes), rows)).indivisible
    assert reason.startswith("an output of the model depends on the other samples of its batch")


def test_drawing_hides_no_sum() -> None:
    assert graph_of(Net(linear, rows, loss=noisy_sum)).indivisible.startswith("the loss is not a mean over samples")


def test_outputs_whose_shape_depends_on_other_samples() -> None:
    def sentences(size: int) -> Any:
        return words(size), torch.randint(1, 7, (size,))

    net = Net(Truncating, sentences, loss=lambda outputs, target: F.cross_entropy(outputs.mean(1), target))
    assert "other samples" in graph_of(net).indivisible


def test_gradients_that_depend_on_other_samples() -> None:
    assert "the gradient of inner.weight differs: a hook or a backward" in graph_of(Net(Normalizing, rows)).indivisible


class Rounding(nn.Module):
    """Computes in a coarse type, whose sums depend on the order."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(12, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.head(torch.tanh(self.inner(x))).float()


def test_gradients_that_are_only_rounded_otherwise() -> None:
    example = Net(linear, lambda size: rows(size).float()).example()
    assert capture(Rounding(), F.cross_entropy, example).graph.indivisible == ""


class TimeFirst(nn.Module):
    """Recurrent nets often put time before the samples, so that outputs have no row per sample."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(3, 6), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x.view(-1, 4, 3).transpose(0, 1))[0])


def each_time(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.permute(1, 2, 0), target[:, None].expand(-1, len(outputs)))


def test_outputs_with_time_first_may_be_cut() -> None:
    assert graph_of(Net(TimeFirst, rows, loss=each_time)).indivisible == ""


def clamped() -> nn.Module:
    model = linear()
    model.weight.register_hook(lambda gradient: gradient.clamp(-100.0, 100.0))
    return model


def stepping_in_backward() -> nn.Module:
    model = linear()
    model.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return model


def tied_by_memory() -> nn.Module:
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12), linear()).double()
    model[1].weight.data = model[0].weight.data
    return model


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (clamped, "a hook on the gradient of weight is no linear function"),
        (stepping_in_backward, "weight has a hook that runs after its gradient is accumulated"),
        (tied_by_memory, "0.weight and 1.weight are two tensors in the same memory"),
    ],
    ids=["clamped", "stepping", "tied"],
)
def test_weights_unfit_for_chunks(build: Callable[[], nn.Module], words: str) -> None:
    model = build()
    assert words in capture(model.double(), F.cross_entropy, Net(linear, rows).example()).graph.indivisible


def test_weights_tied_as_such_and_hooks_that_scale_are_fit() -> None:
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12), linear())
        model[1].weight = model[0].weight
        model[2].weight.register_hook(lambda gradient: 0.1 * gradient)
        return model

    assert graph_of(Net(build, rows)).indivisible == ""


class Counting:
    """A loss that weighs more with every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return F.cross_entropy(outputs, target) * min(1.0, self.calls / 1000)

    def compute(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self(outputs, target)


def counting_closure() -> Callable[[Any, Any], torch.Tensor]:
    calls = 0

    def loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return F.cross_entropy(outputs, target)

    return loss


class Centered:
    """A loss with a module that keeps something."""

    def __init__(self) -> None:
        self.center = Drifting()

    def __call__(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.center(outputs), target)


def centering_closure() -> Callable[[Any, Any], torch.Tensor]:
    center = Drifting()
    return lambda outputs, target: F.cross_entropy(center(outputs), target)


@pytest.mark.parametrize("loss", [Centered(), centering_closure()], ids=["object", "closure"])
def test_a_loss_with_a_module_that_keeps_something_is_refused(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    with pytest.raises(ProgramError, match="the loss changes center whenever it is called"):
        graph_of(Net(linear, rows, loss=loss))


def weighing_closure(*, trained: bool) -> Callable[[Any, Any], torch.Tensor]:
    weigh = nn.Linear(CLASSES, CLASSES).double().requires_grad_(trained)
    return lambda outputs, target: F.cross_entropy(weigh(outputs), target)


def test_a_loss_with_weights_of_its_own_is_told_that_nothing_trains_them() -> None:
    told = "the loss uses weights that nothing trains: those in weigh. Make them the model's"
    trained = graph_of(Net(linear, rows, loss=weighing_closure(trained=True)))
    frozen = graph_of(Net(linear, rows, loss=weighing_closure(trained=False)))
    assert any(note.startswith(told) for note in trained.notes)
    assert not any(note.startswith(told) for note in frozen.notes)


@pytest.mark.parametrize(
    "loss", [Counting(), Counting().compute, counting_closure()], ids=["object", "method", "closure"]
)
def test_a_loss_that_counts_its_calls_is_refused(loss: Callable[[Any, Any], torch.Tensor]) -> None:
    with pytest.raises(ProgramError, match="the loss changes calls whenever it is called"):
        graph_of(Net(linear, rows, loss=loss))


def test_batch_norm_without_running_statistics_is_excused() -> None:
    net = Net(lambda: nn.Sequential(nn.BatchNorm1d(12, track_running_stats=False), linear()), rows)
    graph = graph_of(net)
    assert (graph.indivisible, graph.statistics) == ("", ())


def test_frozen_batch_norm_has_no_statistics() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self[0].eval()
            return self

    graph = graph_of(Net(lambda: Frozen(nn.BatchNorm1d(12), linear()), rows))
    assert (graph.indivisible, graph.statistics) == ("", ())


class Range(nn.Module):
    """Keeps how far its inputs have reached."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("high", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.high.mul_(0.9).add_(0.1 * x.detach().abs().max())
        return x / self.high


@pytest.mark.parametrize(
    ("kept", "state"),
    [
        (lambda: nn.utils.spectral_norm(nn.Linear(12, 12)), "kept"),
        (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(12, 12)), "kept.parametrizations.weight.0"),
        (Range, "kept"),
    ],
    ids=["hook", "parametrization", "module"],
)
def test_every_call_of_a_module_that_carries_state_is_told(kept: Callable[[], nn.Module], state: str) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept, self.last = kept(), linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.kept(x) + self.kept(x.cos()))

    operators = graph_of(Net(Twice, rows)).operators
    assert {each.name: each.state for each in operators if each.state} == {"kept": (state,), "kept@2": (state,)}


def test_a_weight_that_is_skipped_now_and_then() -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) if len(x) > 2 else self.b(x)

    graph = graph_of(Net(Skipping, rows))
    assert not graph.static_gradients
    assert all(parameter.has_gradient for parameter in graph.parameters)


class Normalized(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad /= parameter.grad.norm()
        super().step(closure)


class Clipped(torch.optim.SGD):
    def __init__(self, parameters: Any, limit: float) -> None:
        super().__init__(parameters, lr=0.1)
        self.limit = limit

    def step(self, closure: Any = None) -> None:
        torch.nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], self.limit)
        super().step(closure)


class Late(torch.optim.SGD):
    """Begins after a warm-up with what others do from the first step on."""

    def __init__(self, parameters: Any, start: int, of_all: bool) -> None:
        super().__init__(parameters, lr=0.1)
        self.start, self.of_all, self.num_steps = start, of_all, 0

    def step(self, closure: Any = None) -> None:
        self.num_steps += 1
        parameters = [each for group in self.param_groups for each in group["params"]]
        for few in [parameters] if self.of_all else [[each] for each in parameters]:
            if self.num_steps > self.start:
                torch.nn.utils.clip_grad_norm_(few, 0.1)
        super().step(closure)


class Noisy(torch.optim.SGD):
    """So little that no comparison would show it."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(torch.randn_like(parameter), alpha=1e-12)


def decay_large(parameters: Any) -> torch.optim.Optimizer:
    parameters = list(parameters)
    return torch.optim.SGD(
        [
            {"params": [p for p in parameters if p.numel() > 10], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.numel() <= 10]},
        ],
        lr=0.1,
    )


def last_one_slower(parameters: Any) -> torch.optim.Optimizer:
    *others, last = parameters
    return torch.optim.SGD([{"params": others}, {"params": [last], "lr": 0.01}], lr=0.1)


def decay_matrices(parameters: Any) -> torch.optim.Optimizer:
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.1)


@pytest.mark.parametrize(
    ("factory", "scope"),
    [
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True), "element"),
        (lambda parameters: torch.optim.AdamW(parameters, lr=0.01), "element"),
        (lambda parameters: torch.optim.RMSprop(parameters, lr=0.01), "element"),
        (lambda parameters: torch.optim.Adafactor(parameters, lr=0.1), "parameter"),
        (decay_matrices, "parameter"),
        (lambda parameters: Normalized(parameters, lr=0.1), "parameter"),
        (decay_large, "parameter"),
        (last_one_slower, "model"),
        (lambda parameters: Clipped(parameters, limit=0.1), "model"),
        (lambda parameters: Clipped(parameters, limit=1e4), "model"),
        (lambda parameters: Noisy(parameters, lr=0.1), "model"),
        (lambda parameters: Late(parameters, start=20, of_all=False), "parameter"),
        (lambda parameters: Late(parameters, start=700, of_all=True), "model"),
        (lambda parameters: Late(parameters, start=5000, of_all=False), "model"),
    ],
    ids=[
        "sgd",
        "adamw",
        "rmsprop",
        "adafactor",
        "groups",
        "normalized",
        "by size",
        "by place",
        "clipped",
        "seldom clipped",
        "noisy",
        "late by weight",
        "late by all",
        "too late to be seen",
    ],
)
def test_update_scope(factory: Any, scope: str) -> None:
    assert update_scope(Stepping(factory), ZOO["plain"].model()).scope == scope


def test_groups_that_are_added_to_an_empty_one_are_told() -> None:
    def added(parameters: Any) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD([each for each in parameters if each.ndim == 1], lr=0.1)
        optimizer.add_param_group({"params": [each for each in parameters if each.ndim > 1]})
        return optimizer

    found = update_scope(Stepping(added), ZOO["plain"].model())
    assert found.scope == "model"
    assert "raised ValueError: optimizer got an empty parameter list" in found.unseen
    assert found.unseen.endswith("; give it all groups at once, as SGD([{'params': biases}, {'params': others}])")


class Wrapper:
    """Steps, and is no optimizer of torch's."""

    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda parameters: torch.optim.SGD(parameters, lr=-1.0), "Invalid learning rate"),
        (lambda parameters: None, "must return a torch.optim.Optimizer"),
        (lambda parameters: Wrapper(), r"it returned Wrapper\. Make Wrapper a subclass of it: call super"),
        (torch.optim.LBFGS, "closure"),
        (lambda parameters: torch.optim.SGD(linear().parameters(), lr=0.1), "over other parameters"),
    ],
    ids=["raises", "none", "wrapper", "lbfgs", "others"],
)
def test_optimizers_that_cannot_work(factory: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        update_scope(Stepping(factory), linear())


def with_sparse_buffer() -> nn.Module:
    model = linear()
    model.register_buffer("adjacency", torch.eye(12).to_sparse())
    return model


def with_sparse_weight() -> nn.Module:
    model = nn.Linear(12, CLASSES)
    model.weight = nn.Parameter(torch.eye(CLASSES, 12).to_sparse())
    return model


class ThreeArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.inner(x + y + z)


def pairs(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return rows(size), rows(size)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (Net(lambda: nn.Linear(7, 5), rows), r"Linear.forward raised RuntimeError.*float64\[3, 12\]"),
        (
            Net(lambda: nn.Sequential(nn.Linear(12, 5), nn.Unflatten(1, (5, 1)), nn.InstanceNorm1d(5)), rows),
            r"more than 1 spatial element.* in '2' \(InstanceNorm1d\).*normalises over one value",
        ),
        (Net(linear, rows, rows), r"refused outputs float64\[3, 5\] and targets float64\[3, 12\]"),
        (Net(linear, rows, loss=lambda outputs, target: outputs), "must return a scalar tensor"),
        (Net(linear, rows, loss=lambda outputs, target: outputs.detach().sum()), "does not depend on any"),
        (Net(lambda: nn.Flatten(), rows), "no trainable parameter"),
        (Net(lambda: nn.LazyLinear(3), rows), "no size yet"),
        (Net(lambda: nn.Linear(12, 5, dtype=torch.complex128), rows), "weight of Linear is complex128"),
        (Net(with_sparse_buffer, rows), r"adjacency of .* is sparse.*persistent=False"),
        (Net(with_sparse_weight, rows), r"weight of .* is sparse.* Train its values as a dense parameter"),
        (Net(ThreeArguments, pairs), r"missing 2 required positional arguments: 'y' and 'z'.*a tuple goes by position"),
    ],
    ids=[
        "shape",
        "one value",
        "loss",
        "scalar",
        "detached",
        "nothing",
        "lazy",
        "complex",
        "sparse",
        "sparse weight",
        "three arguments",
    ],
)
def test_programs_that_cannot_work(net: Net, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        capture(net.model(), net.loss, net.example())


def test_a_capture_keeps_no_copy_of_the_model() -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(12, 1789), nn.ReLU(), nn.Linear(1789, CLASSES)), rows)
    model = net.model()
    captured = capture(model, net.loss, net.example())
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # modules of torch's own that warn when they are asked for their class
        left = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and 1789 in each.shape]
    assert captured.graph.capture == "fx"
    assert {id(each) for each in left} == {id(each) for each in model.parameters() if 1789 in each.shape}


def test_copies_to_try_a_model_on_share_its_memory_until_they_are_written_to() -> None:
    model = nn.Linear(4096, 4096, bias=False)  # 64 MiB
    nn.init.zeros_(model.weight)
    fresh = fresh_copies(model, None, lazy=True)
    before = resident_bytes()
    copies = [fresh() for _ in range(4)]
    assert resident_bytes() - before < 32 << 20
    with torch.no_grad():
        copies[0].weight[0, 0] = 1
    assert [each.weight[0, 0].item() for each in (model, *copies)] == [0, 1, 0, 0, 0]
    with torch.no_grad():
        model.weight[0, 0] = 2
    assert [each.weight[0, 0].item() for each in (model, *copies)] == [2, 1, 0, 0, 0]


def test_weights_in_memory_that_torch_does_not_own_are_copied_at_once() -> None:
    model = nn.Linear(2, 2, bias=False)
    model.weight = nn.Parameter(torch.from_numpy(numpy.zeros((2, 2), dtype=numpy.float32)))
    copied = fresh_copies(model, None, lazy=True)()
    with torch.no_grad():
        copied.weight[0, 0] = 1
    assert (model.weight[0, 0].item(), copied.weight[0, 0].item()) == (0, 1)


def test_weights_that_are_tied_are_tied_in_a_copy_that_shares_memory() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    copied = fresh_copies(model, None, lazy=True)()
    assert copied[1].weight is copied[0].weight is not model[0].weight
    assert [each.requires_grad for each in copied.parameters()] == [True, False, True]
