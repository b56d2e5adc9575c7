"""What a run leaves in its folder when something goes wrong."""

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from nfold.core import codec
from nfold.core.codec import CodecError
from nfold.core.member_event import MemberEvent
from nfold.core.run_state import RunState
from nfold.errors import CheckpointError, PlanError
from nfold.verbs.run_folder import history
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.whole_lines import append_lines


class CutOff:
    """A checkpoint that ends in the middle."""

    def model(self):
        yield b"half"
        raise CheckpointError("it was cut off")


def test_half_a_model_does_not_stay(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(CheckpointError, match="it was cut off"):
        folder.ensure_model(CutOff())
    assert not list(tmp_path.iterdir())


def test_jobs_that_begin_at_once_get_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def begin(_):
        together.wait()
        return RunFolder.create(None, "digits").path.name

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(begin, range(8))) == [f"digits-{number}" for number in range(1, 9)]


ENTRY = {"step": 1, "epoch": 1, "loss": 0.5, "metrics": {}, "at_s": 0.1}


def test_half_a_line_at_the_end_was_being_written(tmp_path):
    path = tmp_path / "history.jsonl"
    history.append(path, [ENTRY, {**ENTRY, "step": 2}])
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert [entry["step"] for entry in history.read(path)] == [1, 2][: whole[: end + 1].count(b"}\n")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "line 2: it is not JSON: Expecting value"),
        (b"\xff\xfe{}", "line 2: it is not JSON: 'utf-8' codec"),
        (b"5", "line 2: expected an object, got int"),
        (b'{"epoch": 1}', "line 2: 'step' is missing"),
        (b'{"step": "1", "epoch": 1, "loss": 1, "metrics": {}}', "line 2: 'step' is of type str"),
    ],
)
def test_a_damaged_history_is_named_and_not_taken_for_a_short_one(tmp_path, line, said):
    folder = RunFolder(tmp_path)
    folder.append_history([ENTRY])
    with open(tmp_path / "history.jsonl", "ab") as file:
        file.write(line + b"\n")
    folder.append_history([{**ENTRY, "step": 3}])

    for read in (folder.history, lambda: folder.last_step, lambda: folder.cut_history(1)):
        with pytest.raises(CodecError, match=rf"history\.jsonl, {said}.*\. Put a copy of the file back, or"):
            read()


def test_a_name_that_is_too_long_is_refused_and_leaves_nothing(tmp_path):
    path = tmp_path / "new" / ("n" * 300)
    with pytest.raises(PlanError, match=r"cannot make the run folder .*nnn: File name too long\. Use another --out"):
        RunFolder.create(path, "digits")
    with pytest.raises(PlanError, match="there is no run folder"):
        RunFolder.open(path)
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_a_run_that_never_began_is_no_foreign_file(tmp_path):
    codec.save(RunState(at=1.0, phase="failed"), tmp_path / "state.json")
    RunFolder.create(tmp_path, "digits").release()


def test_a_state_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "state.json").write_text('{"phase": "failed"}')
    with pytest.raises(PlanError, match=r"it holds state\.json"):
        RunFolder.create(tmp_path, "digits")


EVENT = MemberEvent(at=1.0, kind="join", who="n1", step=3, ranks=2, pause_s=0.5)


def test_a_row_replaces_half_of_one_that_a_killed_writer_left(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_event(EVENT)
    whole = (tmp_path / "events.jsonl").read_bytes()
    for end in range(len(whole)):
        (tmp_path / "events.jsonl").write_bytes(whole + whole[:end])
        folder.append_event(replace(EVENT, who="n2"))
        assert [event.who for event in folder.events()] == ["n1", "n2"]


def test_a_disk_that_is_full_takes_no_half_of_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    append_lines(path, b"1\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, before[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            append_lines(path, b"23456789\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"1\n"


def test_a_damaged_row_is_named(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_event(EVENT)
    append_lines(tmp_path / "events.jsonl", b'{"schema": {"schema":\n')
    with pytest.raises(CodecError, match=r"events\.jsonl, line 2: not JSON: .* Remove that line"):
        folder.events()
