"""Members that are forked from a process that is kept for them: whose children they are, and how they end."""

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nfold.launch.local_launcher import LocalLauncher
from nfold.launch.template import Template

pytestmark = pytest.mark.timeout(30)

TEMPLATE = """
import os, signal, sys, threading
from nfold.launch.template_process import Kind, be_template

def load():
    {load}

def load_more():
    global has_more
    {more}
    has_more = True

has_more = False

def be_member(words):
    do = {do!r}
    leads = os.getpgid(0) == os.getsid(0) == os.getpid()
    print(*words[2:], os.getppid(), leads, os.environ["NFOLD_TOKEN"], has_more, flush=True)
    if do == "sleep":
        signal.pause()
    if do == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    os.system("exec 3> pipe; sleep 1000 & sleep 1000 & echo there >&3; wait")

be_template(Kind(load=load, load_more=load_more, is_whole=lambda: True, be_member=be_member), sys.argv[1:])
"""
MEMBER = """
import os, sys
print("by itself", *sys.argv[3:], flush=True)
"""


@pytest.fixture
def forked(tmp_path):
    """Return a launcher of members that are forked from a template, which ends with the test, and the template."""
    made = []

    def make(do: str, load: str = "pass", more: str = "pass", **settings: float) -> "tuple[LocalLauncher, Template]":
        script = tmp_path / "template.py"
        script.write_text(TEMPLATE.format(do=do, load=load, more=more))
        (tmp_path / "member.py").write_text(MEMBER)
        template = Template([sys.executable, str(script)], **settings)
        command = [sys.executable, "-P", "-m", "member"]
        made.append(
            (
                LocalLauncher(
                    command,
                    tmp_path / "log.txt",
                    begin=template.begin,
                    printed_for_all=template.printed,
                    folder=tmp_path,
                ),
                template,
            )
        )
        return made[-1]

    yield make
    for launcher, template in made:
        launcher.stop(0.0)
        template.close()


def start(launcher: LocalLauncher, *members: int) -> None:
    for member in members:
        launcher.start(member, "127.0.0.1", 4000, "secret")


def lines(folder: Path, count: int) -> list[str]:
    """Wait until the log has so many lines."""
    while len(found := (folder / "log.txt").read_text().splitlines()) < count:
        threading.Event().wait(0.01)
    return sorted(found)


def test_members_are_children_of_the_command_and_leaders_of_their_groups(forked, tmp_path):
    launcher, _ = forked("sleep")
    start(launcher, 0, 1)
    told = f"--member {{0}} --connect 127.0.0.1:4000 {os.getpid()} True secret True"
    assert lines(tmp_path, 2) == [f"[{member}] {told.format(member)}" for member in (0, 1)]
    assert launcher.ended(1, 0.0) is None
    launcher._members[1]._settled.wait()
    pid = launcher._members[1].child.pid
    assert Path(f"/proc/{pid}/comm").read_text() == "nfold-rank\n"
    command = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    assert command[1:] == ["-P", "-m", "member", "--launcher", str(os.getpid()), *told.format(1).split()[:4]]
    os.kill(pid, signal.SIGTERM)  # of a job manager, which does not end it
    launcher.stop(0.0)
    assert launcher.ended(1, 0.0) == "was killed by signal 9 (SIGKILL)"
    assert not Path(f"/proc/{pid}").exists()


def test_a_member_that_died_is_told_and_can_be_started_again(forked, tmp_path):
    launcher, _ = forked("die")
    for count in (1, 2):
        start(launcher, 3)
        assert launcher.ended(3, 20.0) == "was killed by signal 11 (SIGSEGV)"
        assert len([line for line in lines(tmp_path, count) if "--member 3" in line]) == count


