"""A host joins, leaves and is killed: nfold, torchrun with a file and in memory, and stopping to go on with others."""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parents[2] / "tests"
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(TESTS / "rigs")]
from elastic_run import TICK, ElasticRun, NfoldRun  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from networks import Networks  # noqa: E402

from program import BATCH  # noqa: E402

SCRIPT, DDP = HERE / "program.py", HERE / "ddp.py"
CALM_STEPS = 40
"""Between two events, unless told otherwise."""
WAIT_S = 180.0
EVERY = 10
"""Steps between two checkpoints, where they are files."""
PORT = 29577
_KINDS = {"join": "2 to 3", "leave": "3 to 2 announced", "loss": "3 to 2 by SIGKILL"}


@dataclass
class Hosts:
    """Where the hosts are: on this machine, or each in a network of its own."""

    networks: Networks | None = None
    calm_steps: int = CALM_STEPS
    """Between two events."""

    @property
    def address(self) -> str:
        """Of this machine, as hosts reach it."""
        return "127.0.0.1" if self.networks is None else self.networks.address

    def address_of(self, number: int) -> str:
        """Return the address of a host."""
        return "127.0.0.1" if self.networks is None else self.networks.address_of(number)

    def inside(self, number: int) -> list[str]:
        """Return what a command begins with that runs there."""
        return [] if self.networks is None else self.networks.inside(number, f"host-{number}")


@contextlib.contextmanager
def hosts_at(network: str, calm_steps: int) -> Iterator[Hosts]:
    """Make hosts on `loopback`, or at links of a rate of tc, as `100mbit`."""
    if network == "loopback":
        yield Hosts(None, calm_steps)
        return
    networks = Networks(4)
    try:
        networks.limit(network)
        yield Hosts(networks, calm_steps)
    finally:
        networks.close()


