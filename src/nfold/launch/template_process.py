"""The side of a template (see `template`): what it does once it has imported, and how its copies become members."""

import argparse
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from nfold.launch.child import describe_exit
from nfold.launch.command_line import show_command
from nfold.launch.forking import fork, let_go, name, serve
from nfold.launch.local_launcher import TOKEN_VARIABLE
from nfold.launch.orphans import end_with_parent
from nfold.launch.template import READY

_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What a template is for."""

    load: Callable[[], object]
    """Imports what all members need."""
    load_more: Callable[[], object]
    """Imports what else they will import; it may fail, or leave this process such that it cannot be copied."""
    is_whole: Callable[[], bool]
    """Whether a process can do all that the one can that it is a copy of."""
    be_member: Callable[[list[str]], object]
    """Runs in a member with the words of its command line, behind the module's name."""


def be_template(kind: Kind, words: list[str]) -> NoReturn:
    """Load, then fork members until the launcher has no more to ask for.

    More is loaded by a copy, which forks the members if it can be copied itself; else this process does. Where even
    this one cannot be copied, each member is a program that takes the place of its fork, and loads for itself.

    Args:
        kind: what to load, and what members do.
        words: that the launcher has added to the command line.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)  # job managers send it to all processes of a job, see rank_process
    arguments = _parse(words)
    end_with_parent(arguments.launcher)
    show_command(sys.orig_argv[: sys.orig_argv.index("--room")])
    name("nfold-template")
    with socket.socket(fileno=arguments.connection) as connection:
        kind.load()
        if why := _why_no_copy(kind):
            print(f"nfold: each rank imports torch for itself: {why}", flush=True)
        if why or not _serves_with_more(kind, connection, arguments.launcher):
            connection.send(READY)
            serve(connection, partial(_start, None if why else kind.be_member), arguments.launcher, apart=True)
    os._exit(0)  # to take apart what was imported takes long, and the command waits


def _serves_with_more(kind: Kind, connection: socket.socket, launcher: int) -> bool:
    """Let a copy of this process load more, and serve to the end; False: it cannot."""
    reads, writes = os.pipe()
    copy = fork(partial(_load_more_and_serve, kind, writes, connection, launcher, os.getpid()))
    os.close(writes)
    if is_loaded := bool(os.read(reads, 1)):
        connection.send(READY)
    os.close(reads)
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    if code != 0 and not is_loaded:
        _tell_no_libraries(f"the process that imported them {describe_exit(code)}")
    return is_loaded


def _load_more_and_serve(kind: Kind, writes: int, connection: socket.socket, launcher: int, parent: int) -> None:
    end_with_parent(parent)
    try:
        kind.load_more()
        why = _why_no_copy(kind)
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        _tell_no_libraries(why)
        return
    os.write(writes, b"+")
    os.close(writes)
    serve(connection, partial(_start, kind.be_member), launcher, apart=True)


def _tell_no_libraries(why: str) -> None:
    print(f"nfold: each rank imports the script's libraries for itself: {why}", flush=True)


def _start(be_member: Callable[[list[str]], object] | None, order: str, output: int) -> None:
    """Be the member of an order: this process, or, where there is nothing to be, a program that takes its place."""
    told = json.loads(order)
    os.setsid()  # the leader of its own group, so that what it starts ends with it
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ[TOKEN_VARIABLE] = told["token"]
    if told["folder"]:
        os.chdir(told["folder"])
    command = told["command"]
    if be_member is None:
        os.execv(command[0], command)
    show_command(command)
    name("nfold-rank")
    let_go()
    be_member(command[command.index("-m") + 2 :])


def _why_no_copy(kind: Kind) -> str:
    """Say what a copy of this process would lack; empty: nothing.

    OpenBLAS starts threads when numpy is imported, and ends them at a fork until they are needed. So one comes first.
    """
    copy = fork(lambda: None if kind.is_whole() else os._exit(1))
    if os.waitpid(copy, 0)[1] != 0:
        return "a library has opened a device, which no fork survives"
    threads = [(_THREADS / number / "comm").read_text(encoding="utf-8").strip() for number in os.listdir(_THREADS)]
    return f"libraries have started threads ({', '.join(sorted(threads))})" if len(threads) > 1 else ""


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nfold-template")
    parser.add_argument("--launcher", type=int, required=True, help="process that started this one")
    parser.add_argument("--connection", type=int, required=True, help="descriptor of a socket to it")
    parser.add_argument("--room", required=True, help="makes room for the command lines of members")
    return parser.parse_args(words)
