"""Programs that join items themselves, visit them in their own order, or call the model by keyword."""

import itertools
from dataclasses import replace

import pytest
import torch
from harness import difference, graph_of, make_plan, play
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

from nfold.capture.batches.example import Example
from nfold.capture.batches.joining import join
from nfold.capture.batches.shapes import batch_shapes
from nfold.capture.computing.random import CellRandom
from nfold.capture.example_batches import sample_batches
from nfold.capture.program.calling import by_keyword, by_position
from nfold.errors import PlanError, ProgramError
from nfold.program import Program
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike
from nfold.runtime.data.loaded_program import load_dataset
from nfold.runtime.data.ordering import orders_to_compare, sampler_of
from nfold.runtime.data.sample_reader import join_seeded

COUNT, WORDS = 40, 11


class Sentences(Dataset):
    """Words of 2 to 7 places, and a class."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.arange(2 + index * 5 % 6) * (index + 1) % (WORDS - 1) + 1, index % 3


def padded(items):
    """Sentences as long as the longest of them, 0 where they end."""
    words = nn.utils.rnn.pad_sequence([words for words, _ in items], batch_first=True)
    return {"words": words, "mask": words != 0}, torch.tensor([kind for _, kind in items])


class Mean(nn.Module):
    """Means over the words that there are; called by keyword."""

    def __init__(self, looks_at_padding=False):
        super().__init__()
        self.embedding, self.last = nn.Embedding(WORDS, 6).double(), nn.Linear(6, 3).double()
        self.looks_at_padding = looks_at_padding

    def forward(self, words, mask):
        found = self.embedding(words) * mask.unsqueeze(2)
        return self.last(found.sum(1) / (words.shape[1] if self.looks_at_padding else mask.sum(1, keepdim=True)))


def program(**changes):
    given = {
        "model": Mean,
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "train_data": Sentences,
        "batch_size": 8,
        "collate": padded,
    }
    return Program(**{**given, **changes})


def plain(mine, steps, chunks):
    """The same in a plain loop that adds up the gradients of chunks."""
    torch.manual_seed(mine.seed)
    model, dataset = mine.model(), mine.train_data()
    optimizer, sampler = mine.optimizer(list(model.parameters())), sampler_of(mine, dataset, mine.batch_size, chunks, 2)
    for step in range(steps):
        optimizer.zero_grad()
        for chunk, size in enumerate(sampler.sizes(step)):
            inputs, targets = mine.collate([dataset[index] for index in sampler.indices(step, chunk)])
            outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
            (mine.loss(outputs, targets) * size / mine.batch_size).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize(("strategy", "workers"), [("single", 1), ("ring", 2)])
def test_padded_batches_train_as_a_plain_loop_does(strategy, workers):
    mine = program()
    graph = graph_of(mine)
    assert not graph.indivisible
    spread = play(mine, graph, make_plan(mine, graph, strategy, workers, 0, chunks=4), 9)
    assert difference(spread.state, plain(mine, 9, 4)) <= 1e-12


def test_a_model_of_padded_batches_is_not_cut_and_told_why():
    mine = program()
    graph = graph_of(mine)
    assert len(graph.operators) == 1
    with pytest.raises(PlanError, match=r"its batches are of unlike shapes.* pad to one length in collate"):
        make_plan(mine, graph, "pipeline", 2, 0, chunks=4)


def test_batches_padded_to_one_length_may_be_cut():
    def fixed(items):
        inputs, targets = padded([*items, (torch.arange(7), 0)])
        return {name: each[:-1] for name, each in inputs.items()}, targets[:-1]

    mine = program(collate=fixed)
    graph = graph_of(mine)
    spread = play(mine, graph, make_plan(mine, graph, "pipeline", 2, 0, chunks=4), 9)
    assert len(graph.operators) > 1
    assert difference(spread.state, plain(mine, 9, 4)) <= 1e-12


def test_a_program_that_looks_at_how_far_it_is_padded_is_not_cut_into_chunks():
    assert graph_of(program(model=lambda: Mean(looks_at_padding=True))).indivisible


def test_a_batch_is_padded_whole_and_its_parts_by_themselves():
    example = sample_batches(Sentences(), collate=padded)
    whole, parts = example.parts((5, 4, 3), 2)
    lengths = [part[0]["words"].shape[1] for part in parts]
    assert whole[0]["words"].shape == (12, max(lengths))
    assert min(lengths) < max(lengths)
    assert torch.equal(torch.cat([part[1] for part in parts]), whole[1])
    assert sample_batches([(torch.zeros(1), 0)] * 3).parts((1, 1), 0) is None


def test_a_batch_of_another_length_than_those_tried_is_refused():
    shapes = batch_shapes(sample_batches([(torch.zeros(3), 0)] * 9))
    shapes.check((torch.zeros(4, 3), torch.zeros(4)), 4, 0)
    with pytest.raises(
        ProgramError, match=r"inputs of chunk 2 hold float32\[4, 5\], and 4 samples had float32\[4, 3\]"
    ):
        shapes.check((torch.zeros(4, 5), torch.zeros(4)), 4, 2)
    with pytest.raises(ProgramError, match=r"targets of chunk 0 hold float32\[4, 1\], and 4 samples had float32\[4\]"):
        shapes.check((torch.zeros(4, 3), torch.zeros(4, 1)), 4, 0)


def test_so_is_a_sparse_one_and_what_follows_no_rule_may_be_of_any_length():
    def batch(size, which, width=6):
        words = torch.zeros(size, size * size)
        return (torch.eye(size, width).to_sparse(), words), torch.zeros(size)

    shapes = batch_shapes(Example(make=batch))
    shapes.check(batch(4, 0), 4, 0)
    (sparse, _), targets = batch(4, 0)
    shapes.check(((sparse, torch.zeros(4, 99)), targets), 4, 0)
    with pytest.raises(ProgramError, match=r"hold float32\[4, 5\], and 4 samples had float32\[4, 6\]"):
        shapes.check(batch(4, 0, width=5), 4, 0)


@pytest.mark.parametrize(
    ("collate", "words"),
    [
        (lambda items: items[0].no_such, r"collate=...\) raised AttributeError.*items 4, 5 of train_data"),
        (lambda items: torch.zeros(2), r"must return a pair \(inputs, targets\).*returned float32\[2\]"),
    ],
)
def test_a_collate_that_cannot_work_is_told(collate, words):
    with pytest.raises(ProgramError, match=words):
        join([(torch.zeros(2), 0)] * 2, [4, 5], "train_data", collate)


def test_what_joining_draws_follows_from_step_and_chunk():
    def noisy(items):
        return torch.rand(len(items)), torch.zeros(len(items))

    def drawn(step, chunk):
        return join_seeded(CellRandom(3), [0, 1], [0, 1], noisy, step=step, chunk=chunk)[0].tolist()

    assert drawn(5, 1) == drawn(5, 1)
    assert drawn(5, 1) != drawn(5, 0) != drawn(4, 1)


# Orders


def weighted(dataset, epoch, generator):
    """Twenty samples, the later the likelier, some of them twice."""
    return torch.multinomial(torch.arange(1.0, len(dataset) + 1), 20, replacement=True, generator=generator)


@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_a_sampler_orders_the_samples_alike_on_any_number_of_ranks(strategy):
    mine = program(sampler=weighted)
    sampler = sampler_of(mine, Sentences(), 8, 4, 2)
    assert sampler.steps_per_epoch == 3
    assert sum(sampler.sizes(2)) == 4
    assert sampler.indices(3, 1) == sampler_of(mine, Sentences(), 8, 4, 2).indices(3, 1)
    assert sampler.indices(0, 1) != sampler.indices(3, 1)
    graph = graph_of(mine)
    one, two = (
        play(mine, graph, make_plan(mine, graph, name, count, 0, chunks=4), 5)
        for name, count in (("single", 1), (strategy, 2))
    )
    assert one.losses == pytest.approx(two.losses, rel=1e-12)


class Endless:
    """As samplers for steps without epochs are."""

    def __len__(self):
        return 40

    def __iter__(self):
        return itertools.cycle(range(40))


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda data, epoch, generator: [0, 40, -1], r"gave 40 at place 1, -1 at place 2.*from 0 to 39"),
        (lambda data, epoch, generator: [0.5], "gave 0.5 at place 0"),
        (lambda data, epoch, generator: [], "at least one"),
        (lambda data, epoch, generator: 3, r"returned 3 for epoch 0"),
        (lambda data, epoch, generator: range(10 + epoch), "gave 10 indices for epoch 0 and 11 for epoch 1"),
        (lambda data, epoch, generator: itertools.count(), r"does not end.*a count without a len\(\)"),
        (lambda data, epoch, generator: Endless(), "does not end.*says that it has 40 and gave more"),
        (lambda data: [0], r"raised TypeError.*given \(dataset, epoch, generator\)"),
        (lambda data, epoch, generator, kept=[0]: [kept.append(0) or len(kept)], "other indices when it is asked"),
    ],
    ids=["range", "fraction", "none", "number", "lengths", "endless", "longer", "arguments", "state"],
)
def test_a_sampler_that_cannot_work_is_told_before_the_first_step(sampler, words):
    with pytest.raises(ProgramError, match=words):
        orders_to_compare(program(sampler=sampler, epochs=4), Sentences())


def test_a_sampler_that_changes_the_data_set_is_refused():
    class Staged(Sentences):
        def __init__(self):
            self.epoch = 0

    def sampler(data, epoch, generator):
        data.epoch = epoch
        return range(len(data))

    with pytest.raises(ProgramError, match=r"changes epoch of train_data\(\) when it is asked for epoch 1"):
        orders_to_compare(program(sampler=sampler, epochs=4), Staged())


def test_an_epoch_of_another_length_is_refused_when_it_comes():
    mine = program(sampler=lambda data, epoch, generator: range(8 if epoch == 5 else 16))
    sampler = sampler_of(mine, Sentences(), 8, 1, 2)
    with pytest.raises(ProgramError, match="gave 16 indices for epoch 0 and 8 for epoch 5"):
        sampler.indices(10, 0)


def test_ranks_with_other_orders_are_refused():
    told = {"num_samples": 20, "weights": {}, "items": {}, "first_pass": None}
    told |= {"has_test": False, "metrics": [], "stepping": None}
    check_alike({**told, "orders": {"0": [20, 7]}}, Other(1), {**told, "orders": {"0": [20, 7]}})
    with pytest.raises(ProgramError, match=r"ranks 0 and 1 visit other samples.* 7 and 8 for epoch 0"):
        check_alike({**told, "orders": {"0": [20, 7]}}, Other(1), {**told, "orders": {"0": [20, 8]}})


def test_samplers_of_torch_are_told_what_to_hand_over():
    with pytest.raises(ProgramError, match=r"lambda dataset, epoch, generator: list\(WeightedRandomSampler\("):
        program(sampler=WeightedRandomSampler([1.0, 2.0], 2))
    with pytest.raises(ProgramError, match="leave it out"):
        program(sampler=torch.utils.data.DistributedSampler)


# What is no data set


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(1), 0)])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: DataLoader(Sentences(), 16, shuffle=True, collate_fn=padded), r"batch_size=16, collate=padded\.$"),
        (lambda: DataLoader(Sentences(), 16), r"range\(len\(dataset\)\)"),
        (
            lambda: DataLoader(Sentences(), 4, sampler=WeightedRandomSampler([1.0] * 40, 30)),
            r"multinomial\(weights, 30, replacement=True, generator=generator\)",
        ),
        (lambda: DataLoader(Sentences(), 16, shuffle=True, drop_last=True), r"\[: len\(dataset\) // 16 \* 16\]"),
        (Stream, r"Stream, an IterableDataset.*train_data=lambda: list\(dataset\)"),
        (lambda: DataLoader(Sentences(), 16, shuffle=True, num_workers=1), r"batch_size=16, loaders=1\.$"),
        (lambda: DataLoader(Stream(), 4), r"list\(dataset\), since its Stream has no indices, batch_size=4"),
        (lambda: (torch.ones(40, 2), torch.ones(40)), r"a tuple of 2 arrays, .*TensorDataset\(torch.as_tensor"),
        (lambda: "data/images", r"the text 'data/images'\. Hand over a dataset"),
    ],
    ids=["loader", "in order", "weighted", "drop last", "iterable", "workers", "loader of iterable", "arrays", "text"],
)  # fmt: skip
def test_what_is_no_data_set_is_refused_with_what_to_hand_over(data, words):
    with pytest.raises(ProgramError, match=words):
        load_dataset(data, "train_data", 0)


# Keywords


class Calls(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


@pytest.mark.parametrize(
    ("forward", "keys", "expected"),
    [
        (lambda words, mask: 0, ("words", "mask"), True),
        (lambda words=None, mask=None, labels=None: 0, ("words", "labels"), True),
        (lambda **inputs: 0, ("words",), True),
        (lambda words, **more: 0, ("words", "mask"), True),
        (lambda inputs: 0, ("words", "mask"), False),
        (lambda words: 0, ("words",), False),
        (lambda words, mask: 0, ("words",), False),
        (lambda words, mask=None: 0, ("words", "other"), False),
        (lambda batch, **options: 0, ("words", "mask"), False),
        (lambda *args, **kwargs: 0, ("words", "mask"), False),
    ],
)
def test_a_dict_goes_by_keyword_where_forward_names_all_its_keys(forward, keys, expected):
    assert by_keyword(Calls(forward), dict.fromkeys(keys)) is expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda words, mask: 0, True),
        (lambda words, mask, scale=1: 0, True),
        (lambda inputs: 0, False),
        (lambda words, mask=None: 0, False),
        (lambda words, mask, more: 0, False),
        (lambda *args: 0, False),
    ],
)
def test_a_tuple_goes_by_position_where_forward_needs_several(forward, expected):
    assert by_position(Calls(forward), (1, 2)) is by_position(Calls(forward), [1, 2]) is expected


@pytest.mark.parametrize("keywords", [True, False])
def test_the_program_has_the_last_word(keywords):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 3)

        def forward(self, *args, **kwargs):
            assert bool(kwargs) is keywords
            return self.last(kwargs["x"] if keywords else args[0]["x"])

    data = [({"x": torch.ones(2) * index}, index % 3) for index in range(12)]
    mine = program(model=Either, train_data=lambda: data, collate=None, keywords=keywords)
    assert not graph_of(mine).indivisible


@pytest.mark.parametrize("is_dict", [True, False])
def test_a_model_that_decides_on_sizes_is_called_with_several_inputs_too(is_dict):
    class Loops(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 3).double()

        def forward(self, first, second):
            if second.shape[0] > 0:
                first = first - 2 * second
            return self.last(first)

    def item(index):
        first, second = torch.ones(4).double() * index, torch.arange(4.0).double() / (index + 1)
        return ({"second": second, "first": first} if is_dict else (first, second)), index % 3

    data = [item(index) for index in range(COUNT)]
    mine = program(model=Loops, train_data=lambda: data, collate=None)
    graph = graph_of(mine)
    assert graph.capture == "fx"
    expected = plain(replace(mine, collate=torch.utils.data.default_collate), 6, 4)
    spread = play(mine, graph, make_plan(mine, graph, "pipeline", 2, 0, chunks=4), 6)
    assert difference(spread.state, expected) <= 1e-12
