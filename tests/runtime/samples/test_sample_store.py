"""The store keeps what it was given through crashes at any byte, within its room, for one process at a time."""

import contextlib
import itertools
import os
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.errors import ClusterError, InternalError, RunError
from nfold.planning.residency.model.spans import is_in, of_numbers
from nfold.runtime.samples import kept_files as storing
from nfold.runtime.samples.file_names import lies_below
from nfold.runtime.samples.journal import Entry, header, journal_of, packed
from nfold.runtime.samples.kept_files import StoreInUse, lock
from nfold.runtime.samples.record import Record
from nfold.runtime.samples.sample_store import SampleStore

SAMPLES = {7: Record(b"seven"), 2: Record(b"two!", "cats/2.jpg"), 9: Record(b"nine" * 3), 3: Record(b"3", "a b")}
NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), max_size=8).filter(
    lambda name: not name or lies_below(name)
)


def put_into(store, samples):
    for number, record in samples.items():
        store.add(number, record)


def held_by(store):
    spans = [number for first, end in store.numbers() for number in range(first, end)]
    return {number: Record(store.bytes_of(number), store.name(number)) for number in spans}


class Killed(BaseException):
    """What a process that is killed would do: nothing more."""


@pytest.fixture
def killed_after(monkeypatch):
    """Let a process end after so many bytes that it has written."""
    write = os.pwrite
    left = [0]

    def written(descriptor, data, offset):
        done = write(descriptor, data[: left[0]], offset) if left[0] else 0
        left[0] -= done
        if done < len(data):
            raise Killed
        return done

    def budget(num_bytes):
        left[0] = num_bytes
        monkeypatch.setattr(storing.os, "pwrite", written)

    budget.lifted = lambda: monkeypatch.setattr(storing.os, "pwrite", write)
    return budget


def test_samples_are_there_afterwards_and_in_the_next_process(tmp_path):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    assert held_by(store) == SAMPLES
    assert store.path(2) == tmp_path / "files" / "2" / "cats" / "2.jpg"
    assert store.path(2).read_bytes() == b"two!"
    assert store.numbers() == ((2, 4), (7, 8), (9, 10))
    store.close()
    again = SampleStore(tmp_path)
    assert held_by(again) == SAMPLES
    assert again.used_bytes == sum(len(record.data) for record in SAMPLES.values())
    again.close()


def test_a_crash_at_each_byte_loses_doubles_and_changes_nothing(tmp_path, killed_after):
    folder, at = tmp_path / "0", 0
    while True:
        killed_after(1000)
        store = SampleStore(folder)
        killed_after(at)
        done = {}
        try:
            for number, record in SAMPLES.items():
                store.add(number, record)
                done[number] = record
        except Killed:
            pass
        else:
            break
        finally:
            store.close()
        killed_after.lifted()
        store = SampleStore(folder)
        assert done.items() <= held_by(store).items() <= SAMPLES.items()
        assert len(held_by(store)) <= len(done) + 1
        put_into(store, SAMPLES)
        assert held_by(store) == SAMPLES
        store.close()
        at, folder = at + 1, tmp_path / str(at + 1)
    assert at > 100


def test_a_crash_while_a_store_is_made_leaves_one_that_can_be_used(tmp_path, killed_after):
    for at in range(len(header(0)) + 30):
        killed_after(at)
        with contextlib.suppress(Killed):
            SampleStore(tmp_path / str(at)).close()
        killed_after.lifted()
        store = SampleStore(tmp_path / str(at))
        put_into(store, SAMPLES)
        assert held_by(store) == SAMPLES
        store.close()


def test_what_a_power_failure_lost_is_dropped(tmp_path):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    store.close()
    with open(tmp_path / "items-0", "r+b") as file:
        file.seek(len(b"seven"))
        file.write(bytes(4))
    store = SampleStore(tmp_path)
    assert held_by(store) == {number: SAMPLES[number] for number in (7, 2)}
    store.close()


def test_what_the_disk_changes_later_is_told(tmp_path):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    (tmp_path / "items-0").write_bytes(b"sevem")
    with pytest.raises(RunError, match=r"sample 7 .* is not what was written"):
        store.bytes_of(7)
    assert 7 not in store
    store.close()