def test_what_a_member_started_ends_with_it(forked, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    launcher, _ = forked("start others")
    start(launcher, 0)
    with open(tmp_path / "pipe") as file:
        assert file.readline() == "there\n"
        launcher.release(0)
        assert file.read() == "", "the end of the pipe: nobody holds it any more"
    assert launcher.ended(0, 0.0) == "was let go"


def test_a_template_that_was_killed_takes_no_member_with_it_and_is_started_anew(forked, tmp_path):
    launcher, template = forked("sleep")
    start(launcher, 0)
    lines(tmp_path, 1)
    os.kill(template._child.pid, signal.SIGKILL)
    template._child.ended(None)
    start(launcher, 1)
    lines(tmp_path, 2)
    assert (launcher.ended(0, 0.0), launcher.ended(1, 0.0)) == (None, None)


def test_a_template_ends_that_nobody_asks_and_is_started_anew(forked, tmp_path):
    launcher, template = forked("sleep", idle_s=0.0)
    for member in (0, 1):
        start(launcher, member)
        lines(tmp_path, member + 1)
        while template._child is not None:
            threading.Event().wait(0.001)
    assert (launcher.ended(0, 0.0), launcher.ended(1, 0.0)) == (None, None)


def test_a_template_that_fails_while_it_loads_is_told_with_its_last_lines(forked, tmp_path):
    launcher, _ = forked("sleep", load="print('no such library', flush=True); os._exit(4)")
    start(launcher, 0)
    assert launcher.ended(0, 20.0) == "could not be started: the process that ranks are forked from exited with code 4"
    assert "no such library" in launcher.last_lines()
    launcher.stop(0.0)
    assert "[ranks] no such library" in lines(tmp_path, 1)


def test_where_threads_would_be_lost_members_are_programs_of_their_own_and_the_reason_is_told(
    forked, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    launcher, _ = forked("sleep", load="threading.Thread(target=signal.sigwait, args=([10],), daemon=True).start()")
    start(launcher, 0)
    assert launcher.ended(0, 20.0) == "exited with code 0"
    launcher.stop(0.0)
    by_itself, reason = lines(tmp_path, 2)
    assert by_itself == "[0] by itself --member 0 --connect 127.0.0.1:4000"
    assert reason.startswith("[ranks] nfold: each rank imports torch for itself: libraries have started threads (")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("threading.Thread(target=signal.pause, daemon=True).start()", "libraries have started threads ("),
        ("os.kill(os.getpid(), 11)", "the process that imported them was killed by signal 11 (SIGSEGV)"),
    ],
)
def test_what_cannot_be_loaded_for_all_is_left_to_the_members_and_told(forked, tmp_path, more, why):
    launcher, _ = forked("sleep", more=more)
    start(launcher, 0)
    member, reason = lines(tmp_path, 2)
    assert member.endswith("secret False"), "it has what all need, and no more"
    assert reason.startswith(f"[ranks] nfold: each rank imports the script's libraries for itself: {why}")


@pytest.mark.parametrize("letting_go", [lambda launcher: launcher.stop(0.0), lambda launcher: launcher.release(0)])
def test_who_is_let_go_while_the_template_loads_is_never_started(forked, tmp_path, letting_go):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    launcher, _ = forked("sleep", load=f"open({str(gate)!r}).read()")
    start(launcher, 0)
    assert launcher.ended(0, 0.0) is None
    letting_go(launcher)
    assert launcher.ended(0, 0.0) == "was let go"
    start(launcher, 1)
    gate.write_text("")
    assert [line.split()[1:3] for line in lines(tmp_path, 1)] == [["--member", "1"]]


def test_a_template_that_is_closed_while_it_loads_is_gone(forked):
    launcher, template = forked("sleep", load="signal.pause()")
    start(launcher, 0)
    launcher.stop(0.0)
    child = template._child
    template.close()
    template.close()
    assert child is None or child.ended(0.0) == "was killed by signal 9 (SIGKILL)"


def test_a_template_that_does_not_answer_is_gone_once_it_is_closed(forked, tmp_path, monkeypatch):
    monkeypatch.setattr("nfold.launch.template._END_S", 0.1)
    launcher, template = forked("sleep")
    start(launcher, 0)
    lines(tmp_path, 1)
    child = template._child
    os.killpg(child.pid, signal.SIGSTOP)
    start(launcher, 1)
    template.close()
    assert child.ended(0.0) == "was killed by signal 9 (SIGKILL)"
    assert launcher.ended(1, 0.0).startswith("could not be started")


def test_a_template_that_cannot_be_started_is_told(tmp_path):
    template = Template([str(tmp_path / "nothing")])
    launcher = LocalLauncher(["rank"], None, begin=template.begin)
    start(launcher, 0)
    assert "No such file" in launcher.ended(0, 20.0)
    launcher.stop(0.0)
    template.close()


COMMAND = """
import os, sys
from nfold.launch.local_launcher import LocalLauncher
from nfold.launch.template import Template
template = Template([sys.executable, sys.argv[1]])
launcher = LocalLauncher([sys.executable, "-P", "-m", "member"], None, begin=template.begin)
launcher.start(0, "127.0.0.1", 4000, "secret")
launcher._members[0]._settled.wait()
print(template._child.pid, launcher._members[0].child.pid, flush=True)
sys.stdin.read()
"""


def test_template_and_members_end_with_a_command_that_was_killed(tmp_path):
    script = tmp_path / "template.py"
    script.write_text(TEMPLATE.format(do="sleep", load="pass", more="pass"))
    command = [sys.executable, "-c", COMMAND, str(script)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    handles = [os.pidfd_open(int(word)) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate()
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(20_000), "it lives on"
        os.close(handle)
