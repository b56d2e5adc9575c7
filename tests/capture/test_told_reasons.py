"""What keeps a program whole is told once, in its own words and with its own line."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture
from nfold.capture.side_effects.changed_by_forward import line_that_changes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch would have its users leave it

    @torch.jit.script
    def scale(x: torch.Tensor, factor: int):
        return torch.sqrt(torch.tensor(x.size(-1) * factor, dtype=torch.float))


def made(size, which):
    generator = torch.Generator().manual_seed(which)
    return torch.randn(size, 6, generator=generator), torch.randn(size, 1, generator=generator)


def graph_of(model, loss=F.mse_loss):
    torch.manual_seed(0)
    return capture(model(), loss, Example(make=made, largest=16)).graph


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)


class Scaled(Net):
    """Attention of transformers is scaled so."""

    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden / scale(hidden, 2))


class Physics(Net):
    def forward(self, x):
        x = x.requires_grad_(True)
        value = self.last(self.first(x).tanh())
        slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
        return value + slope[:, :1]


def physical(outputs, targets):
    value, x = outputs
    slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
    return F.mse_loss(value, targets) + slope.square().mean()


class Given(Net):
    def forward(self, x):
        x = x.requires_grad_(True)
        return self.last(self.first(x).tanh()), x


def test_scripted_functions_that_make_tensors_are_cut_and_nothing_is_told():
    graph = graph_of(Scaled)
    assert len(graph.operators) > 4
    assert graph.notes == ()


class Unexported(Net):
    """What export cannot follow, since values decide."""

    def forward(self, x):
        hidden = self.first(x)
        hidden = hidden / scale(hidden, 2)
        if float(hidden.detach().sum()) > 1e9:
            hidden = hidden * 2
        return self.last(hidden)


def test_a_scripted_function_that_stays_whole_is_told_as_that():
    (note,) = [note for note in graph_of(Unexported).notes if "scale(" in note]
    assert "calls a function of torch.jit.script, into which nobody can look" in note
    assert note.endswith("Without @torch.jit.script it would be followed")
    assert "Standin" not in note


@pytest.mark.parametrize(("model", "loss"), [(Physics, F.mse_loss), (Given, physical)])
def test_a_program_that_takes_a_gradient_is_told_in_one_sentence_with_its_line(model, loss):
    (note,) = graph_of(model, loss).notes
    assert note.startswith(f"the program takes a gradient itself ({__file__}, line ")
    assert "slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0])" in note
    assert note.endswith("the whole model is one operator, so only its batch can be spread over ranks")


class Centre(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(6))

    def forward(self, x):
        with torch.no_grad():
            self.centre.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.centre


class Centred(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(6))

    def forward(self, x):
        hidden = self.first(x)
        self.centre = 0.9 * self.centre + 0.1 * hidden.detach().mean(0)
        return self.last(hidden - self.centre)


class CentredApart(Net):
    def __init__(self):
        super().__init__()
        self.middle = Centre()

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


def test_a_model_that_changes_its_own_buffer_is_told_with_its_line_and_what_cuts_it():
    graph = graph_of(Centred)
    kept, whole = graph.notes
    line = "`self.centre = 0.9 * self.centre + 0.1 * hidden.detach().mean(0)` (test_told_reasons.py:"
    assert kept.startswith(f"the model is kept whole: forward changes centre of the model itself in {line}")
    assert whole == "the whole model is one operator, and its batch cannot be cut: it trains on one worker"
    assert [operator.name for operator in graph_of(CentredApart).operators] == ["first", "middle", "last", "loss"]


@pytest.mark.parametrize(
    ("text", "is_write"),
    [
        ("self.centre += 1", True),
        ("self.centre[0] = 1", True),
        ("self.centre.data.mul_(0.9)", True),
        ("if self.centre == 1:", False),
        ("x = self.centre * 2", False),
        ("self.centre_of = 1", False),
    ],
)
def test_the_line_that_changes_something_is_found_in_the_text(text, is_write, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        f"from torch import nn\nclass Mine(nn.Module):\n    def forward(self, x):\n        {text}\n        y=1\n"
    )
    script.write_text(script.read_text().replace("1:\n", "1: pass\n"))
    namespace: dict = {"__name__": "mine"}
    exec(compile(script.read_text(), str(script), "exec"), namespace)
    assert line_that_changes(namespace["Mine"](), "centre") == (f"`{text}` (mine.py:4)" if is_write else "")


class Transformed(Net):
    def forward(self, x):
        return self.last(torch.func.vmap(torch.func.jacrev(lambda row: self.first(row).tanh().sum()))(x))


def test_a_transformation_of_torch_func_is_told_as_that():
    notes = " ".join(graph_of(Transformed).notes)
    assert "calls torch.func (vmap, grad, jacrev ..), into which nobody can look" in notes
    assert "Proxy" not in notes
    assert "nfold" not in notes


class Straight(Net):
    def forward(self, x):
        return self.last(self.first(x))


class Drawing(Net):
    checks: bool | None = None

    def forward(self, x):
        hidden = self.first(x)
        drawn = torch.distributions.Normal(hidden, hidden.exp(), validate_args=self.checks).rsample()
        return self.last(drawn)


class DrawingUnchecked(Drawing):
    checks = False


def test_arguments_that_distributions_check_are_told_with_how_to_leave_it(monkeypatch):
    # torch.compile switches the check off for good, in whichever test it comes first.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    graph = graph_of(Drawing)
    advice = "torch.distributions checks its arguments: with validate_args=False it"
    assert graph.unproved.endswith(f"; {advice} can be followed")
    (note,) = graph.notes
    assert note.endswith(f"{advice} would be followed")
    unchecked = graph_of(DrawingUnchecked)
    assert (unchecked.unproved, unchecked.notes) == ("", ())


def test_a_loop_over_samples_is_told_with_its_line():
    def each(outputs, targets):
        return sum(F.mse_loss(output, target) for output, target in zip(outputs, targets, strict=True)) / len(outputs)

    unproved = graph_of(Straight, each).unproved
    assert unproved.startswith("Python goes through samples one by one, or takes their number as a plain one (")
    assert "test_told_reasons.py, line " in unproved
    assert "for output, target in zip(outputs" in unproved


class Counted(Net):
    """Takes a number out of a tensor, and goes round as often."""

    def forward(self, x):
        hidden = self.first(x)
        times = int(hidden.detach()[0, 0] > 9) + 1
        return self.last(hidden * times)


class Chosen(Net):
    def forward(self, x):
        hidden = self.first(x)
        hidden = hidden * 2 if hidden.detach().max() > 9 else hidden
        return self.last(hidden)


class TransformedInside(nn.Module):
    """Has its call of torch.func in a module of its own, as is advised where the model stays whole for it."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = Transformed(), nn.Linear(1, 1)

    def forward(self, x):
        return self.last(self.inner(x))


@pytest.mark.parametrize("model", [Counted, Chosen, TransformedInside])
def test_a_choice_is_advised_where_the_line_is_one(model):
    (note,) = graph_of(model).notes
    assert "is one operator, cut off before and after" in note
    assert ("torch.where" in note) == (model is Chosen)


class Penalised(Net):
    """The penalty is a constant for who follows it by torch.fx, and exported as it is."""

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))), sum(each.square().sum() for each in self.parameters())


def test_nothing_is_told_of_a_way_that_went_wrong_where_the_next_one_cuts_all():
    graph = graph_of(Penalised, lambda outputs, y: F.mse_loss(outputs[0], y) + 1e-3 * outputs[1])
    assert graph.capture == "export"
    assert not any("would compute something else" in note for note in graph.notes)