def test_a_file_that_was_changed_is_told_at_its_first_use_and_fetched_again(tmp_path):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    (tmp_path / "files" / "2" / "cats" / "2.jpg").write_bytes(b"TWO!")
    with pytest.raises(RunError, match=r"sample 2 .* is not what was written .* fetched again"):
        store.path(2)
    assert 2 not in store
    store.add(2, SAMPLES[2])
    assert store.path(2).read_bytes() == b"two!"
    assert held_by(store) == SAMPLES
    store.close()


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_files_that_somebody_removed_or_cut_off_are_not_there_any_more(tmp_path, monkeypatch, change):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    store.close()
    change(tmp_path / "files" / "2" / "cats" / "2.jpg")
    monkeypatch.setattr(storing, "UNSURE_BYTES", 2)
    store = SampleStore(tmp_path)
    assert held_by(store) == {number: record for number, record in SAMPLES.items() if number != 2}
    store.close()


def test_what_other_runs_have_brought_is_dropped(tmp_path):
    ours, theirs = [(7, 9, "ours")], [(7, 8, "theirs"), (8, 12, "more")]
    kept = [
        (ours, {2, 3, 7}),  # 7 was put there when nobody had brought anything
        (ours, {2, 3, 7}),
        ([*ours, (9, 10, "more")], {2, 3, 7, 9}),
        (theirs, {2, 3}),
        ([], {2, 3}),
    ]
    for index, (brought, numbers) in enumerate(kept):
        with contextlib.closing(SampleStore(tmp_path / "store")) as store:
            store.keep_brought(7, brought)
            assert {*held_by(store)} == numbers - ({2, 3, 7} if index == 0 else {9} if index == 2 else set())
            put_into(store, {number: SAMPLES[number] for number in numbers})


def test_a_store_of_nothing_leaves_nothing_behind(tmp_path):
    SampleStore(tmp_path / "store").close()
    assert [*tmp_path.iterdir()] == []


def test_what_is_not_kept_is_removed_at_the_end(tmp_path):
    store = SampleStore(tmp_path / "store", is_kept=False)
    put_into(store, SAMPLES)
    store.close()
    assert [*tmp_path.iterdir()] == []


def test_a_full_store_says_how_full_it_is(tmp_path):
    store = SampleStore(tmp_path, most_bytes=20)
    store.add(1, Record(bytes(15)))
    with pytest.raises(ClusterError, match=r"sample 2 \(6 B\) has no room .* may hold 20 B and holds 15 B"):
        store.add(2, Record(bytes(6)))
    store.add(3, Record(bytes(5)))
    store.add(1, Record(bytes(15)))
    assert store.numbers() == ((1, 2), (3, 4))
    store.close()


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    store = SampleStore(tmp_path)
    store.add(1, Record(b"one"))

    def full(descriptor, data, offset):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storing.os, "pwrite", full)
        with pytest.raises(ClusterError, match=r"sample 2 .*No space left on device.*NFOLD_DATA"):
            store.add(2, Record(b"two"))
    store.add(2, Record(b"two"))
    assert held_by(store) == {1: Record(b"one"), 2: Record(b"two")}
    store.close()


def test_samples_that_are_not_needed_make_room(tmp_path):
    store = SampleStore(tmp_path, most_bytes=25)
    put_into(store, SAMPLES)
    store.drop_others(((3, 4), (7, 8)))
    assert held_by(store) == SAMPLES
    store.add(5, Record(b"five more"))
    store.drop_others(((3, 4), (5, 6), (7, 8)))
    kept = {7: SAMPLES[7], 3: SAMPLES[3], 5: Record(b"five more")}
    assert held_by(store) == kept
    assert not (tmp_path / "files" / "2").exists()
    with pytest.raises(ClusterError, match="may hold 25 B and holds 15 B"):
        store.add(6, Record(bytes(11)))
    store.close()
    store = SampleStore(tmp_path)
    assert held_by(store) == kept
    assert [path.name for path in tmp_path.glob("items-*")] == ["items-1"]
    store.close()


