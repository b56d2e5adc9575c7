"""A loss that is no mean over samples is found while it trains, even where no example showed it."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from harness import graph_of, make_plan, play
from nets import program
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.capture.program.autocast import AutocastLoss
from nfold.errors import ProgramError
from nfold.runtime.guards.checked_loss import CheckedLoss

SIZE, CLASSES = 8, 4


def outputs(size: int = SIZE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, CLASSES, generator=generator, dtype=torch.float64, requires_grad=True)


def labels(*values: int) -> torch.Tensor:
    return torch.tensor(values * SIZE)[:SIZE]


def called(checked: CheckedLoss, made: Any, wanted: Any, size: int = 0) -> torch.Tensor:
    """Compute the loss of a chunk, whose targets count samples if nothing else is said."""
    with checked.checked(size or len(wanted)):
        return checked(made, wanted)


class Counted:
    """How often the user's loss was called."""

    def __init__(self, loss: Any = F.cross_entropy) -> None:
        self.loss, self.calls = loss, 0

    def __call__(self, made: Any, wanted: Any) -> torch.Tensor:
        self.calls += 1
        return self.loss(made, wanted)


def test_a_mean_is_returned_as_it_is():
    made = outputs()
    value = called(CheckedLoss(F.cross_entropy), made, labels(0, 1, 2, 3))
    value.backward()
    assert torch.equal(value, F.cross_entropy(made, labels(0, 1, 2, 3)))
    assert made.grad is not None


def test_it_is_checked_ever_more_seldom():
    counted = Counted()
    checked = CheckedLoss(counted)
    for _ in range(64):
        called(checked, outputs(), labels(0, 1, 2, 3))
    # A check computes the loss of all samples, and of those of each class: calls 1, 2, 4, 8, 16, 32 and 64.
    assert counted.calls == 64 + (1 + CLASSES) * 7


def test_a_target_that_is_left_out_is_noticed_when_it_comes():
    checked = CheckedLoss(F.cross_entropy)
    for _ in range(6):
        called(checked, outputs(), labels(0, 1, 2, 3))
    with pytest.raises(
        ProgramError,
        match=r"not a mean over samples: tried on 3 samples .* Begin again with -n 1",
    ):
        called(checked, outputs(), labels(1, 2, 3, 1, -100))


@dataclass
class Made:
    """A model's outputs in a class of its own."""

    logits: torch.Tensor


class MadeDict(dict[str, torch.Tensor]):
    @property
    def logits(self) -> torch.Tensor:
        return self["logits"]


@pytest.mark.parametrize("kind", [Made, lambda logits: MadeDict(logits=logits)], ids=["dataclass", "dict"])
def test_it_is_noticed_in_outputs_of_a_class_of_their_own(kind: Any) -> None:
    checked = CheckedLoss(lambda made, wanted: F.cross_entropy(made.logits, wanted))
    called(checked, kind(outputs()), labels(0, 1, 2, 3))
    with pytest.raises(ProgramError, match="not a mean over samples"):
        called(checked, kind(outputs()), labels(1, 2, 3, 1, -100))


