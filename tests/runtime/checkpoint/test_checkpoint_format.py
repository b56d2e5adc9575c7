"""What ranks hold becomes one file, and of a file each rank reads what it needs."""

import pytest
import torch
from harness import file_of, read_checkpoint
from torch import nn

from nfold.capture.optimizers.stepping import Stepping
from nfold.core.graph import ModelGraph, Operator, Parameter, Tensor
from nfold.core.placement import Reduction
from nfold.runtime.checkpoint import checkpoint_format
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint, offer
from nfold.runtime.checkpoint.joined_facts import EXTRAS, join_facts
from nfold.runtime.checkpoint.state_collection import collect
from nfold.runtime.parameters.buffers import Piece
from nfold.runtime.parameters.held_pieces import Held
from nfold.runtime.parameters.optimizer_updates import Updater
from nfold.runtime.parameters.weights import Weights
from nfold.runtime.step.taken_state import take_model
from nfold.transport.implementations.in_memory import MemoryNetwork


class Tied(nn.Module):
    """Two names for one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(3, 2))
        self.bias = nn.Parameter(torch.ones(3))
        self.again = self.weight


def graph_of(sizes):
    operator = Operator(name="A", kind="A", inputs=("input",), outputs=("loss",), parameters=tuple(sizes))
    loss = Tensor(name="loss", producer="A", consumers=(), bytes_per_sample=0.0)
    parameters = tuple(
        Parameter(name=name, num_elements=size, num_bytes=4 * size, dtype="float32", trainable=True, users=("A",))
        for name, size in sizes.items()
    )
    return ModelGraph(operators=(operator,), tensors=(loss,), parameters=parameters, capture="fx")


def reduction(name, size):
    return Reduction(
        name=name, parameters=(name,), num_elements=size, dtype="float32", item_bytes=4, members=(0,), route="local"
    )


def stored(model, updaters=None):
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    reductions = tuple(reduction(name, size) for name, size in sizes.items())
    weights = Weights(model, graph_of(sizes))
    offered = offer(0, reductions, updaters or {}, weights, ())
    network = MemoryNetwork(1)
    collected = collect(network.transport(0), 1, 1, offered, lambda said: join_facts(said, 5, 2))
    data = file_of(collected)
    network.close()
    return data


def test_a_tied_weight_is_there_under_all_its_names():
    found = read_checkpoint(stored(Tied()))
    assert (found.step, found.piece("weight", (3, 2), 0, 6).tensors) == (5, {"weight": {}})
    tensors = found.model()
    assert tensors.keys() == {"weight", "bias", "again"}
    assert torch.equal(tensors["again"], torch.arange(6.0).reshape(3, 2))


def test_nothing_is_copied_to_be_offered():
    model = Tied()
    sizes = {"weight": 6, "bias": 3}
    reductions = tuple(reduction(name, size) for name, size in sizes.items())
    offered = offer(0, reductions, None, Weights(model, graph_of(sizes)), ())
    own = {each.data_ptr() for each in model.parameters()}
    assert {part.values.data_ptr() for part in [*offered.parts, *offered.rest]} == own


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}


def test_who_has_all_gives_of_extra_states_what_it_has_changed():
    """Another rank's may be older than the one of the rank that computes the module."""
    weights = Weights(Counting(), graph_of({}))
    said = [offer(rank, (), None, weights, (), is_all=True).facts[EXTRAS] for rank in (0, 2)]
    assert said == [{"_extra_state": {"calls": 0}}, {}]
    changed = offer(1, (), None, weights, (), extras={"_extra_state": {"calls": 7}}, is_all=True)
    assert changed.facts[EXTRAS] == {"_extra_state": {"calls": 7}}


def test_only_what_is_needed_is_read():
    data = stored(Tied())
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    read = []

    def ask(start, stop):
        read.append(stop - start)
        return data[start:stop]

    model = Tied()
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(7.0)
    take_model(model, Checkpoint(data[:header_bytes], ask), [model.weight])
    assert read == [12], "three elements of the bias"
    assert model.weight.eq(7.0).all()
    assert model.bias.eq(1.0).all()


class Loaded(nn.Module):
    """Counts how often it is loaded, and makes something of what it loads."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), value))
        self.times, self.double = 0, None
        self.register_load_state_dict_post_hook(Loaded._make)

    def _make(self, _) -> None:
        self.times, self.double = self.times + 1, 2 * self.weight.detach()


def test_a_model_of_many_modules_is_not_loaded_once_for_each():
    saved, model = (nn.Sequential(*(Loaded(start + index) for index in range(8))) for start in (10.0, 0.0))
    take_model(model, read_checkpoint(stored(saved)))
    assert [each.weight.tolist() for each in model] == [[10.0 + index] * 2 for index in range(8)]
    assert [each.double.tolist() for each in model] == [[20.0 + 2 * index] * 2 for index in range(8)]
    assert all(each.times <= 2 for each in model)


def test_elements_in_another_order_in_memory_are_written_and_restored():
    saved, model = (nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last) for _ in range(2))
    take_model(model, read_checkpoint(stored(saved)))
    assert torch.equal(model.weight, saved.weight)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_tensor_is_read_a_piece_at_a_time(monkeypatch):
    monkeypatch.setattr(checkpoint_format, "READ_BYTES", 8)
    data = stored(Tied())
    header_bytes, read = 8 + int.from_bytes(data[:8], "little"), []

    def ask(start, stop):
        read.append(stop - start)
        return data[start:stop]

    found = Checkpoint(data[:header_bytes], ask).model(["weight"])["weight"]
    assert read == [8, 8, 8]
    assert torch.equal(found, torch.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("weight_format", [torch.contiguous_format, torch.channels_last])
def test_a_model_takes_a_tensor_a_piece_at_a_time_into_its_own_memory(monkeypatch, weight_format):
    monkeypatch.setattr(checkpoint_format, "READ_BYTES", 8)
    saved, model = (nn.Conv2d(3, 4, 2).to(memory_format=weight_format) for _ in range(2))
    own, made = model.weight.data_ptr(), []
    whole = Checkpoint._elements
    monkeypatch.setattr(Checkpoint, "_elements", lambda *args: made.append(args[3] - args[2]) or whole(*args))
    take_model(model, read_checkpoint(stored(saved)))
    assert torch.equal(model.weight, saved.weight)
    assert model.weight.data_ptr() == own
    assert made == ([2] * 24 if weight_format is torch.contiguous_format else [48]) + [2, 2]


@pytest.mark.parametrize(("start", "stop"), [(0, 6), (2, 5)])
def test_of_what_an_optimizer_keeps_only_the_elements_that_are_wanted_are_read(start, stop):
    model = Tied()
    held = [Held(Piece("weight", 0, 6, 0), "weight", model.weight)]
    updater = Updater(Stepping(lambda weights: torch.optim.Adam(weights, lr=0.1)), held, [])
    model.weight.grad = torch.arange(6.0).reshape(3, 2)
    updater.step()
    ((_, kept, *_),) = updater.state()
    data = stored(model, {("weight", 0): updater})
    header_bytes, read = 8 + int.from_bytes(data[:8], "little"), []

    def ask(start, stop):
        read.append(stop - start)
        return data[start:stop]

    found = Checkpoint(data[:header_bytes], ask).piece("weight", (3, 2), start, stop).tensors["weight"]
    assert sorted(read) == [4, 4 * (stop - start), 4 * (stop - start)]
    assert found["step"] == 1.0
    for key in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(found[key], kept[key].reshape(-1)[start:stop])
