"""What a run writes is read while it goes on."""

import json

import pytest

from nfold.verbs.watching import folder_reading
from nfold.verbs.watching.folder_reading import LossReader, last_lines


def line(step, loss, metrics=None):
    return json.dumps({"step": step, "epoch": 1, "loss": loss, "metrics": metrics or {}, "at_s": 0.1}) + "\n"


@pytest.fixture
def history(tmp_path):
    return tmp_path / "history.jsonl"


def test_a_history_is_read_on_where_it_was_left(tmp_path, history):
    reader = LossReader(tmp_path)
    assert reader.read() == ([], [])
    whole = line(1, 0.5) + line(1, 0.5, {"test_loss": 0.75, "accuracy": 0.1}) + line(2, 0.25)
    for end in (3, len(whole) - 4, len(whole)):
        history.write_text(whole[:end])
        found = reader.read()
    assert found == ([(1, 0.5), (2, 0.25)], [(1, 0.75)])


def test_a_history_that_was_cut_is_read_anew(tmp_path, history):
    history.write_text(line(1, 0.5) + line(2, 0.25))
    reader = LossReader(tmp_path)
    reader.read()
    aside = tmp_path / "aside"
    aside.write_text(line(1, 0.5) + line(2, 0.125))
    aside.rename(history)
    assert reader.read() == ([(1, 0.5), (2, 0.125)], [])
    history.write_text(line(1, 0.5))
    assert reader.read() == ([(1, 0.5)], [])


def test_a_long_history_comes_by_and_by_and_is_thinned(tmp_path, history, monkeypatch):
    monkeypatch.setattr(folder_reading, "MOST_POINTS", 10)
    monkeypatch.setattr(folder_reading, "READ_BYTES", 1000)
    history.write_text("".join(line(step, 0.5) for step in range(1, 101)))
    reader, lasts = LossReader(tmp_path), []
    while not lasts or lasts[-1] < 97:
        trained, _ = reader.read()
        assert len(trained) <= 10
        lasts.append(trained[-1][0])
    assert lasts[0] < 20


def test_metrics_that_are_no_numbers_have_no_point(tmp_path, history):
    history.write_text(line(1, 0.5, {"test_loss": None}) + line(1, 0.5, {"accuracy": 0.5}))
    assert LossReader(tmp_path).read() == ([], [])


def test_the_end_of_a_log_is_whole_lines(tmp_path, monkeypatch):
    assert last_lines(tmp_path) == []
    log = tmp_path / "log.txt"
    log.write_bytes(b"first\n" + b"\xff" * 20 + b"\nlast\n")
    assert last_lines(tmp_path) == ["first", "�" * 20, "last"]
    monkeypatch.setattr(folder_reading, "TAIL_BYTES", 10)
    assert last_lines(tmp_path) == ["last"]
    monkeypatch.setattr(folder_reading, "TAIL_BYTES", 1000)
    monkeypatch.setattr(folder_reading, "TAIL_LINES", 2)
    assert last_lines(tmp_path) == ["�" * 20, "last"]
