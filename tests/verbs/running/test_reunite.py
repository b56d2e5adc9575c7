"""Hosts whose command is gone dial in again; they are sockets of this test."""

import itertools
import queue
import signal
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from nfold.errors import ClusterError, NfoldError, PlanError, Terminated
from nfold.launch import stopping
from nfold.launch.output import Output
from nfold.runtime.control import events as ev
from nfold.runtime.control.channel import ChannelClosed, SocketChannel, connect
from nfold.runtime.control.spool import Spool
from nfold.runtime.coordinator.reunion import Kept, NotKept, Reunion
from nfold.transport.connecting.keepalive import BREAK_AFTER_S
from nfold.transport.connecting.token_proof import AGENT
from nfold.verbs import train
from nfold.verbs.options.job_record import JobRecord
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import HeldHosts, read_held, save_held
from nfold.verbs.running import held_run
from nfold.verbs.running.reunite import ComingBack, _play, reunite, write_down

pytestmark = pytest.mark.timeout(30)
STARTS = ev.Said(3, {"is": "hello", "host": "h", "pid": 1}, None)


class Folder:
    """Of a run on one host, whose last checkpoint is of step 5."""

    last_step, resume_command = 5, "nfold train --resume run"

    def __init__(self, path):
        self.path, self.log = path, path / "log.txt"

    def append_log(self, text):
        pass

    def spools(self):
        return None

    def record(self):
        return SimpleNamespace(total_steps=9, steps_per_epoch=10, evaluate=False)

    def known(self):
        return SimpleNamespace(plan=SimpleNamespace(world_size=1, asynchrony=None, batch_size=16))

    def placed(self):
        return None

    def checkpoint(self):
        return SimpleNamespace(step=5)

    def history(self):
        return []


class Host:
    """One that holds, without a rank; it dials when it is waited for, and is heard once the log says `here`."""

    def __init__(self, held):
        self.heard = []
        self._thread = threading.Thread(target=self._serve, args=(held,), daemon=True)

    def hear_user(self, text):
        if text.startswith("waiting for 1 host"):
            self._thread.start()

    def all_heard(self):
        self._thread.join(20.0)
        return self.heard

    def _serve(self, held):
        channel = connect(held.host, held.port, held.token, AGENT)
        channel.send({"is": "agent", "name": "h", "members": []})
        channel.send({"is": "output", "member": 0}, b"here\n")
        try:
            while True:
                self.heard.append(channel.receive()[0]["do"])
        except ChannelClosed:
            channel.close()


@pytest.fixture
def held():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return HeldHosts(host="127.0.0.1", port=port, token="secret", hold_s=9.0, nodes="1:2", on="local", listen=None)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def once_heard(folder: Folder, tell_time: Callable[[], float]) -> Callable[[], float]:
    """A clock that stands still until the host is heard."""
    return lambda: tell_time() if folder.log.exists() and "here" in folder.log.read_text() else 0.0


@pytest.mark.parametrize(("total_steps", "heard"), [(5, ["stop"]), (9, [])], ids=["complete", "more steps are wanted"])
def test_hosts_of_a_run_that_is_complete_are_told_to_end(folder, held, total_steps, heard):
    """Nobody holds anything else: the command died when all was kept."""
    host, minutes = Host(held), itertools.count(60.0, 60.0)
    clock = once_heard(folder, lambda: next(minutes))
    assert reunite(folder, held, host.hear_user, total_steps=total_steps, clock=clock) == ("h",)
    assert host.all_heard() == heard


def test_hosts_that_are_back_end_with_ctrl_c(folder, held):
    def interrupt():
        raise KeyboardInterrupt

    host = Host(held)
    with pytest.raises(KeyboardInterrupt, match=r"^h told to end"):
        reunite(folder, held, host.hear_user, total_steps=9, clock=once_heard(folder, interrupt))
    assert host.all_heard() == ["stop"]


