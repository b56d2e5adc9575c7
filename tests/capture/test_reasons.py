"""Why a batch is not cut is told by the likely cause: padding, what a module keeps, a loss that is no mean."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, Net, rows

from nfold.capture.capture import capture
from nfold.capture.example_batches import sample_batches
from nfold.errors import ProgramError

WORDS = 11


class Sentences(torch.utils.data.Dataset):
    """Words of 2 to 7 places, and a class."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.arange(2 + index * 5 % 6) * (index + 1) % (WORDS - 1) + 1, index % 3


def padded(items):
    words = nn.utils.rnn.pad_sequence([words for words, _ in items], batch_first=True)
    return words, torch.tensor([kind for _, kind in items])


def ragged(items):
    """Words of all sentences one after another, and how many each has: nothing is padded."""
    words = [words for words, _ in items]
    starts = torch.tensor([0, *(len(each) for each in words[:-1])]).cumsum(0)
    return {"words": torch.cat(words), "starts": starts}, torch.tensor([kind for _, kind in items])


class Attention(nn.Module):
    """Looks at every place, padded ones included, unless it is masked."""

    def __init__(self, masks):
        super().__init__()
        self.embedding, self.last, self.masks = nn.Embedding(WORDS, 8), nn.Linear(8, 3), masks
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, words):
        x, padding = self.embedding(words), words == 0
        found, _ = self.attention(x, x, x, key_padding_mask=padding if self.masks else None)
        return self.last(found[:, 0])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(WORDS, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        return self.last(self.bag(inputs["words"], inputs["starts"]))


def of_sentences(model, collate, loss=F.cross_entropy):
    torch.manual_seed(0)
    return capture(model(), loss, sample_batches(Sentences(), collate=collate), rebuild=model).graph


def test_attention_to_padded_places_is_told_as_that_and_not_as_a_loss_that_is_no_mean():
    reason = of_sentences(lambda: Attention(masks=False), padded).indivisible
    assert reason.startswith(
        "an output of the model depends on the other samples of its batch, most likely on the length"
    )
    assert "padded places without a mask" in reason


def test_a_loss_that_is_no_mean_is_told_as_that_where_batches_are_padded():
    def total(outputs, target):
        return F.cross_entropy(outputs, target, reduction="sum")

    reason = of_sentences(lambda: Attention(masks=True), padded, total).indivisible
    assert "not a mean over samples" in reason
    assert "padded" not in reason


def test_what_is_not_padded_is_not_said_to_be():
    told = " ".join(note for note in of_sentences(Bag, ragged).notes)
    assert "its batches are of unlike shapes" in told
    assert "are padded" not in told


class Experts(nn.Module):
    """A mixture of two experts, which keeps how unevenly they are used."""

    def __init__(self, keeps):
        super().__init__()
        self.gate, self.experts, self.keeps = (
            nn.Linear(12, 2),
            nn.ModuleList([nn.Linear(12, 12) for _ in range(2)]),
            keeps,
        )
        self.aux, self.calls = None, 0

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        if self.keeps == "aux":
            self.aux = (shares**2).sum(1)
        else:
            self.calls += 1
        return sum(shares[:, index, None] * expert(x) for index, expert in enumerate(self.experts))


class Mixture(nn.Module):
    def __init__(self, keeps):
        super().__init__()
        self.moe, self.last = Experts(keeps), nn.Linear(12, 5)

    def forward(self, x):
        out = self.last(self.moe(x))
        return out if self.moe.aux is None else out + 0.01 * self.moe.aux[:, None]


@pytest.mark.parametrize(
    ("keeps", "told"),
    [
        (
            "aux",
            "forward keeps what it has computed in moe.aux, of which only that of the last chunk",
        ),
        ("calls", "forward changes moe.calls, so its result depends on the forward passes before it"),
    ],
)
def test_what_a_module_keeps_for_the_loss_is_told_from_what_it_carries_over(keeps, told):
    net = Net(lambda: Mixture(keeps), rows)
    graph = capture(net.model(), net.loss, net.example(), rebuild=net.model).graph
    assert graph.indivisible.startswith(told)
    assert (keeps == "aux") == ("before forward returns: moe.aux = None. " in graph.indivisible)


def test_a_figure_that_is_only_looked_at_forbids_no_chunks():
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.calls = nn.Linear(12, 5), 0

        def forward(self, x):
            out = self.first(x)
            self.norm, self.shape, self.size = out.detach().norm(), x.shape, len(x)
            return out

    class Counting(Watched):
        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    def why(kind):
        net = Net(kind, rows)
        return capture(net.model(), net.loss, net.example(), rebuild=net.model).graph.indivisible

    assert why(Watched) == ""
    assert "so its result depends on the forward passes before it" in why(Counting)


def test_features_that_a_hook_keeps_by_name_are_to_be_cleared():
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last, self.kept = nn.Linear(12, 12), nn.Linear(12, 5), {}
            self.first.register_forward_hook(lambda module, inputs, output: self.kept.update(first=output))

        def forward(self, x):
            self.first(x)
            return self.last(self.kept["first"])

    net = Net(Hooked, rows)
    graph = capture(net.model(), net.loss, net.example(), rebuild=net.model).graph
    assert "before forward returns: kept.clear(). " in graph.indivisible


def test_a_batch_can_be_cut_once_forward_keeps_nothing_as_it_is_told():
    class Forgetting(Mixture):
        def forward(self, x):
            out = super().forward(x)
            self.moe.aux = None
            return out

    assert captured(lambda: Forgetting("aux")).indivisible == ""


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.last(self.middle(torch.tanh(self.first(x))))


def captured(model):
    net = Net(model, rows)
    return capture(net.model(), net.loss, net.example(), rebuild=net.model).graph


class ByList(Mixing):
    def middle(self, h):
        mean = sum(h.detach()[:, 0].tolist()) / len(h)
        return h * (1 + mean)


class ByPlace(Mixing):
    def middle(self, h):
        return torch.stack([row * (1 + 0.1 * index) for index, row in enumerate(h)])


class ByOrder(Mixing):
    def middle(self, h):
        order = h.detach()[:, 0].numpy().argsort().argsort() / len(h)
        return h + torch.from_numpy(order).to(h)[:, None]


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (ByList, "return h * (1 + mean)"),
        (ByPlace, "return torch.stack("),
        (ByOrder, "return h + torch.from_numpy(order)"),
    ],
)
def test_the_line_is_named_at_which_samples_see_each_other(model, line):
    reason = captured(model).indivisible
    assert f"they differ first at `{line}" in reason
    assert "(test_reasons.py:" in reason


class Mistaken(Mixing):
    def middle(self, h):
        return self.head(h)


def test_an_error_that_no_shape_is_the_cause_of_is_not_told_as_one():
    with pytest.raises(ProgramError, match=r"no attribute 'head'.*Mend forward: it fails on one device, too") as told:
        captured(Mistaken)
    assert "the batch comes first" not in str(told.value)


def test_sparse_items_are_told_without_what_torch_advises():
    x = torch.eye(8)
    data = [(row.to_sparse(), 0) for row in x]
    with pytest.raises(ProgramError, match=r"they hold sparse tensors\. They are .*Give dense rows") as told:
        sample_batches(data).batch(4, 0)
    assert "collate_fn" not in str(told.value)
