"""Readers read samples by their numbers in the whole data, wherever they lived, as one device would."""

import threading

import pytest
import torch
from moving_nodes import nodes_with

from nfold.core.residency import SampleMove
from nfold.errors import RunError
from nfold.node_data import LocalFiles
from nfold.runtime.data.sample_reader import ReadPart, SampleReader

WAIT_S = 10.0


def items(first, count):
    return [(torch.full((2,), float(number)), number) for number in range(first, first + count)]


def noisy(path):
    return torch.rand(2), int(path.stem)


def files(folder, numbers):
    folder.mkdir()
    for number in numbers:
        (folder / f"{number}.txt").write_text("x")
    return LocalFiles(folder, [f"{number}.txt" for number in numbers], noisy)


def test_a_part_of_own_and_moved_samples_is_what_one_device_reads(tmp_path):
    part = ReadPart([4, 1, 5, 0], epoch=2, step=7, chunk=0)
    with nodes_with(tmp_path, items(0, 3), items(3, 3)) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
        found = SampleReader(nodes.data[1], seed=3).read(part)
    expected = SampleReader(items(0, 6), seed=3).read(part)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_reading_a_file_draws_follows_from_epoch_and_number(tmp_path):
    whole = files(tmp_path / "whole", range(4))
    mine, others = files(tmp_path / "a", range(2)), files(tmp_path / "b", range(2, 4))
    with nodes_with(tmp_path, mine, others) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
        for epoch in range(2):
            part = ReadPart([3, 0, 1], epoch=epoch, step=epoch, chunk=0)
            found, expected = SampleReader(nodes.data[1], 5).read(part), SampleReader(whole, 5).read(part)
            assert torch.equal(found[0], expected[0])


def test_a_reader_that_waits_leaves_the_lock_to_others(tmp_path):
    """Threads of one process share it: what brings the sample reads it under that lock."""
    with nodes_with(tmp_path, items(0, 2), items(2, 2)) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2),))], bytes_per_s=0)
        reader, read = SampleReader(nodes.data[1], seed=0), threading.Event()
        threading.Thread(target=lambda: (reader.read(ReadPart([3, 1], 0, 0, 0)), read.set())).start()
        SampleReader(nodes.data[0], seed=0).read(ReadPart([0], 0, 0, 0))
        for mover in movers:
            mover.limit(None)
        assert read.wait(WAIT_S)
        for mover in movers:
            mover.wait()


def damaged(nodes, folder):
    """Let node 1 have two samples of node 0, of which the disk has changed the first."""
    nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
    with open(folder / "1" / "items-0", "r+b") as file:
        file.write(bytes(8))


def test_a_sample_that_the_disk_has_changed_is_asked_for_again_while_others_are_read(tmp_path):
    with nodes_with(tmp_path, items(0, 3), items(3, 3)) as nodes:
        damaged(nodes, tmp_path)
        here, asked = nodes.data[1], []

        def ask(number):
            asked.append(number)
            assert here.store.is_asking, "so that nobody who comes later can give it"
            (record,) = nodes.data[0].records([number])
            threading.Thread(target=lambda: here.store.add(number, record)).start()

        here.store.on_missing(ask)
        found = SampleReader(here, seed=3).read(ReadPart([1, 0, 4], epoch=0, step=0, chunk=0))
    assert (asked, here.store.is_asking) == ([0], False)
    assert found[1].tolist() == [1, 0, 4]


def test_a_sample_that_nobody_has_any_more_is_told_of(tmp_path):
    with nodes_with(tmp_path, items(0, 3), items(3, 3)) as nodes:
        damaged(nodes, tmp_path)
        store = nodes.data[1].store
        store.on_missing(lambda number: store.refuse(number, RunError(f"sample {number} is gone")))
        with pytest.raises(RunError, match="sample 0 is gone"):
            SampleReader(nodes.data[1], seed=3).read(ReadPart([0], epoch=0, step=0, chunk=0))


def test_who_waits_for_a_lost_sample_is_let_go_with_its_generation(tmp_path):
    with nodes_with(tmp_path, items(0, 3), items(3, 3)) as nodes:
        damaged(nodes, tmp_path)
        store = nodes.data[1].store
        store.on_missing(lambda number: threading.Thread(target=store.let_go).start())
        with pytest.raises(RunError, match="sample 0 was waited for when its generation ended"):
            nodes.data[1].wait_for_samples([0])
