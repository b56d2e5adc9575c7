"""The process of one rank: `python -m nfold.verbs.ranks.rank_process`, started by a launcher, never by hand."""

import argparse
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence

from nfold.launch.local_launcher import TOKEN_VARIABLE
from nfold.launch.orphans import end_with_parent, outlive_parent
from nfold.runtime.control.channel import ChannelClosed, ControlChannel, connect
from nfold.runtime.control.orders import Orders
from nfold.runtime.control.returning_channel import DIAL_AGAIN_S, ReturningChannel
from nfold.runtime.data.torch_compiler import leave_compiler_out
from nfold.runtime.rank.heartbeat import Heartbeat
from nfold.runtime.rank.rank_tools import Wiring

Wire = Callable[[argparse.Namespace, str, str], Wiring]
"""Of what the process was told, the address at which other ranks reach it, and the job's token."""


def main() -> int:
    """Dial the coordinator and do what it says."""
    return be_rank(sys.argv[1:], tcp_wiring)


def be_rank(words: Sequence[str], wire: Wire, *, leave: Callable[[], object] = lambda: None) -> int:
    """Dial the coordinator, do what it says, and end this process; return 1 where it cannot be reached.

    Args:
        words: of the command line.
        wire: makes the ways to other ranks.
        leave: is called at an orderly end, when nothing is left to be sent.
    """
    faulthandler.enable(all_threads=False)  # where a library breaks down is told then
    _leave_signals_to_launcher()
    arguments = _parse(words)
    end_with_parent(arguments.launcher)
    token = os.environ.pop(TOKEN_VARIABLE)
    host, _, port = arguments.connect.rpartition(":")
    try:
        connected = connect(host, int(port), token, arguments.member)
    except ChannelClosed as error:
        print(error, file=sys.stderr)
        return 1
    channel = (
        connected
        if not arguments.hold_for
        else ReturningChannel(
            connected,
            lambda: connect(host, int(port), token, arguments.member, DIAL_AGAIN_S),
            arguments.hold_for,
            lambda: os.getppid() == arguments.launcher,
        )
    )
    code = _work(arguments, channel, lambda: wire(arguments, arguments.host or connected.local_host, token))
    if code == 0:
        leave()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the user's libraries must not keep a finished rank alive.
    os._exit(code)


def _work(arguments: argparse.Namespace, channel: ControlChannel, wire: Callable[[], Wiring]) -> int:
    """Do what the coordinator says; return the exit code."""
    returns = channel if isinstance(channel, ReturningChannel) else None
    orders = Orders(channel, abandon=_end_at_once, returns=returns)
    heartbeat = Heartbeat(channel)
    # Only now, connected and listening, load torch: that takes seconds, in which the coordinator may go away.
    leave_compiler_out()
    gc.disable()  # what is imported stays: to look through it for garbage, again and again, takes half a second
    from nfold.verbs.ranks.rank_work import worker_of

    worker = worker_of(arguments, channel, orders, heartbeat, wire)
    outlive_parent()
    return worker.run()


def tcp_wiring(arguments: argparse.Namespace, host: str, token: str) -> Wiring:
    """Return the ways to other ranks over TCP, as `Wire`."""
    from nfold.verbs.ranks.toolbox import TcpWiring

    return TcpWiring(arguments.member, host, token, _delays_s(arguments))


def _leave_signals_to_launcher() -> None:
    """Let SIGTERM pass, which job managers send to all processes of a job: the launcher ends its ranks in order.

    What the user's program forks hears it as ever.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL) and None)


def _end_at_once() -> None:
    """Nobody is left to work for: end, with all that the user's program has started."""
    if os.getpgrp() == os.getpid():  # the launcher made this rank the leader of its own group
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nfold-rank")
    parser.add_argument("--member", type=int, required=True)
    parser.add_argument("--connect", required=True)
    parser.add_argument("--launcher", type=int, required=True, help="process that started this one")
    parser.add_argument("--script", required=True)
    parser.add_argument("--function", required=True)
    parser.add_argument("--host", help="our address for other ranks; the one that reaches the coordinator unless given")
    parser.add_argument("--hold-for", type=float, default=0.0, help="seconds to wait for another coordinator")
    parser.add_argument(
        "--delays", default="", help="seconds to hold back what comes from an address: 10.77.0.2=0.002,.."
    )
    return parser.parse_args(words)


def _delays_s(arguments: argparse.Namespace) -> dict[str, float]:
    parts = (part.partition("=") for part in arguments.delays.split(",") if part)
    return {address: float(seconds) for address, _, seconds in parts}


if __name__ == "__main__":
    sys.exit(main())
