"""Our own writing and reading of safetensors, against the package that everybody has."""

import json

import pytest
import torch
from safetensors.torch import load, save

from nfold.errors import CheckpointError
from nfold.runtime.checkpoint.checkpoint_format import DTYPES
from nfold.runtime.checkpoint.state_file import ITEM_BYTES, StateEntry, StateHeader, StoredState, in_order, pack_header

FACTS = {"step": 7, "chunks": 2}


def entry(name, dtype="F32", shape=(2, 3)):
    return StateEntry(name=name, dtype=dtype, shape=shape)


def write(path, entries, fill, facts=FACTS):
    """A file whose tensors are filled by name."""
    ordered = in_order(entries)
    data = b"".join(fill[each.name].reshape(-1).view(torch.uint8).numpy().tobytes() for each in ordered)
    path.write_bytes(pack_header(ordered, facts) + data)
    return path


TENSORS = {
    "model.a": torch.arange(6.0).reshape(2, 3),
    "model.wide": torch.arange(3, dtype=torch.int64),
    "optimizer.a.step": torch.tensor(4.0),
    "model.flag": torch.tensor([True, False, True]),
    "model.none": torch.zeros(0, 4),
}
ENTRIES = [
    entry("model.a"),
    entry("model.wide", "I64", (3,)),
    entry("optimizer.a.step", "F32", ()),
    entry("model.flag", "BOOL", (3,)),
    entry("model.none", "F32", (0, 4)),
]


def test_anybody_can_read_what_we_write(tmp_path):
    found = load(write(tmp_path / "x", ENTRIES, TENSORS).read_bytes())
    assert found.keys() == TENSORS.keys()
    assert all(found[name].dtype == each.dtype and torch.equal(found[name], each) for name, each in TENSORS.items())


def test_we_read_what_others_write():
    data = save(TENSORS, metadata={"nfold": json.dumps(FACTS)})
    header = StateHeader(data[: 8 + int.from_bytes(data[:8], "little")])
    assert (header.facts, header.file_bytes) == (FACTS, len(data))
    assert {name: each.shape for name, each in header.entries.items()} == {
        name: tuple(each.shape) for name, each in TENSORS.items()
    }
    begin, end = header.range_of("model.a")
    assert torch.equal(torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32), torch.arange(6.0))


def test_every_type_of_the_format_has_its_size():
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == ITEM_BYTES


def test_the_model_of_a_checkpoint_is_a_file_of_its_own(tmp_path):
    stored = StoredState.open(write(tmp_path / "x", ENTRIES, TENSORS))
    assert stored.step == 7
    found = load(b"".join(stored.model()))
    assert found.keys() == {"a", "wide", "flag", "none"}
    assert all(torch.equal(found[name], TENSORS[f"model.{name}"]) for name in found)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data[:5], "it has 5 bytes"),
        (lambda data: data[:-1], "bytes"),
        (lambda data: data + b"x", "bytes"),
        (lambda data: data[:8] + b"x" * (len(data) - 8), "damaged"),
        (lambda data: (1 << 60).to_bytes(8, "little") + data[8:], "damaged"),
        (lambda data: save({"a": torch.zeros(2)}), "not a checkpoint of nfold"),
        (lambda data: save({"a": torch.zeros(2)}, metadata={"nfold": "{}"}), "damaged: 'step'"),
    ],
)
def test_a_damaged_file_is_found_without_reading_its_tensors(tmp_path, damage, told):
    path = write(tmp_path / "x", ENTRIES, TENSORS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=told):
        StoredState.open(path)


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path):
    path = write(tmp_path / "x", ENTRIES, TENSORS)
    stored = StoredState.open(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="was cut off while it was read"):
        b"".join(stored.model())
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory"):
        stored.read(0, 8)


def test_a_checkpoint_of_a_newer_nfold_is_refused_and_one_that_names_no_version_is_read(tmp_path):
    newer = write(tmp_path / "newer", ENTRIES, TENSORS, FACTS | {"version": 3})
    with pytest.raises(
        CheckpointError, match=r"^this checkpoint is of version 3, and this nfold reads versions up to 1"
    ):
        StoredState.open(newer)
    (tmp_path / "first").write_bytes(save(TENSORS, metadata={"nfold": json.dumps(FACTS)}))
    assert StoredState.open(tmp_path / "first").step == 7
