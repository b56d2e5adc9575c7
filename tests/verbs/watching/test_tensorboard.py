"""Curves as TensorBoard reads them."""

import math
import threading
from pathlib import Path

import pytest
from event_reading import check, read_events, read_points

from nfold.errors import PlanError
from nfold.runtime.control import commands as cmd
from nfold.verbs.jobs.run_figures import RunFigures
from nfold.verbs.watching import event_writer
from nfold.verbs.watching.event_records import scalars_record, version_record
from nfold.verbs.watching.event_writer import EventWriter
from nfold.verbs.watching.tensorboard import TensorBoard


def test_the_reader_here_knows_the_checksum():
    check(
        b"123456789",
        ((0xE3069283 >> 15 | 0xE3069283 << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little"),
    )


def test_a_record_is_read_back(tmp_path):
    values = {"loss": 0.5, "größe/" + "x" * 200: math.nan, "large": 1e300}
    path = tmp_path / "a.tfevents"
    path.write_bytes(version_record(1.5) + scalars_record(2.5, 3_000_000_000, values))
    version, event = read_events(path)
    assert (version.at, version.version) == (1.5, "brain.Event:2")
    assert (event.at, event.step, event.values["loss"], event.values["large"]) == (2.5, 3_000_000_000, 0.5, math.inf)
    assert math.isnan(event.values["größe/" + "x" * 200])


def written(folder, *happenings, goes_on=False, now=lambda: 7.0):
    board = TensorBoard(folder, "run-1", goes_on=goes_on, now=now)
    with board.opened(pytest.fail):
        for happening in happenings:
            board.take(happening)
    return read_points(folder / "run-1")


def test_steps_and_evaluations_have_points(tmp_path, happenings):
    points = written(
        tmp_path / "tb", happenings.planned(), happenings.step_done(0, 0.5), happenings.step_done(1, 0.25),
        cmd.Evaluated(step=2, epoch=0, metrics={"accuracy": 0.75}),
    )  # fmt: skip
    assert points == {"loss": [(1, 0.5), (2, 0.25)], "accuracy": [(2, 0.75)]}


def test_a_run_that_goes_on_has_each_step_once(tmp_path, happenings):
    written(tmp_path, happenings.planned(), *(happenings.step_done(step, 0.5) for step in range(5)))
    (first,) = (tmp_path / "run-1").iterdir()
    first.write_bytes(first.read_bytes()[:-3])  # killed in the middle of a record
    again = (happenings.planned(first_step=3), happenings.step_done(3, 0.25), happenings.step_done(4, 0.25))
    points = written(tmp_path, *again, goes_on=True, now=lambda: 6.0)  # a clock that was set back
    assert points == {"loss": [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.25), (5, 0.25)]}
    assert len(list((tmp_path / "run-1").iterdir())) == 2


@pytest.mark.timeout(30)
def test_what_is_before_a_checkpoint_is_written_with_it(tmp_path, happenings, monkeypatch):
    monkeypatch.setattr(event_writer, "WRITTEN_S", 1e6)
    board = TensorBoard(tmp_path, "run-1", goes_on=False)
    with board.opened(pytest.fail):
        for happening in (happenings.planned(), happenings.step_done(0), cmd.KeepCheckpoint(step=1, file=None)):
            board.take(happening)
        while not read_points(tmp_path / "run-1"):
            threading.Event().wait(0.001)


def test_the_pace_is_drawn_where_there_is_some(tmp_path, happenings):
    board, figures = TensorBoard(tmp_path, "run-1", goes_on=False), RunFigures()
    with board.opened(pytest.fail):
        board.show(figures.state(1.0))
        for happening in (happenings.planned(), happenings.step_done(0)):
            figures.take(happening, at=1.0)
        for _ in range(2):
            board.show(figures.state(1.0))
    points = read_points(tmp_path / "run-1")
    assert points["nfold/samples_per_s"] == [(1, pytest.approx(160))], "nothing is new the second time"
    assert points["nfold/step_s/exposed_communication"] == [(1, pytest.approx(0.03))]


def test_a_run_that_did_no_step_leaves_no_folder(tmp_path, happenings):
    assert written(tmp_path / "a" / "b", happenings.planned()) == {}
    assert list(tmp_path.iterdir()) == []


def test_another_run_in_the_folder_is_left_as_it_is(tmp_path, happenings):
    before = written(tmp_path, happenings.planned(), happenings.step_done(0))
    with pytest.raises(PlanError, match=r"run-1 holds another run .* draw both as one\. Use another one"):
        written(tmp_path, happenings.step_done(0))
    assert read_points(tmp_path / "run-1") == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PlanError, match=r"--tensorboard .*file: cannot write to .*/file/run-1: Not a directory\. Use"):
        written(tmp_path / "file")


def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(event_writer, "WRITTEN_S", 0.0)
    notes, told = [], threading.Event()

    def note(text):
        notes.append(text)
        told.set()

    with open("/dev/full", "ab", buffering=0) as full:
        monkeypatch.setattr(EventWriter, "_open", lambda _: full)
        writer = EventWriter(tmp_path, note)
        writer.add(lambda: b"some")
        assert told.wait(10)
        writer.add(lambda: pytest.fail("it was told that nothing more is written"))
        writer.end()
    assert notes == [f"note: TensorBoard sees no more of this run: cannot write to {tmp_path}: No space left on device"]


def test_a_disk_that_does_not_answer_holds_nothing_up(tmp_path, monkeypatch):
    monkeypatch.setattr(event_writer, "END_S", 0.05)
    monkeypatch.setattr(event_writer, "MOST_WAITING", 3)
    monkeypatch.setattr(event_writer, "WRITTEN_S", 0.0)
    answers, asked, notes = threading.Event(), threading.Event(), []

    def slow():
        asked.set()
        answers.wait(10)
        return b""

    writer = EventWriter(Path(tmp_path), notes.append)
    writer.add(slow)
    assert asked.wait(10)
    for _ in range(5):
        writer.add(lambda: b"")
    writer.end()
    answers.set()
    assert notes == [
        f"note: TensorBoard sees no more of this run: cannot write to {tmp_path}: its disk is 3 records behind"
    ]