def test_a_crash_at_each_byte_of_making_room_keeps_what_is_needed(tmp_path, killed_after):
    needed, at, is_through = {7: SAMPLES[7], 3: SAMPLES[3]}, 0, False
    while not is_through:
        folder = tmp_path / str(at)
        killed_after(1000)
        store = SampleStore(folder, most_bytes=25)
        put_into(store, SAMPLES)
        store.drop_others(((3, 4), (7, 8)))
        killed_after(at)
        with contextlib.suppress(Killed):
            store.add(5, Record(b"five more"))
            is_through = True
        store.close()
        killed_after.lifted()
        store = SampleStore(folder, most_bytes=25)
        assert needed.items() <= held_by(store).items() <= {**SAMPLES, 5: Record(b"five more")}.items()
        store.drop_others(((3, 4), (5, 6), (7, 8)))
        store.add(5, Record(b"five more"))
        assert needed.items() <= held_by(store).items()
        assert held_by(store)[5] == Record(b"five more")
        store.close()
        at += 1
    assert at > 100


@given(st.sets(st.integers(0, 50)))
def test_numbers_are_found_in_their_spans(numbers):
    spans = of_numbers(numbers)
    assert [number for number in range(-1, 52) if is_in(spans, number)] == sorted(numbers)


def test_one_process_at_a_time_has_it(tmp_path):
    store = SampleStore(tmp_path)
    with pytest.raises(StoreInUse, match=f"used by process {os.getpid()}"):
        SampleStore(tmp_path)
    store.close()
    SampleStore(tmp_path).close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match=f"{tmp_path / 'file' / 'store'}: Not a directory"):
        SampleStore(tmp_path / "file" / "store")


def test_who_waits_gets_the_sample_or_the_reason(tmp_path):
    store = SampleStore(tmp_path)
    with pytest.raises(InternalError, match="sample 5 is neither"):
        store.wait(5)
    store.expect(is_expecting=True)
    came, raised = threading.Event(), []

    def wait():
        store.wait(5)
        came.set()
        try:
            store.wait(6)
        except RunError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not came.is_set()
    store.add(4, Record(b"4"))
    store.add(5, Record(b"5"))
    assert came.wait(10)
    gone = RunError("no more")
    store.expect(is_expecting=False, failure=gone)
    waiting.join(10)
    assert raised == [gone]
    store.close()


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), NAMES)), st.data())
def test_a_journal_is_read_up_to_its_last_whole_entry(given_entries, data):
    entries = [Entry(number, offset, length, zlib.crc32(b""), name) for number, offset, length, name in given_entries]
    journal = header(5) + b"".join(map(packed, entries))
    assert journal_of(journal) == (5, entries, len(journal))
    cut = data.draw(st.integers(len(header(5)), len(journal)))
    volume, found, end = journal_of(journal[:cut])
    assert (volume, found) == (5, entries[: len(found)])
    assert end == len(header(5)) + sum(len(packed(each)) for each in found) <= cut
    if cut > end:
        garbled = bytearray(journal)
        garbled[end] ^= 1
        assert journal_of(bytes(garbled)).entries == found


@given(st.sets(st.integers(0, 50)))
def test_spans_name_each_number_once(numbers):
    spans = of_numbers(numbers)
    assert [number for first, end in spans for number in range(first, end)] == sorted(numbers)
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(spans))


def test_what_others_put_into_its_folder_is_passed_by(tmp_path):
    store = SampleStore(tmp_path)
    put_into(store, SAMPLES)
    store.close()
    for name in (".DS_Store", "7.bak", "12"):
        (tmp_path / "files" / name).write_text("not ours")
    (tmp_path / "files" / "notes").mkdir()
    again = SampleStore(tmp_path)
    assert held_by(again) == SAMPLES
    again.close()


def test_who_opens_a_store_that_is_just_being_removed_does_not_get_it(tmp_path):
    (tmp_path / "lock").write_text("")
    with open(tmp_path / "lock", "r+b") as file:
        (tmp_path / "lock").unlink()
        with pytest.raises(StoreInUse):
            lock(tmp_path, file.fileno())
        (tmp_path / "lock").write_text("another one")
        with pytest.raises(StoreInUse):
            lock(tmp_path, file.fileno())
