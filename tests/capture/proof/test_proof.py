"""What the proof says of programs whose samples see each other, or do not, in ways that few batches show."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo import CLASSES, ZOO, Net, rows

from nfold.capture.batches.example import Example
from nfold.capture.proof.conditions import broken
from nfold.capture.proof.prove import Proof, prove

WIDTH, LENGTH = 12, 6


class Through(nn.Module):
    """A linear layer, and then what a test computes of its outputs and inputs."""

    def __init__(self, then):
        super().__init__()
        self.layer, self.then = nn.Linear(WIDTH, CLASSES), then

    def forward(self, x):
        return self.then(self.layer(x), x)


def of_forward(then, loss=F.cross_entropy) -> Proof:
    net = Net(lambda: Through(then), rows, loss=loss)
    return prove(net.model(), loss, net.example())


def of_loss(loss) -> Proof:
    net = Net(lambda: nn.Linear(WIDTH, CLASSES), rows, loss=loss)
    return prove(net.model(), loss, net.example())


WITHIN = {
    "length": lambda out, x: out + torch.randn(len(x), CLASSES, dtype=x.dtype),
    "size": lambda out, x: out.view(x.shape[0], CLASSES, 1).flatten(1) * 2,
    "time first": lambda out, x: out.view(-1, 1, CLASSES).transpose(0, 1).reshape(-1, CLASSES),
    "two views": lambda out, x: sum(torch.cat([out, out + 1]).chunk(2)),
    "own place": lambda out, x: out + out[torch.arange(len(out)), torch.zeros(len(out), dtype=torch.long)][:, None],
    "largest of its own": lambda out, x: out / out.abs().amax(1, keepdim=True).clamp(min=3.0),
    "layer norm": lambda out, x: F.layer_norm(out, (CLASSES,)),
    "instance norm": lambda out, x: F.instance_norm(out.view(len(out), 1, CLASSES)).flatten(1),
    "batch norm": lambda out, x: F.batch_norm(out, None, None, training=True),
    "frozen batch norm, twice": lambda out, x: FROZEN(FROZEN(out)),
    "attention": lambda out, x: F.scaled_dot_product_attention(*[x.view(-1, 2, LENGTH, 1)] * 3).sum((1, 2)) + out,
    "dropout": lambda out, x: F.dropout(out, 0.5),
    "einsum": lambda out, x: torch.einsum("bi,bj->bij", out, x).sum(2),
    "zeros": lambda out, x: torch.cat([out[:, :1], torch.zeros(len(out), CLASSES - 1, dtype=x.dtype)], 1),
    "in place": lambda out, x: _written(out),
    "only logged": lambda out, x: (out.mean(0), out)[1],
    "where": lambda out, x: torch.where(x[:, :CLASSES] > 0, out, -out),
    "sorted within": lambda out, x: out.sort(1).values,
    "gather": lambda out, x: out.gather(1, out.argsort(1)),
    "one hot": lambda out, x: out + F.one_hot(out.argmax(1), CLASSES),
    "flattened table": lambda out, x: F.embedding(out.argmax(1), torch.eye(CLASSES, dtype=x.dtype)) + out,
}


FROZEN = nn.BatchNorm1d(CLASSES, dtype=torch.float64).eval()


def _written(out):
    found = torch.zeros(len(out), CLASSES, dtype=out.dtype)
    found[:, 1:] = out[:, 1:]
    return found


@pytest.mark.parametrize("name", WITHIN)
def test_samples_that_are_computed_by_themselves_are_proved(name):
    proof = of_forward(WITHIN[name])
    assert (proof.verdict, proof.reason) == ("proved", "")


ACROSS = {
    "capped by the batch": lambda out, x: out / out.abs().max().clamp(min=3.0),
    "centred": lambda out, x: out - out.mean(0),
    "a tiny part": lambda out, x: out + 1e-12 * out.std(),
    "softmax over samples": lambda out, x: out.softmax(0),
    "shuffled": lambda out, x: out + out[torch.randperm(len(out))],
    "turned": lambda out, x: out + out.flip(0),
    "rolled": lambda out, x: out + out.roll(1, 0),
    "sums so far": lambda out, x: out.cumsum(0),
    "the first": lambda out, x: out + out[0],
    "the next": lambda out, x: out + F.pad(out[1:], (0, 0, 0, 1)),
    "every pair": lambda out, x: (out @ out.t()).sum(1, keepdim=True) + out,
    "distances": lambda out, x: out + torch.cdist(out, out).sum(1, keepdim=True),
    "attention over samples": lambda out, x: F.scaled_dot_product_attention(out, out, out),
    "by their number": lambda out, x: out * len(out),
    "by their number's root": lambda out, x: out / math.sqrt(2) / (x.shape[0] ** 0.5),
    "written by": lambda out, x: _shared_buffer(out),
    "place in a table": lambda out, x: out + TABLE[: len(x)],
    "place by a mask": lambda out, x: out.masked_fill((torch.arange(40)[: len(x)] == 0)[:, None], 0.0),
    "one of them cleared": lambda out, x: _cleared(out.clone()),
    "one of a mask cleared": lambda out, x: out * _cleared(torch.ones(len(out), 1, dtype=out.dtype)),
    "some cleared": lambda out, x: out * _cleared(torch.ones(len(out), 1, dtype=out.dtype), slice(2)),
    "a hidden mean": lambda out, x: out - _ROWS.index_select(0, torch.tensor([0])) * _written_to(_ROWS, out),
    "a mean looked up": lambda out, x: out - out.mean(0).index_select(0, torch.arange(CLASSES)),
    "far from the mean": lambda out, x: -torch.cdist(out, out.mean(0) * TABLE[:CLASSES]),
    "masked by a mean": lambda out, x: F.batch_norm(out, None, None, weight=out.square().mean(0), training=True),
    "its place times": lambda out, x: torch.arange(len(x), dtype=out.dtype)[:, None] @ TABLE[:1],
    "their number made a tensor": lambda out, x: torch.scalar_tensor(len(x), dtype=out.dtype) * out,
    "their number in a range": lambda out, x: torch.arange(len(x), len(x) + CLASSES) * out,
    "by norms over samples": lambda out, x: out.renorm(2, 1, 0.5),
    "searched in others": lambda out, x: out * torch.bucketize(x[:, 0].contiguous(), x[:, 1].contiguous())[:, None],
    "another's name": lambda out, x: centred_gelu(out),
    "running mean": lambda out, x: _batch_normed(out)[0] + _batch_normed(out)[1],
    "product of covariances": lambda out, x: out + (out.t() @ out).softmax(1) @ TABLE[0],
}
TABLE = torch.randn(40, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
_ROWS = torch.ones(3, CLASSES, dtype=torch.float64)


def _cleared(rows, which=0):
    rows[which] = 0
    return rows


def _written_to(rows, out):
    rows[0] = out.mean(0).detach()
    return rows[0]


def _batch_normed(out):
    mean, variance = torch.zeros(CLASSES, dtype=out.dtype), torch.ones(CLASSES, dtype=out.dtype)
    return F.batch_norm(out, mean, variance, training=True), mean


@torch.library.custom_op("nfold_tests::gelu", mutates_args=())
def centred_gelu(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


centred_gelu.register_fake(torch.empty_like)


def _shared_buffer(out):
    mean = torch.zeros(CLASSES, dtype=out.dtype)
    mean.copy_(out.mean(0))
    return out * mean


@pytest.mark.parametrize("name", ACROSS)
def test_samples_that_see_each_other_are_never_proved(name):
    assert of_forward(ACROSS[name]).verdict != "proved"


@pytest.mark.parametrize("name", ["capped by the batch", "centred", "a tiny part", "softmax over samples", "shuffled"])
def test_a_mixture_is_named_with_the_users_line(name):
    proof = of_forward(ACROSS[name])
    assert proof.verdict == "mixed"
    assert proof.reason.startswith("an output of the model depends on the other samples of its batch")
    assert f"{__file__}, line " in proof.reason


MEANS = {
    "mean": lambda out, y: F.cross_entropy(out, y),
    "mean of each": lambda out, y: F.cross_entropy(out, y, reduction="none").mean(),
    "sum over their number": lambda out, y: F.cross_entropy(out, y, reduction="sum") / len(y),
    "times one over it": lambda out, y: F.cross_entropy(out, y, reduction="none").sum() * (1 / y.shape[0]),
    "two means": lambda out, y: F.cross_entropy(out, y) + 0.1 * out.square().mean() - 2,
    "mean squared": lambda out, y: F.mse_loss(out, out.detach() + 1),
    "weighted elements": lambda out, y: (out * torch.arange(CLASSES)).mean(),
    "margin": lambda out, y: F.multi_margin_loss(out, y),
    "smoothed": lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1),
    "product": lambda out, y: 3 * (out.mean(0) * torch.arange(CLASSES)).sum(),
    "of another type": lambda out, y: F.cross_entropy(out, y).float(),
    "one right answer": lambda out, y: F.cross_entropy(out, torch.zeros(len(out), dtype=torch.long)),
    "mask of all": lambda out, y: (F.cross_entropy(out, y, reduction="none") * (y >= 0)).sum() / (y >= 0).sum(),
}


@pytest.mark.parametrize("name", MEANS)
def test_means_over_samples_are_proved(name):
    proof = of_loss(MEANS[name])
    assert (proof.verdict, proof.reason) == ("proved", "")


NO_MEANS = {
    "sum": lambda out, y: F.cross_entropy(out, y, reduction="sum"),
    "root": lambda out, y: F.mse_loss(out, out.detach() + 1).sqrt(),
    "largest": lambda out, y: F.cross_entropy(out, y, reduction="none").max(),
    "means times means": lambda out, y: F.cross_entropy(out, y) + 1e-9 * (out.mean(0) * out.mean(0)).sum(),
    "normalised": lambda out, y: (out[:, 0] * (y.double() - y.double().mean())).mean(),
    "class weights": lambda out, y: F.cross_entropy(out, y, weight=torch.arange(1.0, CLASSES + 1).to(out.dtype)),
    "contrast": lambda out, y: F.cross_entropy(out @ out.t(), torch.arange(len(out))),
    "mask": lambda out, y: F.cross_entropy(out[y > 0], y[y > 0]),
    "weights of a batch": lambda out, y: (
        (F.cross_entropy(out, y, reduction="none") * out[:, 0]).sum() / out[:, 0].sum()
    ),
    "other counts": lambda out, y: (F.cross_entropy(out, y, reduction="none") * (y > 0)).sum() / (y > 0).sum(),
}


def test_gradients_divided_by_how_often_a_word_comes_are_mixed():
    table = nn.Embedding(CLASSES, CLASSES, scale_grad_by_freq=True, dtype=torch.float64)
    assert of_forward(lambda out, x: out + table(x.argmax(1) % CLASSES)).verdict == "mixed"


@pytest.mark.parametrize("name", NO_MEANS)
def test_what_is_no_mean_over_samples_is_never_proved(name):
    proof = of_loss(NO_MEANS[name])
    assert proof.verdict != "proved"
    if proof.verdict == "mixed":
        assert proof.reason.startswith("the loss is not a mean over samples: it ")


def test_a_loss_that_leaves_targets_out_is_proved_while_each_sample_has_as_many():
    ((condition,),) = (of_loss(lambda out, y: F.cross_entropy(out, y)).conditions,)
    whole, missing = torch.tensor([1, 2, 3, 0]), torch.tensor([1, -100, 3, 0])
    assert broken([condition], (torch.zeros(4, WIDTH), whole), 4) == ""
    assert "which is 3 for 4 samples here and 4 elsewhere" in broken([condition], (torch.zeros(4, WIDTH), missing), 4)


def masked(out, y):
    made, mask = out
    return (F.cross_entropy(made, y, reduction="none") * mask.sum(1)).sum() / mask.sum()


def shuffled(x, count=3):
    """Return `count` ones in a random place of each row."""
    return (torch.rand(len(x), WIDTH).argsort(1) < count).to(x.dtype)


def test_a_mask_that_the_model_draws_is_proved_while_each_sample_has_as_many():
    """As masked autoencoders do."""
    before = torch.get_rng_state()
    proof = of_forward(lambda out, x: (out, shuffled(x)), masked)
    assert torch.equal(before, torch.get_rng_state())
    assert (proof.verdict, proof.reason) == ("proved", "")
    rows_of, outputs = torch.zeros(4, WIDTH), torch.zeros(4, CLASSES)
    given = (rows_of, torch.zeros(4, dtype=torch.long), (outputs, shuffled(rows_of)))
    assert broken(proof.conditions, given, 4) == ""
    given[2][1][2] = 1.0
    assert "which is 21 for 4 samples here and 12 elsewhere" in broken(proof.conditions, given, 4)


@pytest.mark.parametrize(
    ("then", "loss"),
    [
        (lambda out, x: (out, (x > 0).double()), masked),
        (lambda out, x: (out, (torch.rand_like(x) > 0.5).double()), masked),
        (lambda out, x: (out, out.sigmoid()), masked),
        (lambda out, x: (out, shuffled(x) * (x > 0).sum()), masked),
    ],
    ids=["of inputs", "drawn", "with a gradient", "of the batch"],
)
def test_a_mask_of_which_samples_have_unlike_many_is_mixed(then, loss):
    assert of_forward(then, loss).verdict == "mixed"


def test_shifted_labels_that_always_leave_one_out_are_proved():
    """As language models do: the last word of each sentence has no next one."""

    def loss(out, y):
        words = F.pad(y[:, None].expand(-1, CLASSES), (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(out[:, :, None] * torch.ones(CLASSES, dtype=out.dtype), words)

    assert of_loss(loss).verdict == "proved"


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.round()

    @staticmethod
    def backward(context, gradient):
        return gradient / gradient.abs().max()


straight = Straight.apply


def hooked_node(out):
    out.grad_fn.register_hook(lambda found, _: tuple(each if each is None else each - each.mean(0) for each in found))
    return out


def hooked_edge(out):
    torch.autograd.graph.get_gradient_edge(out).node.register_prehook(lambda given: given)
    return out


@pytest.mark.parametrize("function", [hooked_node, hooked_edge])
def test_a_hook_on_a_node_of_the_backward_pass_is_not_proved(function):
    proof = of_forward(lambda out, x: function(out))
    assert (proof.verdict, proof.reason[:25]) == ("unknown", "what it does with grad_fn")


@pytest.mark.parametrize("function", [lambda out: Straight.apply(out), straight], ids=["by its class", "taken before"])
def test_what_forward_does_not_show_is_not_proved(function):
    proof = of_forward(lambda out, x: function(out))
    assert (proof.verdict, proof.reason) == (
        "unknown",
        "the backward of Straight is the program's own, and may look at the whole batch",
    )


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (lambda out, x: out * 2 if x.sum() > 0 else out, "it decides on values of tensors"),
        (lambda out, x: out * 2 if len(x) > 8 else out, "it decides by the number of samples"),
        (lambda out, x: torch.from_numpy(out.detach().numpy()), "it cannot be followed"),
    ],
)
def test_what_cannot_be_followed_is_told_with_its_line(then, words):
    proof = of_forward(then)
    assert proof.verdict == "unknown"
    assert words in proof.reason
    assert f"{__file__}, line " in proof.reason


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (lambda out, x: out - torch.quantile(out, 0.5, dim=0), "computes quantile over the samples"),
        (lambda out, x: out - out.nanquantile(0.5), "computes nanquantile over the samples"),
        (lambda out, x: out[out[:, 0].argsort()], "computes argsort over the samples"),
        (lambda out, x: out.sort(0).values, "computes sort over the samples"),
        (lambda out, x: out - out.median(0).values, "takes a median over the samples"),
        (lambda out, x: out - out.kthvalue(2, 0).values, "takes the k-th value over the samples"),
        (lambda out, x: out - out.topk(1, 0).values, "computes topk over the samples"),
    ],
)
def test_what_orders_samples_is_called_as_the_program_calls_it(then, words):
    assert words in of_forward(then).reason


@pytest.mark.parametrize(
    ("decides", "largest", "verdict"),
    [
        (lambda size: size > 8, 64, "mixed"),
        (lambda size: size > 8, 0, "unknown"),
        (lambda size: size > 8, 8, "unknown"),
        (lambda size: size <= 512, 64, "proved"),
        (lambda size: size <= 512, 5000, "mixed"),
        (lambda size: size == 1, 64, "proved"),  # one alone is tried instead
        (lambda size: size in (5, 64), 64, "mixed"),
        (lambda size: size % 2 == 0, 64, "mixed"),
        (lambda size: size == 4000, 4000, "mixed"),
    ],
)
def test_a_decision_by_the_number_of_samples_matters_where_chunks_go_another_way(decides, largest, verdict):
    net = Net(lambda: Through(lambda out, x: out * 2 if decides(len(x)) else out), rows)
    proof = prove(net.model(), net.loss, replace(net.example(), largest=largest))
    assert proof.verdict == verdict
    assert (f"{__file__}, line " in proof.reason) == (verdict != "proved")


def test_following_draws_no_random_numbers():
    net, before = ZOO["residual"], torch.get_rng_state()
    model = net.model()
    torch.set_rng_state(before)
    prove(model, net.loss, net.example())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_is_proved(name):
    net = ZOO[name]
    assert prove(net.model(), net.loss, net.example()).reason == ""


def test_data_that_do_not_count_samples_are_not_guessed_at():
    example = Example(make=lambda size, which: (torch.zeros(2, size, WIDTH), torch.zeros(size, dtype=torch.long)))
    assert prove(nn.Linear(WIDTH, CLASSES), lambda out, y: F.cross_entropy(out[0], y), example).verdict == "unknown"