def test_hosts_hold_on_where_their_command_is_told_to_end_by_a_manager(folder, held):
    def terminate():
        raise Terminated

    host = Host(held)
    with pytest.raises(Terminated):
        reunite(folder, held, host.hear_user, total_steps=9, clock=once_heard(folder, terminate))
    assert host.all_heard() == []


def test_sigterm_is_heard_while_hosts_are_waited_for(folder, held, monkeypatch):
    save_held(folder.path, held)
    is_ours, before = threading.Event(), signal.getsignal(signal.SIGTERM)
    is_ours.set()
    monkeypatch.setattr(stopping, "_IS_OURS", is_ours)
    monkeypatch.setattr(held_run, "reunite", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Terminated, match="hold on: type nfold resume"):
        held_run.hosts_back(folder, {}, print, must_hold=False)
    assert signal.getsignal(signal.SIGTERM) is before, "the run has not begun yet"


def test_who_falls_silent_while_it_gives_what_it_holds_is_waited_for_no_more():
    begun = SimpleNamespace(result=None, has_begun=True)
    server = SimpleNamespace(heard_s=lambda: {3: 10.0})
    found = _play(begun, SimpleNamespace(names=("h",)), server, queue.SimpleQueue(), lambda: 71.0)
    assert found.why == "member 3 has shown no sign of life for 60.0 s"


@pytest.mark.parametrize(
    ("hellos", "why"), [([], "no rank is there any more"), ([STARTS], "the command died while its ranks started")]
)
def test_hosts_that_hold_nothing_say_why(hellos, why):
    events, seconds = queue.SimpleQueue(), itertools.count(0.0, 15.0)
    for hello in hellos:
        events.put(hello)
    server = SimpleNamespace(heard_s=lambda: {})
    found = _play(Reunion(None), SimpleNamespace(names=("h",)), server, events, lambda: next(seconds))
    assert found == NotKept(why)


def test_a_port_that_somebody_else_has_is_told_with_what_to_do(folder, held):
    told = r"port \d+: .*End the process that has the port, or remove .*held\.json and go on .*--resume run$"
    with socket.create_server((held.host, held.port)), pytest.raises(ClusterError, match=told):
        reunite(folder, held, lambda text: None, total_steps=9)


def test_steps_follow_half_a_line_that_the_command_left(tmp_path, happenings):
    folder = RunFolder(tmp_path)
    folder.save(JobRecord(source="a.py:program", workers=1, total_steps=9, steps_per_epoch=10))
    folder.append_history([{"step": step, "epoch": 1, "loss": 0.5, "metrics": {}} for step in (1, 2)])
    with open(tmp_path / "history.jsonl", "ab") as history:
        history.write(b'{"step": 3, "ep')

    write_down(folder, Kept(3, Spool(tmp_path / "sent.partial").end(), (happenings.step_done(2),)))

    assert [line["step"] for line in folder.history()] == [1, 2, 3]
    assert folder.record().has_checkpoint


@pytest.mark.parametrize(("wishes", "total_steps"), [({}, 9), ({"steps": 20}, 20)])
def test_a_run_has_the_steps_that_are_asked_for_now(folder, held, monkeypatch, wishes, total_steps):
    def told(folder, held, say, *, total_steps):
        return (total_steps,)

    save_held(folder.path, held)
    monkeypatch.setattr(held_run, "reunite", told)
    assert held_run.hosts_back(folder, wishes, print, must_hold=True) == (held, (total_steps,))


def resume(folder, wishes=None, *, must_hold=True, at_s=1000.0):
    told = []
    found = held_run.hosts_back(folder, wishes or {}, told.append, must_hold=must_hold, now=lambda: at_s)
    return found, told


@pytest.fixture
def out_of_reach(folder, held, monkeypatch):
    """A run whose hosts do not come back."""
    save_held(folder.path, held)
    monkeypatch.setattr(held_run, "reunite", lambda *_, **__: ())
    return folder