def test_a_missing_number_that_is_left_out_is_noticed_when_it_comes():
    def where_known(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        known = ~wanted.isnan()
        return F.mse_loss(made[known], wanted[known])

    checked, wanted = CheckedLoss(where_known), outputs().detach().flip(0)
    for _ in range(6):
        called(checked, outputs(), wanted)
    wanted[0] = float("nan")
    with pytest.raises(ProgramError, match="not a mean over samples"):
        called(checked, outputs(), wanted)


def weighted(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made, wanted, weight=torch.tensor([1.0, 9.0, 1.0, 1.0]).double())


def second_ignored(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made, wanted, ignore_index=1)


def refused_at(loss: Any, *chunks: tuple[torch.Tensor, torch.Tensor]) -> int:
    """Return the first chunk that is refused; -1 if none is."""
    checked = CheckedLoss(loss)
    for index, (made, wanted) in enumerate(chunks):
        try:
            called(checked, made, wanted)
        except ProgramError as error:
            if "not a mean over samples" in str(error):
                return index
            raise
    return -1


@pytest.mark.parametrize("loss", [weighted, second_ignored])
@pytest.mark.parametrize("size", [1, 2, 3, CLASSES, 8, 32])
def test_a_rare_class_within_the_others_is_noticed_when_it_comes(loss, size):
    """Chunks of as many samples as classes, whose outputs are square, included; and of a single sample."""
    usual = [(outputs(size), torch.tensor([0, 2, 3])[(torch.arange(size) + call) % 3]) for call in range(18)]
    rare = usual[-1][1].clone()
    rare[-1] = 1
    assert refused_at(loss, *usual) == -1
    assert refused_at(loss, *usual, (outputs(size), rare)) == 18


@pytest.mark.parametrize("loss", [weighted, second_ignored])
def test_a_chunk_of_one_class_is_compared_with_another_chunk(loss):
    zeros, ones = torch.zeros(SIZE, dtype=torch.long), torch.ones(SIZE, dtype=torch.long)
    assert refused_at(loss, *[(outputs(), zeros)] * 2, (outputs(), ones)) == 2


def test_classes_in_equal_shares_of_both_parts_are_told_apart():
    assert refused_at(weighted, (outputs(6), torch.tensor([0, 1, 0, 1, 0, 1]))) == 0


def sentences(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs (samples, classes, places) and targets, of which those behind a length are to be ignored."""
    wanted = torch.arange(len(lengths) * 5).view(-1, 5) % CLASSES
    wanted[torch.arange(5) >= torch.tensor(lengths)[:, None]] = -100
    made = torch.randn(len(lengths), CLASSES, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return made, wanted


def test_as_many_ignored_places_in_every_sample_leave_a_mean():
    assert refused_at(F.cross_entropy, *[sentences(4, 4, 4)] * 9) == -1


@pytest.mark.parametrize("lengths", [(4, 3, 4), (4, 4, 5), (3, 3, 3)])
def test_more_or_fewer_ignored_places_than_before_are_noticed(lengths):
    assert refused_at(F.cross_entropy, *[sentences(4, 4, 4)] * 6, sentences(*lengths)) == 6


def each_place(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made, wanted.flatten(), ignore_index=1)


def each_place_across(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made, wanted.t().flatten(), ignore_index=1)


@pytest.mark.parametrize("loss", [each_place, each_place_across])
def test_outputs_with_several_rows_for_each_sample_are_taken_apart(loss):
    made = outputs(15)
    usual = torch.tensor([0, 2, 3]).repeat(5).view(3, 5)
    rare = usual.clone()
    rare[1, 2] = 1
    assert refused_at(loss, *[(made, usual)] * 6) == -1
    assert refused_at(loss, *[(made, usual)] * 6, (made, rare)) == 6


def test_outputs_with_time_first_are_taken_apart():
    made = torch.randn(5, SIZE, CLASSES, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def at_the_end(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return second_ignored(made[-1], wanted)

    assert refused_at(at_the_end, *[(made, labels(0, 2, 3))] * 6, (made, labels(0, 2, 1))) == 6


def test_what_all_samples_share_stays_whole():
    made = outputs(), outputs(5).sum()
    assert refused_at(lambda made, wanted: F.cross_entropy(made[0], wanted) + made[1], (made, labels(0, 1, 2))) == -1
    assert refused_at(lambda made, wanted: weighted(made[0], wanted) + made[1], (made, labels(0, 1, 2))) == 0


def test_few_of_thousands_are_noticed_in_double_precision():
    """By 4e-6 of the loss, were all of a chunk compared with two thirds and a third of it."""
    made = torch.randn(5000, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    usual = torch.arange(5000) % CLASSES
    rare = usual.clone()
    rare[torch.arange(10) * 499] = -100
    assert refused_at(F.cross_entropy, *[(made, usual)] * 6, (made, rare)) == 6


@pytest.mark.parametrize(("dtype", "excess"), [(torch.float32, 1e-2), (torch.float64, 1e-7)])
def test_slight_weights_are_noticed_as_far_as_the_type_tells(dtype, excess):
    weights = torch.tensor([1.0, 1.0 + excess, 1.0, 1.0], dtype=dtype)
    wanted = torch.arange(64) % CLASSES
    made = (outputs(64) * (1.0 + 2.0 * (wanted == 1)[:, None])).to(dtype)
    assert refused_at(lambda made, wanted: F.cross_entropy(made, wanted, weight=weights), (made, wanted)) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 7, 1000, 20000])
def test_rounding_is_no_alarm(dtype, size):
    generator = torch.Generator().manual_seed(size)
    made, wanted = 30 * torch.randn(size, CLASSES, generator=generator), torch.randint(0, CLASSES, (size,))
    made = made.to(dtype)

    def of_both_signs(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (made.sum(1) - made.roll(1, 1)[torch.arange(len(made)), wanted] * CLASSES).mean()

    for loss in (F.cross_entropy, of_both_signs, lambda made, wanted: F.mse_loss(made[:, 0], made[:, 1] + wanted)):
        assert refused_at(loss, *[(made, wanted)] * 4) == -1


def each_word(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made.transpose(1, 2), wanted, ignore_index=-100)


def slightly_weighted(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    weight = 1.0 + 0.5 * (torch.arange(CLASSES) % 2)
    return F.cross_entropy(made[:, 0], wanted[:, 0], weight=weight.to(made.dtype))


def each_place_alike(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(made.transpose(1, 2), wanted.clamp(min=0))


@pytest.mark.parametrize("is_autocast", [True, False])
@pytest.mark.parametrize(("loss", "chunk"), [(each_word, 0), (slightly_weighted, 0), (each_place_alike, -1)])
def test_coarse_outputs_hide_no_loss_that_is_nearly_a_mean(is_autocast, loss, chunk):
    """As at the beginning, when all words cost about the same."""
    generator = torch.Generator().manual_seed(2)
    made = 0.3 * torch.randn(SIZE, 60, CLASSES, generator=generator)
    wanted = torch.randint(0, CLASSES, (SIZE, 60), generator=generator)
    wanted[torch.arange(60) >= torch.randint(5, 61, (SIZE, 1), generator=generator)] = -100
    checked = AutocastLoss(loss, torch.bfloat16) if is_autocast else loss
    assert refused_at(checked, (made.bfloat16(), wanted)) == chunk


@pytest.mark.parametrize(("reduction", "chunk"), [("mean", -1), ("sum", 0)])
def test_a_loss_that_computes_in_coarse_types_only_is_checked_in_them(reduction, chunk):
    def half(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(made @ torch.eye(CLASSES).bfloat16(), wanted, reduction=reduction)

    assert refused_at(half, (outputs().bfloat16(), labels(0, 1, 2))) == chunk


@pytest.mark.parametrize(("reduction", "chunk"), [("mean", -1), ("sum", 0)])
def test_a_loss_that_squeezes_is_taken_apart_as_well(reduction, chunk):
    def squeezing(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(made.squeeze(), wanted.double(), reduction=reduction)

    assert refused_at(squeezing, (outputs(6)[:, :1], torch.tensor([0, 0, 1, 0, 0, 0]))) == chunk


def test_what_cannot_be_taken_apart_is_left_alone():
    def asking(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(made.sum(), made, create_graph=True)[0].sum()

    made = outputs()
    assert torch.equal(called(CheckedLoss(asking), made, labels(1)), asking(made, labels(1)))


@pytest.mark.parametrize(("reduction", "chunk"), [("mean", -1), ("sum", 0)])
def test_a_loss_that_draws_is_taken_apart_as_well(reduction, chunk):
    def drawing(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(made + torch.rand_like(made), wanted, reduction=reduction)

    assert refused_at(drawing, (outputs(), labels(0, 1, 2))) == chunk


def test_what_a_loss_draws_is_what_it_draws_unchecked():
    def drawing(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(made + torch.rand_like(made), wanted)

    made, wanted = outputs(), labels(0, 1, 2)
    torch.manual_seed(1)
    expected = drawing(made, wanted)
    torch.manual_seed(1)
    assert torch.equal(called(CheckedLoss(drawing), made, wanted), expected)


def test_words_are_not_taken_for_samples():
    """Eight words of two documents, with a mean over the words of each: no mean over words."""
    wanted, share = labels(0, 1, 2, 3), torch.tensor([1 / 4] * 2 + [1 / 12] * 6, dtype=torch.float64)

    def of_documents(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (F.cross_entropy(made, wanted, reduction="none") * share).sum()

    made = outputs()
    assert torch.equal(called(CheckedLoss(of_documents), made, wanted, 2), of_documents(made, wanted))
    with pytest.raises(ProgramError, match="not a mean over samples"):
        called(CheckedLoss(F.cross_entropy), made, labels(0, -100), SIZE)


class Masked(nn.Module):
    """Draws a mask with three ones for each sample; with fewer for rare ones."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        mask = (torch.rand(len(x), 6).argsort(1) < 3) & (x < 50.0)
        return self.last(torch.tanh(self.first(x * mask))), mask.to(x.dtype)


def of_masked(made, wanted):
    return ((made[0] - wanted).square() * made[1]).sum() / made[1].sum()


@pytest.mark.parametrize("strategy", ["ring", "pipeline"])
def test_a_mask_among_outputs_with_fewer_places_in_a_chunk_ends_the_run(strategy):
    data = torch.randn(48, 6, generator=torch.Generator().manual_seed(0)).clamp(-2.0, 2.0)
    mine = replace(program("plain", partial(torch.optim.SGD, lr=0.1), 12), model=Masked, loss=of_masked)
    mine = replace(mine, sampler=lambda dataset, epoch, generator: range(len(dataset)))
    mine = replace(mine, train_data=lambda: TensorDataset(data, data))
    graph = graph_of(mine)
    assert (graph.indivisible, graph.unproved) == ("", "")
    plan = make_plan(mine, graph, strategy, 2, 0, chunks=2)
    play(mine, graph, plan, 3)
    data[33] = 60.0
    with pytest.raises(ProgramError, match=r"not a mean over samples: it divides .* which is 15 for 6 samples here"):
        play(mine, graph, plan, 3)


def test_what_is_computed_outside_a_chunk_is_not_checked():
    assert CheckedLoss(weighted)(outputs(), labels(0, 1)).isfinite()


def test_a_list_with_an_entry_for_each_sample_is_not_taken_apart_by_rows():
    def mean(made: Any, wanted: Any) -> torch.Tensor:
        return torch.stack([F.mse_loss(row, each["box"]) for row, each in zip(made, wanted, strict=True)]).mean()

    counted = Counted(mean)
    boxes = [{"box": torch.arange(CLASSES) * float(index)} for index in range(CLASSES)]  # as many as a box has numbers
    called(CheckedLoss(counted), outputs(CLASSES), boxes)
    assert counted.calls == 1


def test_outputs_in_a_list_with_an_entry_for_each_sample_are_not_taken_apart_by_rows():
    def mean(made: Any, wanted: Any) -> torch.Tensor:
        return torch.stack([F.mse_loss(each["box"], wanted[place]) for place, each in enumerate(made)]).mean()

    counted = Counted(mean)
    made = [{"box": row} for row in outputs(CLASSES)]
    called(CheckedLoss(counted), made, torch.ones(CLASSES, CLASSES, dtype=torch.float64))
    assert counted.calls == 1


def of_boxes(made: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """A mean over pictures of the mean over the boxes of each; the first column says whose a box is."""
    whose = (boxes[:, :1] == torch.arange(len(made))).to(made.dtype)
    each = (whose @ made - boxes[:, 1:]).square().mean(1)
    return (each @ whose / whose.sum(0).clamp(min=1)).mean()


def test_boxes_that_are_by_chance_as_many_as_pictures_are_no_targets_of_samples():
    made, boxes = outputs(), torch.rand(12, 1 + CLASSES, dtype=torch.float64)
    boxes[:, 0] = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3])
    checked = CheckedLoss(of_boxes)
    for some in (boxes, boxes[:SIZE]):
        assert torch.equal(called(checked, made, some, SIZE), of_boxes(made, some))
    with pytest.raises(ProgramError, match="not a mean over samples"):
        called(CheckedLoss(of_boxes), made, boxes[:SIZE], SIZE)  # so this shows something
