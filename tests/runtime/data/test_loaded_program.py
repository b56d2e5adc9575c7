"""Data that ranks load: the same on all of them where they can be, and told apart where they are not."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from nfold.capture.batches.joining import join
from nfold.capture.program.autocast import under_autocast
from nfold.core import codec
from nfold.core.outputs import ModuleOutput, first_difference
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.data.loaded_program import (
    facts_of,
    first_pass,
    item_checksums,
    load_dataset,
    probed_items,
    weights_checksums,
)

SEED = 3


class Items(Dataset):
    """Pairs of what a function makes of an index, and of the index."""

    def __init__(self, make, count=10):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index), index


def drawn():
    """A data set that is drawn when it is built, as generated ones are."""
    numbers = [(torch.randn(2), np.random.rand(2), random.random()) for _ in range(10)]
    return Items(lambda index: numbers[index])


def test_what_is_drawn_to_build_data_is_the_same_on_every_rank():
    first, second = (item_checksums(load_dataset(drawn, "train_data", SEED), SEED) for _ in range(2))
    assert first == second
    assert item_checksums(load_dataset(drawn, "train_data", SEED + 1), SEED) != first
    test = item_checksums(load_dataset(drawn, "test_data", SEED), SEED)
    assert not {*test.values()} & {*first.values()}, "nothing is tested on what was trained with"


def test_what_items_draw_is_seeded_before_they_are_compared():
    noisy = Items(lambda index: index + torch.rand(3))
    assert item_checksums(noisy, SEED) == item_checksums(noisy, SEED)


@pytest.mark.parametrize("index", [0, 5, 9])
def test_an_item_that_differs_is_the_one_that_is_named(index):
    mine, theirs = (Items(lambda at, here=here: {"x": np.ones(3) * (here if at == index else 1)}) for here in (1, 2))
    mine, theirs = (item_checksums(each, SEED) for each in (mine, theirs))
    assert [at for at in mine if mine[at] != theirs[at]] == [str(index)]


def test_few_items_are_read_however_many_there_are():
    read = []
    item_checksums(Items(lambda index: read.append(index) or 0.0, count=10**9), SEED)
    assert read == probed_items(10**9) == [0, 5 * 10**8, 10**9 - 1]
    assert probed_items(1) == [0]
    assert probed_items(2) == [0, 1]


def test_an_item_that_cannot_be_read_is_left_to_who_trains_with_it():
    assert item_checksums(Items(lambda index: 1 / (9 - index)), SEED)["9"] is None


def test_data_that_cannot_be_built_are_told():
    with pytest.raises(ProgramError, match=r"test_data\(\) raised ZeroDivisionError"):
        load_dataset(lambda: 1 / 0, "test_data", SEED)


def test_each_weight_and_buffer_has_a_checksum_of_its_own():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    before = weights_checksums(model)
    assert list(before) == list(model.state_dict())
    with torch.no_grad():
        model[0].bias[1] += 1
    after = weights_checksums(model)
    assert {name for name in before if before[name] != after[name]} == {"0.bias"}


def program(**changes):
    given = {
        "model": lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(0.5)),
        "loss": torch.nn.functional.cross_entropy,
        "optimizer": lambda params: torch.optim.SGD(params, lr=0.1),
        "train_data": lambda: Items(lambda index: torch.ones(2) * index, count=4),
        "batch_size": 2,
    }
    return Program(**{**given, **changes})


def passed(made, weights_seed=0):
    torch.manual_seed(weights_seed)
    return first_pass(made, made.model(), made.train_data())


def test_a_first_pass_is_the_same_wherever_it_is_made_and_leaves_the_generators_alone():
    torch.manual_seed(5)
    model, expected = program().model(), torch.get_rng_state()
    first_pass(program(), model, program().train_data())
    assert torch.equal(torch.get_rng_state(), expected)
    assert passed(program()) == passed(program())
    assert passed(program())["outputs"] != passed(program(), weights_seed=1)["outputs"]
    half = passed(under_autocast(program(autocast="bfloat16")))["outputs"]
    assert [each["is_coarse"] for each in half] == [True, True, True, False], "what the last computes is float32"


def gradients(**changes):
    made = {"model": lambda: torch.nn.Linear(2, 3), **changes}
    return [codec.decode(ModuleOutput, each) for each in passed(program(**made))["gradients"]]


def smoothed(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, label_smoothing=0.3)


class TellsLoss(torch.nn.Module):
    """Has its loss inside."""

    def __init__(self, smoothing):
        super().__init__()
        self.linear, self.smoothing = torch.nn.Linear(2, 3), smoothing

    def forward(self, inputs):
        targets = torch.zeros(len(inputs), dtype=torch.long)
        outputs = self.linear(inputs)
        return {"loss": torch.nn.functional.cross_entropy(outputs, targets, label_smoothing=self.smoothing)}, outputs


def test_another_loss_shows_in_its_gradient_whatever_its_value():
    plain = gradients()
    assert [each.module for each in plain] == ["loss, differentiated by output 0", "loss of even outputs"]
    assert plain == gradients()
    assert "differentiated by output 0 differs first" in first_difference(plain, gradients(loss=smoothed))
    half = gradients(model=lambda: torch.nn.Linear(2, 3).bfloat16(), train_data=lambda: Items(
        lambda index: torch.ones(2, dtype=torch.bfloat16) * index, count=4))  # fmt: skip
    assert half[0].is_coarse


def test_a_loss_inside_the_model_is_differentiated_by_its_last_weight():
    def told(smoothing):
        return gradients(model=lambda: TellsLoss(smoothing), loss=lambda outputs, _: outputs[0]["loss"])

    assert [each.module for each in told(0.0)] == [
        "loss, differentiated by linear.bias",
        "loss, differentiated by output 0",
        "loss of even outputs",
    ], "the other output has no part in it"
    assert "by linear.bias differs first" in first_difference(told(0.0), told(0.3))


def test_a_loss_that_wants_outputs_of_its_own_kind_is_not_differentiated():
    def wants_ordered(outputs, targets):
        if outputs.flatten()[0] == 0.25:
            raise ValueError("never that")
        return outputs.sum()

    assert gradients(loss=wants_ordered) == []


def test_optimizer_and_schedule_are_told_with_what_they_compute_by():
    def stepping(**changes):
        made = program(**changes)
        return facts_of(made, {"train": made.train_data()})["stepping"]

    def cosine(optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)

    told = stepping(scheduler=cosine)
    assert (told["optimizer"], told["scheduler"]) == ("SGD", "CosineAnnealingLR")
    assert (told["groups"][0]["lr"], told["groups"][0]["momentum"], "fused" in told["groups"][0]) == (0.1, 0, False)
    assert stepping(optimizer=lambda params: 1 / 0) is None


def test_a_file_that_is_not_there_is_told_with_the_folder_that_its_path_begins_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProgramError, match=rf"train_data\(\) raised FileNotFoundError.* begins at {tmp_path}, where"):
        load_dataset(lambda: np.load("data/x.npy"), "train_data", SEED)
    with pytest.raises(ProgramError) as caught:
        load_dataset(lambda: np.load(tmp_path / "x.npy"), "train_data", SEED)
    assert "begins at" not in str(caught.value)


def test_a_first_pass_that_raises_is_left_to_who_tries_the_program():
    assert passed(program(loss=lambda outputs, _: outputs.no_such_thing)) is None


def test_items_that_fit_into_no_batch_are_named():
    samples = [(torch.zeros(3 if index == 63 else 2), 0) for index in (7, 63, 5)]
    with pytest.raises(
        ProgramError, match=r"of train_data\(\) do not fit into one batch: item 63 is .*\[3\].*the others"
    ):
        join(samples, [7, 63, 5], "train_data")
