"""What a rank takes for the data that live on its node."""

import tempfile
from dataclasses import replace

import pytest
import torch
from nets import NUM_SAMPLES, images, program
from torch.utils.data import TensorDataset

from nfold.errors import ProgramError
from nfold.node_data import local_data
from nfold.runtime.rank.residence import load_train, resident_of, samples_in
from nfold.runtime.samples.record import Record

EVERYWHERE = {"node": "pi", "lives": None}


def part(first, count, total=NUM_SAMPLES, pinned=0):
    return {"node": "pi", "lives": {"first": first, "count": count, "total": total, "pinned": pinned}}


def test_a_program_whose_data_all_ranks_have_is_loaded_as_ever():
    dataset, source = load_train(program("plain"), EVERYWHERE)
    assert (len(dataset), source) == (NUM_SAMPLES, None)


def test_a_node_of_an_emulated_cluster_has_its_next_samples_and_no_others():
    dataset, source = load_train(program("plain"), part(40, 4, pinned=3))
    assert [int(dataset[index][1]) for index in range(len(dataset))] == [
        int(images()[40 + index][1]) for index in range(4)
    ]
    assert source.num_pinned(4) == 3


def test_a_cluster_that_holds_another_number_of_samples_is_refused_with_both():
    with pytest.raises(ProgramError) as refused:
        load_train(program("plain"), part(0, 4, total=42_000))
    assert str(refused.value).startswith(
        "train_data() has 44 samples, and the nodes of the emulated cluster hold 42000 together."
    )


def test_a_function_is_asked_for_what_lives_on_the_node():
    seen = []
    mine = replace(program("plain"), train_data=local_data(lambda node: seen.append(node)))
    dataset, _ = load_train(mine, EVERYWHERE)
    assert (seen, len(dataset)) == (["pi"], 0)


def test_a_sampler_cannot_say_what_is_visited():
    mine = replace(program("plain"), sampler=lambda dataset, epoch, generator: [0])
    with pytest.raises(ProgramError, match="Leave the sampler out"):
        load_train(mine, part(0, 4))


def test_what_comes_to_an_emulated_node_is_kept_in_the_runs_folder(tmp_path):
    own = TensorDataset(torch.zeros(2, 1), torch.zeros(2))
    order = {"key": "data", "first": 3, "total": 9, "most_bytes": 100, "folder": str(tmp_path), "is_kept": True}
    order |= {"num_begun": 9, "brought": []}
    dataset = resident_of(own, "pi", order)
    assert len(dataset) == 9
    assert (tmp_path / ".nfold-samples/data/pi").is_dir()
    assert samples_in(dataset, ((6, 8),)).indices == [6, 7]
    dataset.store.close()


def test_what_comes_for_a_plan_alone_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    order = {"key": "data", "first": 0, "total": 9, "most_bytes": None, "folder": None, "is_kept": False}
    dataset = resident_of([], "pi", order)
    dataset.store.add(3, Record(b"sample"))
    assert [path.name for path in tmp_path.iterdir()] != []
    dataset.store.close()
    assert [*tmp_path.iterdir()] == []
