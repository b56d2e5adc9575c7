"""Documents by their keys: bounded, whole, and absent rather than wrong."""

import json
import os
import threading

import pytest

from nfold.cache.measurement_store import FORMAT, Store


def aged(folder, key, age_s):
    path = folder / f"{key}.json"
    os.utime(path, (path.stat().st_mtime - age_s,) * 2)


def test_a_document_is_found_again(tmp_path):
    Store(tmp_path / "new" / "nfold").write("a", {"graph": [1, 2.5, None]})
    assert Store(tmp_path / "new" / "nfold").read("a") == {"graph": [1, 2.5, None]}
    assert Store(tmp_path / "new" / "nfold").read("b") is None


def test_the_last_document_counts(tmp_path):
    store = Store(tmp_path)
    store.write("a", {"at": 1})
    store.write("a", {"at": 2})
    assert store.read("a") == {"at": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


BROKEN = {
    "empty": b"",
    "cut": b'{"format": 1, "key": "a", "docu',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "no document": json.dumps({"format": FORMAT, "key": "a"}).encode(),
    "another format": json.dumps({"format": FORMAT + 1, "key": "a", "document": {}}).encode(),
    "another key": json.dumps({"format": FORMAT, "key": "b", "document": {}}).encode(),
    "very deep": b"[" * 200_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_absent(tmp_path, content):
    store = Store(tmp_path)
    (tmp_path / "a.json").write_bytes(content)
    assert store.read("a") is None
    store.write("a", {"at": 1})
    assert store.read("a") == {"at": 1}


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "nfold").write_text("no folder")
    store = Store(tmp_path / "nfold")
    store.write("a", {"at": 1})
    assert store.read("a") is None


def test_without_a_folder_nothing_is_kept():
    store = Store(None)
    store.write("a", {"at": 1})
    assert store.read("a") is None


def test_what_was_not_used_for_longest_goes(tmp_path):
    store = Store(tmp_path, most_entries=2)
    for age_s, key in ((30, "a"), (20, "b")):
        store.write(key, {"of": key})
        aged(tmp_path, key, age_s)
    assert store.read("a") == {"of": "a"}  # from here on it is the younger one
    store.write("c", {"of": "c"})
    assert {path.stem for path in tmp_path.iterdir()} == {"a", "c"}


def test_bytes_are_bounded(tmp_path):
    store = Store(tmp_path, most_bytes=300)
    for age_s, key in ((30, "a"), (20, "b"), (10, "c")):
        store.write(key, {"of": "x" * 60})
        aged(tmp_path, key, age_s)
    assert {path.stem for path in tmp_path.iterdir()} == {"b", "c"}
    store.write("d", {"of": "x" * 300})
    assert store.read("d") is None
    assert store.read("c") is not None


def test_halves_that_others_left_go_as_documents_do(tmp_path):
    (tmp_path / "x.half").write_bytes(b"half")
    os.utime(tmp_path / "x.half", (1, 1))
    (tmp_path / "other").write_bytes(b"not ours")
    Store(tmp_path, most_entries=1).write("a", {})
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "other"}


def test_several_may_write_at_once(tmp_path):
    """Whoever reads meanwhile finds one of the documents whole."""
    found, begin = [], threading.Barrier(5)

    def write(number):
        store = Store(tmp_path, most_entries=3)
        begin.wait()
        for _ in range(30):
            store.write("a", {"by": [number] * 200})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    begin.wait()
    while any(writer.is_alive() for writer in writers):
        found.append(Store(tmp_path).read("a"))
    for writer in writers:
        writer.join()
    found.append(Store(tmp_path).read("a"))
    assert found[-1] is not None
    assert all(len(set(each["by"])) == 1 for each in found if each is not None)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json"}
