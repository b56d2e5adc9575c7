"""Lets members in: accepts control connections, checks the token, and turns what members say into events.

Whose connection ends has left: so the death of a process is noticed here, too.
"""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from nfold.errors import ClusterError
from nfold.runtime.control.channel import (
    ALIVE,
    NOT_OURS,
    PIECE,
    ChannelClosed,
    ControlChannel,
    Message,
    QueueChannel,
    SocketChannel,
    greet,
    is_path,
)
from nfold.runtime.control.events import Event, Left, Said
from nfold.transport.connecting.acceptor import MAX_UNPROVEN
from nfold.transport.connecting.encryption import secured
from nfold.transport.connecting.token_proof import AGENT

if TYPE_CHECKING:
    import queue

    from nfold.runtime.control.spool import Spools

HELLO_TIMEOUT_S = 5.0
EAR_TIMEOUT_S = 2.0
HOW_IT_ENDED = "closed its connection"
ANOTHER_PORT = "Use another --port, or leave it out to take any free one."
_CUT_SHORT = frozenset({"abandoned", "failed"})
"""What a member says that sends no more of a file."""
MOST_REFUSALS = 20
"""Told of one by one: who knocks for ever shall not fill a disk."""

Ended = Callable[[int], str | None]
Tell = Callable[[str], None]
TakeAgent = Callable[[SocketChannel, str], None]
"""Is given an agent's connection and its address, by a thread of the connection's."""


class ControlServer(Protocol):
    """Accepts the control connections of members."""

    host: str
    port: int
    channels: dict[int, ControlChannel]
    """By member."""

    def expect(self) -> int:
        """Return a number for one more member, which may connect from now on. No number is given twice."""
        ...

    def forget(self, member: int) -> None:
        """Ignore a member that has left, and let nobody connect with its number. May be called twice."""
        ...

    def heard_s(self) -> dict[int, float]:
        """Return when each member was last heard. Threads are left out: they cannot fall silent alone."""
        ...

    def close(self) -> None:
        """Accept nobody any more, and close all connections."""
        ...