def nfold(hosts: Hosts, folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Let hosts join, leave and be killed; its own ledger says what that cost."""
    flags = ("--nodes", "2:3", "--strategy", "ring", "--steps", "1000000", "--checkpoint-every", str(EVERY))
    run = ElasticRun(SCRIPT, folder / "nfold", *flags, at=f"{hosts.address}:0", environment=environment)
    names = (f"host-{number}" for number in itertools.count())
    try:
        for number in (0, 1):
            run.join(next(names), hosts.inside(number))
        for event in ("2 to 3", "3 to 2 announced", "2 to 3", "3 to 2 by SIGKILL"):
            before, begun = len(_changes(run)), run.last_step
            _until_step(run, begun + hosts.calm_steps)
            if event == "2 to 3":
                run.join(next(names), hosts.inside(2))
            elif event == "3 to 2 announced":
                run.leave(run.training()[-1])
            else:
                run.kill(run.training()[-1])
            _until(run, event, lambda before=before: len(_changes(run)) > before)
        rows = _changes(run)
    finally:
        run.close()
    return [
        {
            "event": _KINDS[row["kind"]],
            "pause_s": row["pause_s"],
            "launch_to_first_step_s": row["boot_s"],
            "samples_again": row["samples_at_stake"],
            "samples_lost": row["samples_lost"],
        }
        for row in rows
    ]


def _changes(run: ElasticRun) -> list[dict[str, Any]]:
    return [row for row in run.events() if row["kind"] in _KINDS]


def torchrun(
    hosts: Hosts, folder: Path, environment: dict[str, str], *, in_memory: bool = False
) -> Iterator[dict[str, Any]]:
    """Let agents of torchrun join, leave and be killed, with what keeps it from hanging and from waiting needlessly."""
    work_around = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    logs: dict[int, Path] = {}
    agents: dict[int, subprocess.Popen[bytes]] = {}

    def join(number: int) -> float:
        logs[number] = folder / f"steps-{time.monotonic_ns()}-{number}.jsonl"
        kept = ("--kept", str(memory / f"{number}.pt"), "--each-keeps", "--every", "1") if in_memory else (
            "--kept", str(folder / "kept.pt"), "--every", str(EVERY))  # fmt: skip
        card = {} if hosts.networks is None else {"GLOO_SOCKET_IFNAME": "eth0"}
        command = [
            *hosts.inside(number), sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1",
            "--max-restarts=100", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts.address_of(0)}:{PORT}",
            "--rdzv-id=elastic", f"--rdzv-conf=last_call_timeout=1,is_host={int(number == 0)}",
            f"--local-addr={hosts.address_of(number)}",
            str(DDP), "--told", str(logs[number]), *kept,
        ]  # fmt: skip
        with (folder / f"torchrun-{number}.said").open("ab") as said:
            agents[number] = subprocess.Popen(
                command, env={**os.environ, **environment, **work_around, **card}, stdout=said, stderr=said
            )
        return time.time()

    calm_steps = hosts.calm_steps
    try:
        join(0)
        join(1)
        for event in ("2 to 3", "3 to 2 announced", "2 to 3", "3 to 2 by SIGKILL"):
            count = 2 if event == "2 to 3" else 3
            _wait(f"calm before {event}", lambda count=count: _calm(_logged(logs[0]), count, calm_steps))
            launched_at = time.time()
            if event == "2 to 3":
                launched_at = join(2)
            elif event == "3 to 2 announced":
                agents[2].send_signal(signal.SIGTERM)
            else:
                _kill_whole(agents[2].pid)
            count = 5 - count
            _wait(event, lambda count=count, at=launched_at: _calm(_logged(logs[0]), count, calm_steps, at))
            row = _cost(event, _logged(logs[0]), launched_at)
            if event == "2 to 3":
                row["launch_to_first_step_s"] = _logged(logs[2])[0]["at"] - launched_at
            else:
                agents[2].wait()
            yield row
    finally:
        for agent in agents.values():
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(20)
            agent.kill()
        shutil.rmtree(memory)


def _kill_whole(pid: int) -> None:
    """Kill an agent and its ranks at once, as when a host dies."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        os.kill(each, signal.SIGKILL)


def stop_and_copy(hosts: Hosts, folder: Path, environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Stop the run, and go on from its checkpoint with others."""
    where = folder / "stopped"
    flags = ("--on", "local", "--strategy", "ring", "--steps", "1000000")
    run = NfoldRun(SCRIPT, where, *flags, "--nodes", "2", "--chunks", "3", environment=environment)
    try:
        for event, count in (("2 to 3", 3), ("3 to 2 announced", 2)):
            _until_step(run, run.last_step + hosts.calm_steps)
            pace_s = _pace_s(run, hosts.calm_steps)
            stopped_at = time.time()
            run.process.send_signal(signal.SIGINT)
            run.process.wait(WAIT_S)
            step = run.last_step
            run = NfoldRun(SCRIPT, where, *flags, "--nodes", str(count), environment=environment, goes_on=True)
            _until_step(run, step + 1)
            pause_s = time.time() - stopped_at
            yield {"event": event, "pause_s": pause_s, "launch_to_first_step_s": pause_s, "samples_again": 0,
                   "samples_lost": pause_s / pace_s * BATCH}  # fmt: skip
    finally:
        run.close()


def _pace_s(run: NfoldRun, steps: int) -> float:
    times = [line["at_s"] for line in run.steps()[-steps:]]
    return (times[-1] - times[0]) / (len(times) - 1)


def _logged(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _calm(logged: list[dict[str, Any]], count: int, steps: int, since: float = 0.0) -> bool:
    """Whether the last steps were all played by so many ranks."""
    last = [line for line in logged if line["at"] > since][-steps:]
    return len(last) == steps and all(line["ranks"] == count for line in last)


def _cost(event: str, logged: list[dict[str, Any]], launched_at: float) -> dict[str, Any]:
    """Return what an event cost one who stayed: the largest gap beside the median, and steps that came twice."""
    near = [line for line in logged if line["at"] > launched_at - 5.0]
    gaps = [later["at"] - earlier["at"] for earlier, later in itertools.pairwise(near)]
    median_s, steps = statistics.median(gaps), [line["step"] for line in near]
    again = (len(steps) - len(set(steps))) * BATCH
    pause_s = max(gaps) - median_s
    return {"event": event, "pause_s": pause_s, "launch_to_first_step_s": None, "samples_again": again,
            "samples_lost": pause_s / median_s * BATCH + again}  # fmt: skip


def _until_step(run: NfoldRun, step: int) -> None:
    _until(run, f"step {step}", lambda: run.last_step >= step)


def _until(run: NfoldRun, what: str, holds: Callable[[], bool]) -> None:
    if not run.until(holds, WAIT_S):
        sys.exit(f"{what}: not within {WAIT_S:.0f} s: {run.said.read_text()[-3000:]}")


def _wait(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {WAIT_S:.0f} s")
        TICK.wait(0.1)


CONTENDERS: dict[str, Callable[..., Iterable[dict[str, Any]]]] = {
    "nfold": nfold,
    "torchrun": torchrun,
    "torchrun, in memory": lambda *given: torchrun(*given, in_memory=True),
    "stop and go on": stop_and_copy,
}


def main() -> None:
    """Play all contenders one after the other, for each model and network, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--millions", type=float, nargs="+", default=[1.0, 12.0, 60.0], help="of parameters")
    options.add_argument("--networks", nargs="+", default=["loopback", "100mbit"])
    options.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    options.add_argument("--calm-steps", type=int, default=CALM_STEPS, help="between two events")
    given = options.parse_args()
    for network, millions, name in itertools.product(given.networks, given.millions, given.only):
        which = {"network": network, "millions": millions, "contender": name}
        found = [{**which, **stamp(), **row} for row in costs(name, network, millions, given.calm_steps)]
        print(*map(json.dumps, found), sep="\n", flush=True)
        kept = [each for each in known(__file__).get("rows", []) if not which.items() <= each.items()]
        write({"rows": [*kept, *found]}, __file__)


def costs(name: str, network: str, millions: float, calm_steps: int) -> Iterator[dict[str, Any]]:
    """Let one contender play its events; yield what each cost, and last what did not come in time."""
    environment = {"MILLIONS": str(millions), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as where, hosts_at(network, calm_steps) as hosts:
        try:
            yield from CONTENDERS[name](hosts, Path(where), environment)
        except TimeoutError as late:
            yield {"event": str(late)}


if __name__ == "__main__":
    main()
