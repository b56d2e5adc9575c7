"""A program that asks for autocast: module and loss carry it wherever they are called."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.capture.capture import capture_program
from nfold.capture.program.autocast import under_autocast, without_autocast
from nfold.capture.program.building import build_model
from nfold.errors import ProgramError
from nfold.program import Program

CPU = torch.device("cpu")


def data():
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(32, 6, generator=generator), torch.randint(0, 3, (32,), generator=generator))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def program(model=net, loss=F.cross_entropy, autocast="bfloat16") -> Program:
    return Program(
        model=model, loss=loss, optimizer=lambda params: torch.optim.SGD(params, lr=0.1), train_data=data,
        batch_size=8, autocast=autocast,
    )  # fmt: skip


def test_a_program_that_does_not_ask_is_left_alone():
    plain = program(autocast=None)
    assert under_autocast(plain) is plain


def test_the_module_keeps_its_names_its_weights_and_its_copies():
    cast = under_autocast(program())
    model, plain = build_model(cast, CPU), build_model(program(autocast=None), CPU)
    inputs = torch.ones(2, 6)
    assert model(inputs).dtype == copy.deepcopy(model)(inputs).dtype == torch.bfloat16
    assert plain(inputs).dtype == torch.float32
    assert (type(model).__name__, type(model).__module__) == ("Sequential", nn.Sequential.__module__)
    assert isinstance(model, nn.Sequential)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.state_dict().items())
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_ends_when_the_model_raises():
    model = build_model(under_autocast(program()), CPU)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 7))
    assert not torch.is_autocast_enabled("cpu")


def test_a_module_can_be_called_without_it_and_has_it_again():
    model = build_model(under_autocast(program()), CPU)
    with without_autocast(model):
        assert model(torch.ones(2, 6)).dtype == torch.float32
    assert model(torch.ones(2, 6)).dtype == torch.bfloat16
    plain = net()
    with without_autocast(plain):
        assert type(plain) is nn.Sequential


def test_the_loss_computes_under_it_by_the_name_of_the_users():
    def product(outputs, targets):
        del targets
        return (outputs @ outputs.t()).mean()

    loss = under_autocast(program(loss=product)).loss
    assert loss.__name__ == "product"
    assert loss(torch.ones(2, 3), torch.zeros(2)).dtype == torch.bfloat16


def test_a_loss_that_keeps_something_is_still_found():
    calls = []

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, outputs, targets):
            self.calls += 1
            calls.append(self.calls)
            return F.cross_entropy(outputs, targets)

    mine = under_autocast(program(loss=Counting()))
    with pytest.raises(ProgramError, match="the loss changes calls"):
        capture_program(build_model(mine, CPU), mine, mine.train_data())
    assert calls


def test_a_class_that_cannot_be_derived_from_is_told_of():
    class Closed(nn.Linear):
        def __init_subclass__(cls, *, permit, **kwargs):
            super().__init_subclass__(**kwargs)

    with pytest.raises(ProgramError, match=r"cannot wrap a Closed.*with torch.autocast"):
        build_model(under_autocast(program(lambda: Closed(6, 3))), CPU)


def test_autocast_that_keeps_casts_is_one_operator_and_autocast_that_keeps_none_is_cut():
    class Inside(nn.Module):
        def __init__(self, keeps: bool) -> None:
            super().__init__()
            self.body, self.keeps = net(), keeps

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=self.keeps):
                return self.body(x)

    counts = []
    for keeps in (True, False):
        mine = program(lambda keeps=keeps: Inside(keeps), autocast=None)
        counts.append(len(capture_program(build_model(mine, CPU), mine, data()).graph.operators))
    assert counts == [2, 4], "body and loss; linear, relu, linear and loss"


@pytest.mark.parametrize("wish", ["float16", "bf16", torch.bfloat16, True])
def test_other_types_are_refused(wish):
    with pytest.raises(ProgramError, match="must be 'bfloat16'"):
        program(autocast=wish)


VOCABULARY = 40


def sentences():
    """5 to 60 words each; the places behind them are to be ignored."""
    generator = torch.Generator().manual_seed(5)
    words, following = torch.randint(0, VOCABULARY, (2, 64, 60), generator=generator)
    lengths = torch.randint(5, 61, (64, 1), generator=generator)
    return TensorDataset(words, following.where(torch.arange(60) < lengths, -100))


class Words(nn.Module):
    """Computes with weights of one type on activations of another, if asked; only autocast makes them equal."""

    def __init__(self, activations: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY)
        self.activations = activations

    def forward(self, words):
        return self.head(self.embed(words).to(self.activations))


def each_word(outputs, targets):
    """A mean over words, not over sentences."""
    return F.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=-100)


def slightly_weighted(outputs, targets):
    weight = 1.0 + 0.5 * (torch.arange(VOCABULARY) % 2)
    return F.cross_entropy(outputs[:, 0], targets[:, 0], weight=weight.to(outputs.dtype))


def each_place(outputs, targets):
    """Places behind the end count as well."""
    return F.cross_entropy(outputs.transpose(1, 2), targets.clamp(min=0))


KINDS = {
    "autocast": (Words, "bfloat16"),
    "autocast that it needs": (lambda: Words(torch.bfloat16), "bfloat16"),
    "weights of half precision": (lambda: Words(torch.bfloat16).bfloat16(), None),
}


def why_not_cut(kind, loss) -> str:
    model, autocast = KINDS[kind]
    mine = under_autocast(replace(program(model, loss, autocast), train_data=sentences))
    return capture_program(build_model(mine, CPU), mine, sentences()).graph.indivisible


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [each_word, slightly_weighted])
def test_coarse_types_hide_no_loss_that_is_nearly_a_mean(kind, loss):
    assert why_not_cut(kind, loss).startswith("the loss is not a mean over samples: ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_that_is_computed_coarsely_is_one(kind):
    assert why_not_cut(kind, each_place) == ""


def test_autocast_hides_no_output_that_depends_slightly_on_other_samples():
    class Mixing(Words):
        def forward(self, words):
            found = super().forward(words)
            return found + 0.02 * found.mean(0)

    mine = under_autocast(replace(program(Mixing, each_place), train_data=sentences))
    reason = capture_program(build_model(mine, CPU), mine, sentences()).graph.indivisible
    assert reason.startswith("an output of the model depends on the other samples of its batch")
