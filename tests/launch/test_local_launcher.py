"""Ranks as processes: how they ended, and that nothing of them stays behind.

A pipe with a name tells when a process is there and, by its end, when the last one that holds it is gone.
"""

import os
import threading
from pathlib import Path

import pytest

from nfold.errors import RunError
from nfold.launch.child import describe_exit
from nfold.launch.local_launcher import LocalLauncher
from nfold.launch.output import LAST_BYTES, LINE_BYTES, MOST_BYTES, Output

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def launch(tmp_path):
    """Start shell commands as ranks 0, 1, ..; all are gone after the test."""
    launchers = []

    def start(*commands, log=tmp_path / "log.txt"):
        for command in commands:
            launchers.append(LocalLauncher(["sh", "-c", command, "rank"], log))
            launchers[-1].start(0, "127.0.0.1", 4000, "secret")
        return launchers[-1]

    yield start
    for launcher in launchers:
        launcher.stop(0.0)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("exit 0", "exited with code 0"),
        ("exit 3", "exited with code 3"),
        ("kill -KILL $$", "was killed by signal 9 (SIGKILL)"),
        ("kill -TERM $$", "was killed by signal 15 (SIGTERM)"),
        ("kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"),
    ],
)
def test_how_a_rank_ended(launch, command, text):
    launcher = launch(command)
    assert launcher.ended(0, 10.0) == text
    launcher.stop(0.0)
    assert launcher.ended(0, 0.0) == text, "stopping changes nothing for one that has ended"


def test_who_was_let_go_is_not_known_any_more(launch):
    launcher = launch("exit 0")
    launcher.release(0)
    launcher.release(0)
    assert launcher.ended(0, 0.0) == "was let go"


def test_a_signal_without_a_name():
    assert describe_exit(-99) == "was killed by signal 99 (unknown)"


def test_a_rank_that_runs_has_not_ended(launch, pipe):
    launcher = launch(f"echo there > {pipe}; exec sleep 1000")
    assert pipe.read_text() == "there\n"
    assert launcher.ended(0, 0.0) is None
    launcher.stop(0.0)
    assert launcher.ended(0, 0.0) == "was killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize("has_log", [True, False])
def test_the_last_lines_are_what_was_printed_since_the_start_as_plain_text(launch, tmp_path, has_log):
    log = tmp_path / "log.txt"
    log.write_text("of an earlier run\n")
    launcher = launch(r"printf 'one\n\n\033[31mtwo\007\nthree\n'", log=log if has_log else None)
    launcher.ended(0, 10.0)
    assert launcher.last_lines() == [" [31mtwo", "three"]
    launcher.stop(0.0)
    assert launcher.last_lines() == []


def test_nothing_is_printed_before_the_start(launch, tmp_path):
    (tmp_path / "log.txt").write_text("of an earlier run\n")
    launcher = launch("exit 1")
    launcher.ended(0, 10.0)
    assert launcher.last_lines() == []


@pytest.mark.parametrize("letting_go", [lambda launcher: launcher.stop(0.0), lambda launcher: launcher.release(0)])
@pytest.mark.parametrize("end", ["wait", "exit 0", "kill -KILL $$"])
def test_what_a_rank_started_ends_with_it(launch, pipe, end, letting_go):
    launcher = launch(f"exec 3> {pipe}; (sleep 1000 & sleep 1000) & echo there >&3; {end}")
    with open(pipe) as file:
        assert file.readline() == "there\n"
        letting_go(launcher)
        assert file.read() == "", "the end of the pipe: no grandchild holds it any more"


def test_no_group_is_signalled_once_its_number_may_be_anothers(launch, monkeypatch):
    launcher = launch("exit 3")
    assert launcher.ended(0, 10.0) == "exited with code 3"
    signalled, kill = [], os.killpg

    def note_and_kill(group, number):
        signalled.append((group, Path(f"/proc/{group}/stat").read_text().split()[2]))
        kill(group, number)

    monkeypatch.setattr("nfold.launch.local_launcher.os.killpg", note_and_kill)
    launcher.stop(0.0)
    launcher.stop(0.0)
    assert [state for _, state in signalled] == ["Z"], "its leader held the number until then, and no longer"


