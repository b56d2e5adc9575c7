"""What an agent costs its host while nothing happens, and what many of them cost one coordinator.

The many are simulated: their connections, tokens and words are real, the hosts and ranks behind them are not.
"""

import argparse
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nfold.core import codec
from nfold.hosts.agent_pool import AgentPool
from nfold.hosts.host_facts import facts_of_this_host
from nfold.hosts.manager import Call
from nfold.hosts.managers.local_agents import LocalAgents
from nfold.hosts.program_files.archive import Archive
from nfold.launch.output import Output
from nfold.runtime.control.channel import ALIVE, ChannelClosed, SocketChannel, connect
from nfold.runtime.control.control_server import SocketControlServer
from nfold.transport.connecting.token_proof import AGENT

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import write  # noqa: E402  a script's siblings are found only after this

HOST = "127.0.0.1"
BEAT_S = 2.0
"""Of a real agent."""
LINES = 20
"""That each simulated host prints."""
WAIT_S = 120.0


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=500)
    options.add_argument("--seconds", type=float, default=30.0, help="for which all are idle")
    options.add_argument("--pretend", metavar="HOST:PORT", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.pretend:
        pretend(chosen.pretend, chosen.agents)
        return
    one, many = measure_one(chosen.seconds), measure_many(chosen.agents, chosen.seconds)
    print(one)
    print(many)
    write({"one_agent": one, "many_agents": many}, __file__)


def measure_one(idle_s: float) -> dict[str, float]:
    """Start a real agent that gets nothing to do."""
    token, output = secrets.token_hex(16), Output(None)
    pool, manager = AgentPool(output, print), LocalAgents()
    server = _serve(pool, token)
    call = Call(addresses=((HOST, server.port),), token=token, interpreter=sys.executable)
    begun_s = time.perf_counter()
    manager.start(call, 1)
    (agent,) = pool.wait(1, manager, WAIT_S, lambda: False)
    came_s = time.perf_counter() - begun_s
    pid, before_s = agent.facts.pid, _cpu_s(agent.facts.pid)
    time.sleep(idle_s)
    found = {
        "came_s": came_s,
        "resident_mib": _status_kib(pid, "VmRSS") / 1024,
        "threads": _status_kib(pid, "Threads"),
        "idle_cpu_share": (_cpu_s(pid) - before_s) / idle_s,
    }
    pool.stop(0.0)
    manager.close()
    server.close()
    output.close()
    return found


def measure_many(count: int, idle_s: float) -> dict[str, Any]:
    """Let many agents come, hold a program, start a member each, print, be idle, and end."""
    token, output = secrets.token_hex(16), Output(None)
    pool = AgentPool(output, lambda _: None)
    server = _serve(pool, token)
    pid, before_cpu_s, before_kib = os.getpid(), _cpu_s(os.getpid()), _status_kib(os.getpid(), "VmRSS")
    command = [sys.executable, __file__, "--agents", str(count), "--pretend", f"{HOST}:{server.port}"]
    begun_s = time.perf_counter()
    hosts = subprocess.Popen(command, env={**os.environ, "TOKEN": token})
    agents = pool.wait(count, LocalAgents(), WAIT_S, lambda: False)
    came_s, came_cpu_s = time.perf_counter() - begun_s, _cpu_s(pid) - before_cpu_s
    pool.send_program(Archive(content=b"x" * 10_000, digest="d", script="s.py"), "program", WAIT_S)
    for number, agent in enumerate(agents):
        pool.start(number, agent)
    ends = [pool.ended(number, WAIT_S) for number in range(count)]
    idle_cpu_s = _cpu_s(pid)
    time.sleep(idle_s)
    idle_cpu_s = _cpu_s(pid) - idle_cpu_s
    kib = _status_kib(pid, "VmRSS") - before_kib
    begun_s = time.perf_counter()
    pool.stop(1.0)
    stopped_s = time.perf_counter() - begun_s
    code = hosts.wait(WAIT_S)
    server.close()
    output.close()
    return {
        "agents": count,
        "came_s": came_s,
        "came_cpu_s": came_cpu_s,
        "idle_cpu_share": idle_cpu_s / idle_s,
        "kib_per_agent": kib / count,
        "ends_missed": sum(end is None or f"code {number % 7}" not in end for number, end in enumerate(ends)),
        "stopped_s": stopped_s,
        "exit_code": code,
    }


def pretend(where: str, count: int) -> None:
    """Be many agents, a thread each."""
    host, _, port = where.rpartition(":")
    threading.stack_size(256 << 10)
    threads = [threading.Thread(target=_pretend, args=(host, int(port), place)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _pretend(host: str, port: int, place: int) -> None:
    channel = connect(host, port, os.environ["TOKEN"], AGENT, WAIT_S)
    facts = replace(facts_of_this_host("python"), host=f"host-{place}")
    channel.send({"is": "agent", "place": place, "name": "", "facts": codec.encode(facts)})
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    while True:
        order, _ = channel.receive()
        match order["do"]:
            case "program":
                channel.send({"is": "wants"})
            case "archive":
                channel.send({"is": "holds"})
            case "start":
                for line in range(LINES):
                    channel.send({"is": "output", "member": order["member"]}, f"line {line}\n".encode())
                channel.send({"is": "ended", "member": order["member"], "how": f"exited with code {place % 7}"})
            case "stop":
                channel.send({"is": "bye"})
                channel.close()
                return


def _beat(channel: SocketChannel) -> None:
    never = threading.Event()
    while not never.wait(BEAT_S):
        try:
            channel.send(ALIVE)
        except ChannelClosed:
            return


def _serve(pool: AgentPool, token: str) -> SocketControlServer:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return SocketControlServer(HOST, 0, token, events, lambda _: None, tell=print, agents=pool.take)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


if __name__ == "__main__":
    main()