class SocketControlServer:
    """Members come over TCP, or over a Unix socket, whenever they are expected.

    A stranger without the token is sent away and the job goes on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        events: "queue.SimpleQueue[Event]",
        ended: Ended,
        *,
        tell: Tell,
        spools: "Spools | None" = None,
        agents: TakeAgent | None = None,
        advice: str = ANOTHER_PORT,
    ) -> None:
        """Listen on a host's port, or where the host is the path of a Unix socket, on that.

        Args:
            host: of the address to listen on, or a path.
            port: of the address; 0: any free one.
            token: that members know.
            events: what members say is put there.
            ended: says how a member ended.
            tell: is given a line for the log about each of the first strangers, from a thread of the server's.
            spools: take the files that members send; None where nothing is kept.
            agents: is given the connection of each agent that knows the token; None: none is let in.
            advice: what to do where it cannot listen.

        Raises:
            ClusterError: the port is in use, or the address is not ours.
        """
        try:
            self._listener = _listen_on_path(host) if is_path(host) else socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise ClusterError(
                f"the coordinator cannot listen on {host}, port {port}: {error.strerror or error}. {advice}"
            ) from error
        self.host, self.port = host, 0
        if not is_path(host):
            self.host, self.port = self._listener.getsockname()[:2]
        self.channels: dict[int, ControlChannel] = {}
        self._token, self._events, self._ended = token, events, ended
        self._numbers, self._expected = itertools.count(), set[int]()
        self._heard: dict[int, SocketChannel] = {}
        self._unproven: dict[socket.socket, threading.Thread] = {}
        """Who has not said yet who it is, the longest waiting first."""
        self._lock = threading.Lock()
        self._tell, self._spools, self._take_agent = tell, spools, agents
        self._is_closed = False
        self.refused = 0
        threading.Thread(target=self._accept, name="nfold-control-server", daemon=True).start()

    def expect(self) -> int:
        """Return a number for one more member, which may connect from now on."""
        with self._lock:
            number = next(self._numbers)
            self._expected.add(number)
        return number

    def expect_again(self, member: int) -> None:
        """Let a member connect that has got its number from another coordinator, which is gone."""
        with self._lock:
            if member not in self.channels:
                self._expected.add(member)

    def forget(self, member: int) -> None:
        """Ignore a member that has left."""
        with self._lock:
            self._expected.discard(member)
            self._heard.pop(member, None)
            channel = self.channels.pop(member, None)
        if channel is not None:
            channel.close()

    def heard_s(self) -> dict[int, float]:
        """Return when each member was last heard."""
        with self._lock:
            return {member: channel.heard_s for member, channel in self._heard.items()}

    def close(self) -> None:
        """Accept nobody any more, and close all connections."""
        with self._lock:
            self._is_closed = True
        with contextlib.suppress(OSError):  # already closed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for channel in list(self.channels.values()):
            channel.close()
        if self._spools is not None:
            self._spools.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, address = self._listener.accept()
            except OSError:
                return  # closed
            who = f"{address[0]}:{address[1]}" if address else "a process of this machine"
            self._make_room()
            connection = secured(accepted, self._token, accepts=True)
            greeting = threading.Thread(target=self._greet, args=(connection, who), name="nfold-greeting", daemon=True)
            with self._lock:
                self._unproven[connection] = greeting
            greeting.start()

    def _make_room(self) -> None:
        """Send the newcomer away that has been silent longest, where one more would be too many: each has a thread."""
        with self._lock:
            if len(self._unproven) < MAX_UNPROVEN:
                return
            connection, greeting = next(iter(self._unproven.items()))
            del self._unproven[connection]
            with contextlib.suppress(OSError):  # it has hung up just now
                connection.shutdown(socket.SHUT_RDWR)
        greeting.join()

    def _greet(self, connection: socket.socket, who: str) -> None:
        number = greet(connection, self._token, HELLO_TIMEOUT_S)
        with self._lock:
            if why := self._why_not(connection, number):
                self._refuse(connection, who, why)
                return
            assert number is not None, "it is proven"
            channel = SocketChannel(connection)
            if number != AGENT:
                self._expected.remove(number)
                self.channels[number] = self._heard[number] = channel
        if number == AGENT:
            assert self._take_agent is not None, "else it was sent away"
            self._take_agent(channel, who)
        else:
            listen(number, channel, self._events, self._ended, self._spools)

    def _why_not(self, connection: socket.socket, number: int | None) -> str:
        """Return why a newcomer is sent away; empty: it is let in."""
        if self._unproven.pop(connection, None) is None:
            return f"of {MAX_UNPROVEN} connections that had not proved who they are, it was the oldest"
        if number is None:
            return "it did not prove that it knows the job's token"
        if number in self._expected or (number == AGENT and self._take_agent is not None):
            return ""
        return f"it says that it is member {number}, whom nobody waits for"

    def _refuse(self, connection: socket.socket, who: str, why: str) -> None:
        """Send a stranger away; the lock is held, so that lines come in order and none after the end."""
        self.refused += 1
        if not self._is_closed and self.refused <= MOST_REFUSALS:
            last = "; it is the last one that is written down" if self.refused == MOST_REFUSALS else ""
            self._tell(f"{time.strftime('%Y-%m-%d %H:%M:%S')} refused {who}: {why}{last}")
        connection.close()


class ThreadControlServer:
    """Serves members that are threads, over queues."""

    host, port = "", 0

    def __init__(self, events: "queue.SimpleQueue[Event]", ended: Ended, spools: "Spools | None" = None) -> None:
        self._events, self._ended, self._spools = events, ended, spools
        self.channels: dict[int, ControlChannel] = {}
        self.far_ends: dict[int, QueueChannel] = {}
        self._numbers = itertools.count()
        self._ears: dict[int, threading.Thread] = {}

    def expect(self) -> int:
        """Return a number for one more member, and begin to listen to it."""
        number = next(self._numbers)
        near, self.far_ends[number] = QueueChannel.pair()
        self.channels[number] = near
        heard = (number, near, self._events, self._ended, self._spools)
        ear = self._ears[number] = threading.Thread(target=listen, args=heard, name=f"nfold-ear-{number}", daemon=True)
        ear.start()
        return number

    def forget(self, member: int) -> None:
        """Ignore a member that has left."""
        if member in self.channels:
            self.channels.pop(member).close()
            del self.far_ends[member]
            self._ears.pop(member).join(EAR_TIMEOUT_S)

    def heard_s(self) -> dict[int, float]:
        """Return nothing: threads cannot fall silent alone."""
        return {}

    def close(self) -> None:
        """Close all channels."""
        for channel in self.channels.values():
            channel.close()
        for ear in self._ears.values():
            ear.join(EAR_TIMEOUT_S)
        if self._spools is not None:
            self._spools.close()


def _listen_on_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def listen(
    member: int,
    channel: ControlChannel,
    events: "queue.SimpleQueue[Event]",
    ended: Ended,
    spools: "Spools | None" = None,
) -> None:
    """Turn a member's messages into events until its channel ends.

    Pieces of a file are written down by this thread, so that a member sends no faster than they can be; while the disk
    lets us wait, the member counts as heard. The file goes with the member's next reply to an order.
    """
    while True:
        try:
            message, blob = channel.receive()
            _check(message)
        except ChannelClosed:
            events.put(Left(member, ended(member) or HOW_IT_ENDED))
            return
        if message["is"] == PIECE:
            if spools is not None:
                with channel.busy():
                    spools.add(member, message["of"], blob)
        elif message != ALIVE:
            file = None
            if spools is not None and message["is"] in _CUT_SHORT:
                spools.drop(member)
            elif spools is not None and message.get("has_file"):
                with channel.busy():
                    file = spools.end(member)
            if message["is"] == "listening":
                message["seen"] = channel.far_host  # which only this side knows
            events.put(Said(member, message, file))


def _check(message: Message) -> None:
    """Raise for what no member says; the name of a file of pieces becomes a part of a path."""
    is_said = isinstance(message.get("is"), str)
    if not is_said or (message["is"] == PIECE and not str(message.get("of")).isidentifier()):
        raise ChannelClosed(NOT_OURS)