def test_hosts_out_of_reach_are_found_as_long_as_they_may_hold(out_of_reach, held):
    for at_s in (1000.0, 1000.0 + BREAK_AFTER_S + held.hold_s):
        with pytest.raises(Terminated, match=r"^No host .* is back .* may hold until .* nfold resume .* once more"):
            resume(out_of_reach, at_s=at_s)
        assert read_held(out_of_reach.path).gone_s == 1000.0
    with pytest.raises(PlanError, match=r"no host of the run in .* holds"):
        resume(out_of_reach, at_s=1001.0 + BREAK_AFTER_S + held.hold_s)
    assert read_held(out_of_reach.path) is None


def test_who_goes_on_without_hosts_that_may_hold_is_told_what_is_lost(out_of_reach):
    found, told = resume(out_of_reach, must_hold=False)
    assert found == held_run.NOBODY
    assert ["may hold until" in text and text.endswith("what they hold is lost") for text in told] == [True]
    assert read_held(out_of_reach.path) is not None, "the run may be refused yet"


def test_a_run_that_is_refused_keeps_how_its_hosts_are_found(out_of_reach):
    record = JobRecord(source="a.py:program", workers=1, total_steps=9, steps_per_epoch=10)
    RunFolder(out_of_reach.path).save(record)
    with pytest.raises(NfoldError, match="plan"):
        train.resume(out_of_reach.path)
    assert read_held(out_of_reach.path) is not None


def test_others_are_refused_while_hosts_may_hold(out_of_reach, held):
    with pytest.raises(PlanError, match=r"may hold until .* type: nfold resume .* remove .*held\.json first"):
        resume(out_of_reach, {"on": "here"}, must_hold=False)
    over_s = 1001.0 + BREAK_AFTER_S + held.hold_s
    assert resume(out_of_reach, {"on": "here"}, must_hold=False, at_s=over_s) == (held_run.NOBODY, [])


def test_hosts_that_were_back_hold_as_long_again(out_of_reach, monkeypatch):
    with pytest.raises(Terminated):
        resume(out_of_reach)
    found = []
    monkeypatch.setattr(held_run, "reunite", lambda *_, **__: found.append(read_held(out_of_reach.path).gone_s) or "h")
    assert resume(out_of_reach)[0][1] == "h"
    assert found == [None], "the command may be killed while it hears them"


@pytest.fixture
def back(tmp_path):
    output = Output(tmp_path / "log.txt")
    yield ComingBack(output)
    output.close()


@pytest.fixture
def dial(back):
    """Let an agent of host `h` come, whose member has a number; return its end and the thread that hears it."""
    agents = []

    def dial(number):
        near, far = map(SocketChannel, socket.socketpair())
        ear = threading.Thread(target=back.take, args=(near, ""), daemon=True)
        agents.append((far, ear))
        ear.start()
        far.send({"is": "agent", "name": "h", "members": [number]})
        return agents[-1]

    yield dial
    for far, ear in agents:
        far.close()
        ear.join(10.0)


def come(back, dial, number):
    come = threading.Event()
    back.expect = lambda member: come.set()
    agent = dial(number)
    assert come.wait(10.0)
    return agent


def test_agents_of_one_host_are_told_apart_while_they_are_there(back, dial):
    agents = [come(back, dial, number) for number in range(2)]
    assert back.names == ("h", "h-2")
    back.end_members()
    assert [far.receive()[0]["member"] for far, _ in agents] == [0, 1]
    far, ear = agents[0]
    far.close()
    ear.join(10.0)
    assert back.names == ("h-2",)
    come(back, dial, 2)
    assert sorted(back.names) == ["h", "h-2"]


def test_who_comes_when_it_is_over_is_to_dial_again(back, dial):
    back.hang_up()
    far, ear = dial(0)
    ear.join(10.0)
    assert not ear.is_alive()
    with pytest.raises(ChannelClosed):
        far.receive()
