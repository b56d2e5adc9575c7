"""Samples that see each other at later weights, or in rare inputs only, are found while a program trains."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from drifting import drift, drifting_plan
from harness import graph_of, make_plan, play
from nets import CLASSES, program
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.errors import ProgramError
from nfold.runtime.guards.later_trials import LaterTrials

WIDTH = 6
CPU = torch.device("cpu")


def inputs(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, WIDTH, generator=generator), torch.arange(size) % CLASSES


class Capped(nn.Module):
    """Keeps outputs within a limit that the first weights stay below; by the largest of the batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        out = self.layer(x)
        largest = float(out.detach().abs().max())
        return out * (8 / largest) if largest > 8 else out


class _Limit(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * min(1.0, 0.02 / float(gradient.abs().max()))


class Limited(Capped):
    """The same of what comes back."""

    def forward(self, x):
        return self.layer(_Limit.apply(self.layer(x) @ self.layer.weight))


class Plain(Capped):
    def forward(self, x):
        return self.layer(x)


def trials(model=Capped, clock=lambda: 0.0, **changes):
    return LaterTrials(replace(program("plain"), model=model, loss=F.cross_entropy, **changes), CPU, clock)


def apart(read):
    """Read samples together, and in parts."""

    def both(samples, sizes):
        parts = torch.tensor(samples).split(list(sizes))
        return read(samples), [read(part.tolist()) for part in parts]

    return both


def first_found(trials, model, batches, read=None):
    """Return at which step something is found, and what; -1 if nothing is."""
    for step, batch in enumerate(batches):
        try:
            trials.look(model, batch, step, len(batch[1]), read)
        except ProgramError as error:
            return step, str(error)
    return -1, ""


@pytest.mark.parametrize("size", [2, 3, 5, 12, 40])
def test_a_limit_that_later_weights_reach_is_found_at_the_next_trial(size):
    model, seen = Capped(), trials()
    batches = [inputs(size)] * 4
    assert first_found(seen, model, batches) == (-1, "")
    with torch.no_grad():
        model.layer.weight.mul_(100)
    for step in (4, 5, 6):
        seen.look(model, batches[0], step, size, None)
    with pytest.raises(
        ProgramError, match=r"depends on the other samples.*Found at step 8, .* at step 4 it was still "
    ):
        seen.look(model, batches[0], 7, size, None)


def test_no_trial_is_made_where_there_is_no_room(monkeypatch):
    model = Capped()
    with torch.no_grad():
        model.layer.weight.mul_(100)
    monkeypatch.setattr("nfold.runtime.guards.trial_occasions.unused_memory", lambda: 100)
    assert first_found(trials(), model, [inputs(12)]) == (-1, "")
    monkeypatch.undo()
    assert first_found(trials(), model, [inputs(12)])[0] == 0


def rare(size):
    x, y = inputs(size)
    x[size // 2] *= 1000
    return x, y


def test_an_input_unlike_all_before_is_tried_when_it_comes():
    step, words = first_found(trials(), Capped(), [*[inputs(40)] * 6, rare(40)])
    assert step == 6
    assert "Found at step 7" in words


def test_inputs_of_another_shape_are_tried_when_they_come():
    class Pooled(Capped):
        def forward(self, x):
            out = self.layer(x).mean(1)
            return out - out.mean(0) if x.shape[1] > 4 else out

    short = (torch.randn(9, 3, WIDTH), torch.arange(9) % CLASSES)
    long = (torch.randn(9, 5, WIDTH) * 1e-3, short[1])
    assert first_found(trials(Pooled), Pooled(), [*[short] * 6, long])[0] == 6


def test_trials_of_unlike_inputs_take_seconds_or_a_hundredth_of_the_time():
    seconds = iter(range(10_000))
    growing = [(inputs(6)[0] * (1 + step), inputs(6)[1]) for step in range(60)]
    counted = trials(Plain, clock=lambda: float(next(seconds)))
    compared = []
    counted._compare = lambda model, cuts: compared.append(cuts[0].size) or ""
    first_found(counted, Plain(), growing)
    assert len(compared) == 9, "six in 5 s, and then of the 8th, 16th and 32nd step"


def test_what_comes_back_is_compared_too():
    model, seen = Limited(), trials(Limited)
    with torch.no_grad():
        model.layer.weight.mul_(1e-3)
    assert first_found(seen, model, [inputs(12)] * 3)[0] == -1
    with torch.no_grad():
        model.layer.weight.mul_(1e3)
    step, words = first_found(seen, model, [inputs(12)] * 2)
    assert step >= 0
    assert "added up over chunks, the gradient" in words


class Varied(nn.Sequential):
    """What is no alarm: layers that draw, normalise, decide on values, and compute in one type only."""

    def __init__(self):
        kernel = [nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.ReLU(), nn.LayerNorm(8)]
        super().__init__(*kernel, nn.Linear(8, CLASSES))

    def forward(self, x):
        out = super().forward(x) + torch.randn(len(x), CLASSES)
        return out * 2 if bool((out.detach() > -1e9).all()) else out


class Single(Varied):
    def forward(self, x):
        return super().forward(x) @ torch.eye(CLASSES)


@pytest.mark.parametrize("model", [Varied, Single])
@pytest.mark.parametrize("size", [2, 7, 100])
def test_ordinary_programs_give_no_alarm_and_draw_as_without(model, size):
    built = model()
    torch.manual_seed(5)
    expected, before = torch.randn(3), [each.clone() for each in built.state_dict().values()]
    torch.manual_seed(5)
    assert first_found(trials(model), built, [inputs(size, seed) for seed in range(9)]) == (-1, "")
    assert torch.equal(torch.randn(3), expected)
    assert all(torch.equal(*each) for each in zip(before, built.state_dict().values(), strict=True))


def test_chunks_that_a_program_joins_are_joined_anew_part_by_part():
    """The mean over padded words is another one in a part that is padded less."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Embedding(7, CLASSES)

        def forward(self, x):
            return self.layer(x).mean(1)

    lengths = [3] * 11 + [6]

    def read(samples):
        words = [torch.ones(lengths[each], dtype=torch.long) for each in samples]
        return nn.utils.rnn.pad_sequence(words, batch_first=True), torch.arange(len(samples)) % CLASSES

    seen = trials(Words, collate=read)
    found = first_found(seen, Words(), [read(range(12))], apart(read))
    assert found[0] == 0
    assert "not a mean over samples" in found[1]


def test_samples_that_collate_sorts_by_their_lengths_are_not_taken_for_others():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Embedding(30, CLASSES, padding_idx=0)

        def forward(self, x):
            return self.layer(x).sum(1)

    def read(samples):
        each = sorted(samples, key=lambda sample: -(sample % 2))
        words = [torch.full((1 + sample % 2,), 1 + sample) for sample in each]
        return nn.utils.rnn.pad_sequence(words, batch_first=True), torch.tensor(each) % CLASSES

    assert first_found(trials(Bag, collate=read), Bag(), [read(range(12))], apart(read)) == (-1, "")


def test_what_forward_writes_into_its_input_is_not_tried_on():
    class Scaled(Capped):
        def forward(self, x):
            return self.layer(x.div_(255.0).sub_(0.5))

    x, y = inputs(12)
    assert first_found(trials(Scaled), Scaled().double(), [(x.double() * 255.0, y)]) == (-1, "")


def test_names_beside_tensors_are_read_with_their_samples():
    class Named(Capped):
        def forward(self, inputs):
            x, names = inputs
            assert len(names) == len(x)
            return super().forward(x)

    def read(samples):
        x, y = inputs(12)
        return (x[samples], [f"{each}.jpg" for each in samples]), y[samples]

    model = Named()
    assert first_found(trials(Named), model, [read(range(12))], apart(read)) == (-1, "")
    with torch.no_grad():
        model.layer.weight.mul_(100)
    assert first_found(trials(Named), model, [read(range(12))], apart(read))[0] == 0


class Words(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Embedding(9, WIDTH), nn.Linear(WIDTH, 9))


def joined(documents):
    return torch.cat([each[:-1] for each in documents]), torch.cat([each[1:] for each in documents])


def documents(*unlike):
    """Return a program that takes the mean over the words of its documents, some of which are longer than others."""
    lengths = [20 if place in unlike else 6 for place in range(192)]
    data = [torch.randint(0, 9, (n,), generator=torch.Generator().manual_seed(i)) for i, n in enumerate(lengths)]
    mine = replace(program("plain", partial(torch.optim.SGD, lr=0.1), 16), model=Words, loss=F.cross_entropy)
    order = lambda dataset, epoch, generator: range(len(dataset))  # noqa: E731
    return replace(mine, train_data=lambda: data, collate=joined, sampler=order)


@pytest.mark.parametrize(
    ("unlike", "step"),
    [([84, 85], 6), (range(80, 88), 6), ([place for place in range(192) if place % 16 > 7], 1)],
    ids=["of a chunk", "a chunk", "each second chunk"],
)
def test_a_mean_over_words_ends_where_chunks_have_unlike_many(unlike, step):
    mine = documents(*unlike)
    graph = replace(graph_of(documents()), unproved="collate")  # as if the samples that were tried had shown nothing
    with pytest.raises(ProgramError, match=rf"a mean over words .*Found at step {step},"):
        play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=2), 8)


def test_samples_that_fit_to_no_others_are_tried_by_themselves():
    """As where each batch has a length of its own."""

    class Pooled(Capped):
        def forward(self, x):
            out = self.layer(x).mean(1)
            return out - out.mean(0) if x.shape[1] > 4 else out

    def read(samples, lengths=(5,) * 9 + (3, 3)):
        torch.manual_seed(0)
        return torch.stack([torch.randn(lengths[each], WIDTH) for each in samples]), torch.arange(len(samples)) % 3

    with pytest.raises(ProgramError, match="depends on the other samples"):
        trials(Pooled, collate=read).look(Pooled(), read(range(9)), 0, 9, apart(read), num_elsewhere=2)


def test_a_new_shape_is_tried_although_the_time_for_unlike_inputs_is_over():
    seconds = iter(range(10_000))
    counted = trials(Plain, clock=lambda: float(next(seconds)))
    first_found(counted, Plain(), [(inputs(6)[0] * (1 + step), inputs(6)[1]) for step in range(20)])
    compared = []
    counted._compare = lambda model, cuts: compared.append(cuts[0].size) or ""
    x, y = inputs(6)
    counted.look(Plain(), (x, torch.stack([y, y], 1)), 20, 6, None)
    assert len(compared) == 1


def growing():
    """Return a program whose weights soon reach the limit."""
    data = TensorDataset(*inputs(48))
    fast = partial(torch.optim.SGD, lr=50.0)
    return replace(program("plain", fast, 24), model=Capped, loss=F.cross_entropy, train_data=lambda: data, epochs=8)


FOUND = r"depends on the other samples.*Found at step \d+, by comparing"


def test_a_run_ends_where_the_weights_make_samples_see_each_other():
    mine = growing()
    graph = graph_of(mine)
    assert "it decides on values" in graph.unproved
    with pytest.raises(ProgramError, match=FOUND):
        play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=2), 16)
    with pytest.raises(ProgramError, match=FOUND):
        drift(mine, graph, drifting_plan(mine, graph, 2, chunks=2, bound=0), [16])


def test_what_collate_draws_for_each_item_ends_no_run():
    def collate(items):
        rows = [row.flip(0) if random.random() < 0.5 else row for row, _ in items]
        return torch.stack(rows) + torch.rand(len(rows), 1), torch.stack([kind for _, kind in items])

    data = TensorDataset(*inputs(24))
    mine = replace(
        program("plain", batch_size=12), model=Plain, loss=F.cross_entropy, train_data=lambda: data, collate=collate
    )
    graph = graph_of(mine)
    assert "collate" in graph.unproved
    assert len(play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=2), 4).losses) == 4