def test_how_a_rank_ended_can_be_asked_while_it_is_stopped(launch, pipe):
    launcher = launch(f"echo there > {pipe}; exec sleep 1000")
    pipe.read_text()
    told = []
    ears = [threading.Thread(target=lambda: told.append(launcher.ended(0, 10.0))) for _ in range(8)]
    for ear in ears:
        ear.start()
    launcher.stop(0.0)
    for ear in ears:
        ear.join(10)
    assert told == ["was killed by signal 9 (SIGKILL)"] * 8


def test_stopping_ends_all_ranks_and_may_be_done_again(tmp_path, pipe):
    launcher = LocalLauncher(["sh", "-c", f"exec 3> {pipe}; echo there >&3; exec sleep 1000"], None)
    launcher.stop(0.0)
    for rank in range(3):
        launcher.start(rank, "127.0.0.1", 4000, "secret")
    with open(pipe) as file:
        assert [file.readline() for _ in range(3)] == ["there\n"] * 3
        launcher.stop(0.0)
        assert file.read() == ""
    launcher.stop(1.0)
    assert {launcher.ended(rank, 0.0) for rank in range(3)} == {"was killed by signal 9 (SIGKILL)"}


def test_a_rank_that_is_leaving_has_its_grace(launch, pipe):
    launcher = launch(f"read word < {pipe}; exit 7")
    pipe.write_text("go\n")
    launcher.stop(10.0)
    assert launcher.ended(0, 0.0) == "exited with code 7"


def test_the_grace_is_shared_by_all_ranks(launch, pipe):
    now = iter([0.0, 5.0, 5.0, 5.0])
    launcher = LocalLauncher(["sh", "-c", f"echo > {pipe}; exec sleep 1000"], None, clock=lambda: next(now))
    for rank in range(2):
        launcher.start(rank, "127.0.0.1", 4000, "secret")
        pipe.read_text()
    launcher.stop(1.0)
    assert launcher.ended(1, 0.0) == "was killed by signal 9 (SIGKILL)"


def test_what_ranks_print_is_appended_to_the_log(launch, tmp_path):
    (tmp_path / "log.txt").write_text("before\n")
    for command in ("echo one", "echo two >&2"):
        launcher = launch(command)
        launcher.ended(0, 10.0)
        launcher.stop(0.0)
    assert (tmp_path / "log.txt").read_text() == "before\n[0] one\n[0] two\n"


def test_lines_of_several_are_never_mixed_and_say_who_printed_them(tmp_path):
    output = Output(tmp_path / "log.txt")
    with output.file_of(0) as first, output.file_of(3) as other:
        os.write(first, b"beg")
        os.write(other, b"whole\n")
        os.write(first, b"un\nleft open")
        output.last_lines()
        lines = sorted((tmp_path / "log.txt").read_bytes().splitlines())
        assert lines == [b"[0] begun", b"[3] whole"], "a line that has no end has to wait"
    output.close()
    assert (tmp_path / "log.txt").read_bytes().endswith(b"\n[0] left open\n")


def test_who_comes_late_is_heard_while_others_print(tmp_path):
    output, log = Output(tmp_path / "log.txt"), tmp_path / "log.txt"
    with output.file_of(0) as early:
        os.write(early, b"early\n")
        with output.file_of(1) as late:
            os.write(late, b"late\n")
        while log.read_bytes().count(b"\n") < 2:
            threading.Event().wait(0.001)
    output.close()
    assert sorted(log.read_bytes().splitlines()) == [b"[0] early", b"[1] late"]


def test_a_line_without_an_end_is_cut(tmp_path):
    output = Output(tmp_path / "log.txt")
    with output.file_of(0) as file:
        os.write(file, b"x" * (LINE_BYTES + 1))
    output.close()
    assert (tmp_path / "log.txt").read_bytes() == b"[0] " + b"x" * LINE_BYTES + b"\n[0] x\n"


