"""What is known of losses over sentences that are padded to the longest of their batch."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.example_batches import sample_batches
from nfold.capture.independence.divisible import why_indivisible
from nfold.capture.proof.conditions import broken, computed
from nfold.capture.proof.lengths import NoLength, of_any_length
from nfold.capture.proof.prove import prove

WORDS, COUNTED = 7, 2


def sentence(length, counted):
    words = torch.arange(length) % WORDS
    return words, torch.where(torch.arange(length) < counted, words, -100)


def sentences(counts):
    """Return sentences of 3 to 6 words, and how many words of each count; 2 of each where a count is 0."""
    return [sentence(3 + index % 4, count or COUNTED) for index, count in enumerate(counts)]


def padded(items):
    words, labels = zip(*items, strict=True)
    pad = nn.utils.rnn.pad_sequence
    return pad(words, batch_first=True), pad(labels, batch_first=True, padding_value=-100)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))


def masked(out, labels):
    terms = F.cross_entropy(out.transpose(1, 2), labels.clamp(min=0), reduction="none")
    return (terms * (labels >= 0)).sum() / (labels >= 0).sum()


LOSSES = {
    "flattened": lambda out, labels: F.cross_entropy(out.flatten(0, 1), labels.flatten()),
    "viewed": lambda out, labels: F.cross_entropy(out.view(-1, WORDS), labels.view(-1)),
    "classes second": lambda out, labels: F.cross_entropy(out.transpose(1, 2), labels),
    "next word": lambda out, labels: F.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, :-1].flatten()),
    "masked": masked,
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_over_words_is_refused_where_sentences_have_unlike_many(name):
    example = sample_batches(sentences([1, 2, 3] * 10), collate=padded)
    proof = prove(model(), LOSSES[name], example)
    assert (proof.verdict, proof.reason[:50]) == ("mixed", "the loss is not a mean over samples: it divides by")


@pytest.mark.parametrize("name", LOSSES)
def test_where_each_has_as_many_a_batch_of_any_length_that_has_others_is_found(name):
    example = sample_batches(sentences([0] * 30), collate=padded)
    proof = prove(model(), LOSSES[name], example)
    assert proof.verdict == "unknown"
    assert "collate" in proof.reason
    for length in (3, 5, 9):
        whole = padded([sentence(length, COUNTED), sentence(3, COUNTED), sentence(4, COUNTED)])
        rare = padded([sentence(length, COUNTED), sentence(3, 1), sentence(4, COUNTED)])
        assert broken(proof.conditions, whole, 3) == ""
        assert "which is 5 for 3 samples here and 6 elsewhere" in broken(proof.conditions, rare, 3)


def test_a_mean_over_padded_places_is_found_where_most_sentences_are_as_long():
    """In 30 items one is longer; of those that are compared with their parts none would be."""
    items = [sentence(4, 4) for _ in range(30)]
    example = sample_batches([sentence(9, 9), *items[1:]], collate=padded)
    assert "not a mean" in why_indivisible(model, lambda out, _: out.square().mean() + out[..., 0].mean(), example)


def test_a_number_becomes_a_length_times_something_and_plus_something():
    lengths = {((1,), 1): (6, 4), ((0, "x"), 0): (13, 13)}
    program = of_any_length('{"size": [12, -1], "end": 5}', '{"size": [8, -1], "end": 3}', lengths)
    twice = {"length": [1], "dim": 1, "times": 2, "plus": 0}
    assert json.loads(program) == {"size": [twice, -1], "end": {**twice, "times": 1, "plus": -1}}


@pytest.mark.parametrize(
    "other", ['{"size": [5]}', '{"size": [8, 1]}', '{"op": 1}', '{"size": ["a"]}', '{"size": [1.5]}']
)
def test_what_differs_in_more_than_lengths_is_no_program_of_any_length(other):
    with pytest.raises(NoLength):
        of_any_length('{"size": [12]}', other, {((1,), 1): (6, 4)})


def test_a_length_is_read_from_the_data():
    program = {
        "steps": [
            {"op": "aten.view.default", "args": [{"data": [1]}, [{"size": [{"length": [0], "dim": 1, "times": 1,
             "plus": 0}, 0]}]], "kwargs": {}},
            {"op": "aten.sum.default", "args": [{"step": 0, "out": 0}], "kwargs": {}},
        ],
        "result": {"step": 1, "out": 0},
    }  # fmt: skip
    assert computed(json.dumps(program), (torch.zeros(2, 3), torch.ones(2, 3)), 2) == 6.0
