"""What a program reads while it is loaded is seen, however it does that."""

import io
import os
import sys
from types import ModuleType

import pytest

from nfold.cache.read_recorder import ReadRecorder, content_of


@pytest.fixture
def recorder():
    return ReadRecorder()


READINGS = {
    "open": lambda path: open(path).close(),
    "Path": lambda path: path.read_bytes(),
    "io": lambda path: io.FileIO(path).close(),
    "os": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "bytes": lambda path: open(os.fsencode(path), "rb").close(),
}


@pytest.mark.parametrize("read", READINGS.values(), ids=READINGS)
def test_files_that_are_read_are_seen(recorder, tmp_path, read):
    path = tmp_path / "settings.yaml"
    path.write_text("width: 3")
    with recorder.watching():
        read(path)
    before = recorder.files([])
    assert list(before) == [str(path)]
    assert before[str(path)] == content_of(str(path))


def test_files_that_are_written_and_those_read_before_or_after_are_not(recorder, tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).write_text(name)
    (tmp_path / "before").read_text()
    with recorder.watching():
        (tmp_path / "log").write_text("begun")
        with open(tmp_path / "log", "a") as log:
            log.write("more")
    (tmp_path / "after").read_text()
    assert recorder.files([]) == {}


def test_a_file_that_is_not_there_counts(recorder, tmp_path):
    """If it is there the next time, the program may be another."""
    with recorder.watching(), pytest.raises(FileNotFoundError):
        (tmp_path / "maybe").read_text()
    assert recorder.files([]) == {str(tmp_path / "maybe"): "gone"}


def test_nobody_knows_what_was_read_of_a_file_that_has_changed_since(recorder, tmp_path):
    path = tmp_path / "helper.py"
    path.write_text("width = 3")
    with recorder.watching():
        path.read_text()
    path.write_text("width = 30")
    assert recorder.files([]) is None


def test_modules_count_by_their_source(recorder, tmp_path):
    path = tmp_path / "helper.py"
    path.write_text("width = 3")
    module = ModuleType("helper")
    module.__file__ = str(path)
    first = recorder.files([module])
    state = path.stat()
    path.write_text("width = 4")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert recorder.files([module]) != first, "as many bytes at the same time, but others"


def test_modules_that_load_themselves_are_left_alone(recorder):
    class Lazy(ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

    assert recorder.files([Lazy("lazy")]) == {}


def test_bytecode_counts_as_its_source(recorder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "seen_module.py").write_text("width = 3")
    for _ in range(2):
        with recorder.watching():
            import seen_module  # noqa: F401  # ty: ignore
        del sys.modules["seen_module"]
    assert {name for name in recorder.files([]) if "seen_module" in name} == {str(tmp_path / "seen_module.py")}


ASKING = {
    "get": lambda: os.environ.get("NFOLD_SEEN"),
    "getenv": lambda: os.getenv("NFOLD_SEEN"),
    "in": lambda: "NFOLD_SEEN" in os.environ,
    "setdefault": lambda: os.environ.setdefault("NFOLD_SEEN", "wide"),
}


@pytest.mark.parametrize("value", ["wide", None])
@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_variables_that_are_asked_for_are_seen(recorder, monkeypatch, ask, value):
    monkeypatch.setenv("NFOLD_SEEN", "before")  # so that it is as before in the end
    if value:
        monkeypatch.setenv("NFOLD_SEEN", value)
    else:
        monkeypatch.delenv("NFOLD_SEEN")
    kind = type(os.environ)
    with recorder.watching():
        ask()
    assert recorder.variables({}) == {"NFOLD_SEEN": value}
    assert type(os.environ) is kind


def test_what_was_there_at_first_counts(recorder, monkeypatch):
    monkeypatch.setenv("NFOLD_SEEN", "wide")
    with recorder.watching():
        os.getenv("NFOLD_SEEN")
        monkeypatch.setenv("NFOLD_SEEN", "deep")
        os.getenv("NFOLD_SEEN")
    assert recorder.asked == {"NFOLD_SEEN": "wide"}


LOOKING = {"dict": lambda: dict(os.environ), "copy": os.environ.copy, "items": lambda: list(os.environ.items())}


@pytest.mark.parametrize("look", LOOKING.values(), ids=LOOKING)
def test_who_looks_through_all_may_hang_on_any(recorder, look):
    """But for what differs from terminal to terminal; asked for by its name, that counts, too."""
    with recorder.watching():
        look()
    assert recorder.asked == {}
    mine = {"MY_WIDTH": "3", "_WIDTH": "3", "TERM_WIDTH": "3"}
    assert recorder.variables({**mine, "TERM": "xterm"}) == mine
    with recorder.watching():
        os.environ.get("TERM")
    assert "TERM" in recorder.asked


def test_an_environment_of_somebodys_own_counts_whole(recorder, monkeypatch):
    monkeypatch.setattr(os, "environ", {"MY_WIDTH": "3"})
    with recorder.watching():
        os.environ.get("MY_WIDTH")
    assert recorder.variables({"MY_WIDTH": "3"}) == {"MY_WIDTH": "3"}


def test_what_steers_numeric_libraries_counts_always(recorder):
    assert recorder.variables({"OMP_NUM_THREADS": "1", "HOME": "/root"}) == {"OMP_NUM_THREADS": "1"}