def test_a_log_takes_no_more_than_its_share_of_what_is_printed_and_says_what_it_lacks(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    output = Output(log, most_bytes=16, last_bytes=7)
    with output.file_of(0) as file:
        os.write(file, b"0123\n")
        assert output.last_lines() == ["0123"]
        assert log.read_bytes() == b"before\n[0] 0123\n", "what comes first is there at once"
        os.write(file, b"4567")
        os.write(file, b"89\nab\n")
        assert output.last_lines() == ["456789", "ab"]
    output.close()
    output.close()
    told = "\n[nfold: of what ranks printed after the first 16 bytes, 4 are left out here]\n"
    assert log.read_text() == f"before\n[0] 0123\n[0] 456{told}[0] ab\n"


def test_what_is_just_too_much_is_whole(tmp_path):
    output = Output(tmp_path / "log.txt", most_bytes=12, last_bytes=5)
    with output.file_of(0) as file:
        os.write(file, b"0123456789ab\n")
    output.close()
    assert (tmp_path / "log.txt").read_bytes() == b"[0] 0123456789ab\n"


def test_a_rank_that_prints_without_end_neither_stands_still_nor_fills_the_disk(launch, tmp_path):
    launcher = launch("head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert launcher.ended(0, 20.0) == "exited with code 0"
    assert launcher.last_lines()[-1] == "the end"
    launcher.stop(0.0)
    log = (tmp_path / "log.txt").read_bytes()
    lines = -(-30_000_000 // LINE_BYTES)
    left_out = 30_000_000 + 5 * lines + len(b"[0] the end\n") - MOST_BYTES - LAST_BYTES
    assert MOST_BYTES + LAST_BYTES < len(log) < MOST_BYTES + LAST_BYTES + 200
    assert f"after the first 10,000,000 bytes, {left_out:,} are left out here]".encode() in log
    assert log.endswith(b"x\n[0] the end\n")


def test_who_outlives_its_rank_and_prints_is_not_waited_for(launch, tmp_path, pipe):
    launcher = launch(f"setsid sh -c 'exec 3> {pipe}; echo there >&3; while echo more; do :; done' & wait")
    with open(pipe) as file:
        assert file.readline() == "there\n"
        launcher.stop(0.0)
        assert file.read() == "", "nobody reads any more what it prints, which ends it"


def test_a_rank_learns_where_to_dial_and_the_token_is_for_no_other_eyes(launch, tmp_path):
    launcher = launch('echo "$@"; echo $NFOLD_TOKEN; cat')
    launcher.ended(0, 10.0)
    launcher.stop(0.0)
    assert (tmp_path / "log.txt").read_text() == (
        f"[0] --launcher {os.getpid()} --member 0 --connect 127.0.0.1:4000\n[0] secret\n"
    ), "and there is no input"


def test_without_a_log_output_goes_nowhere(launch):
    assert launch("echo lost", log=None).ended(0, 10.0) == "exited with code 0"


def test_ranks_do_not_hear_the_terminals_interrupt(launch, pipe):
    launch(f"echo $$ > {pipe}; exec sleep 1000")
    pid = int(pipe.read_text())
    assert os.getsid(pid) == os.getpgid(pid) == pid, "a session of its own"


def test_a_log_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "log.txt").mkdir()
    with pytest.raises(RunError, match=r"cannot write the log .*log\.txt: Is a directory"):
        Output(tmp_path / "log.txt")


def test_a_rank_that_broke_down_is_told_by_where_it_was(tmp_path):
    output = Output(None)
    frames = "".join(f'  File "net.py", line {line} in forward\n' for line in (7, 9, 11))
    told = f"a print\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n{frames}"
    with output.file_of(0) as file:
        os.write(file, f"{told}\nExtension modules: numpy\n".encode())
    assert output.last_lines() == [
        "Fatal Python error: Segmentation fault",
        '  File "net.py", line 7 in forward',
    ]
    output.close()
