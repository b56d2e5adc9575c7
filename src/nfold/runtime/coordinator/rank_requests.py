"""Sends orders to ranks and waits for what they answer, as steps of the coordinator's generator."""

from collections.abc import Generator, Sequence
from typing import Any

from nfold.errors import InternalError, RunError
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.failures.first_cause import Postmortem
from nfold.runtime.failures.ranks_lost import RanksLost

Flow = Generator[list[cmd.Command], ev.Event, Any]

OF_STEPS = frozenset({"steps", "snapshot", "evaluated", "checkpoint", "model", "average", "delivered", "kept"})
"""What ranks tell while they train, between steps, and as they stop."""


class RankRequests:
    """Sends orders to ranks and collects their replies. The post-mortem learns of each order."""

    def __init__(self, postmortem: Postmortem) -> None:
        self._postmortem = postmortem
        self._unsaid: list[cmd.Command] = []
        self.late: list[ev.Received] = []
        """What ranks told of their training beside their replies to the last order."""
        self._postponed: list[ev.Event] = []
        self._postpones = False

    def take_postponed(self) -> list[ev.Event]:
        """Return the wishes that were kept; later ones no longer end what is being prepared."""
        wishes, self._postponed, self._postpones = self._postponed, [], True
        return wishes

    def postpone(self, event: ev.Event) -> None:
        """Keep a wish of the user until a generation can carry it out."""
        if isinstance(event, ev.Interrupted | ev.TimeUp | ev.CheckpointWanted):
            self._postponed.append(event)

    def say(self, *commands: cmd.Command) -> None:
        """Add commands to the next orders, since a generator can only speak where it also listens."""
        self._unsaid += commands

    def take_unsaid(self) -> list[cmd.Command]:
        """Return the commands that were to go with the next orders: they go with others."""
        unsaid, self._unsaid = self._unsaid, []
        return unsaid

    def ask(self, ranks: tuple[int, ...], message: dict[str, Any], reply: str, blob: bytes = b"") -> Flow:
        """Send one order to ranks and return the reply of each.

        Args:
            ranks: to be told.
            message: the order.
            reply: kind of message that answers it.
            blob: bytes that go with the order.

        Raises:
            KeyboardInterrupt: as `collect`.
            RunError: as `collect`.
        """
        return (yield from self.collect(ranks, [cmd.Order(ranks, message, blob)], reply))

    def collect_file(self, ranks: tuple[int, ...], orders: Sequence[cmd.Order], reply: str) -> Flow:
        """Send orders and return the file that one of these ranks sends before its reply; all are waited for.

        Raises:
            InternalError: none has sent one.
            RanksLost: others go on; what had come is dropped.
        """
        commands, self._unsaid, self.late = [*self._unsaid, *orders], [], []
        self._postmortem.ordered(orders[0].message["do"])
        left, file = set(ranks), None
        while left:
            try:
                event = yield commands
            except RanksLost:
                if file is not None:
                    file.drop()  # another one may be of another step
                raise
            commands = []
            self.postpone(event)
            if isinstance(event, ev.Received) and event.message["is"] == reply:
                left.discard(event.rank)
                file = event.file or file
        if file is None:
            raise InternalError(f"no rank has sent a file with {reply!r}")
        return file

    def collect(self, ranks: tuple[int, ...], orders: Sequence[cmd.Order], reply: str) -> Flow:
        """Send orders and return the reply of each of these ranks.

        Raises:
            KeyboardInterrupt: the user wants to stop.
            RunError: the run's time is over before it has trained.
        """
        commands, self._unsaid, self.late = [*self._unsaid, *orders], [], []
        for order in orders:
            self._postmortem.ordered(order.message["do"])
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < len(ranks):
            event = yield commands
            commands = []
            if self._postpones:
                self.postpone(event)
            elif isinstance(event, ev.Interrupted):
                raise event.as_error()
            elif isinstance(event, ev.TimeUp):
                raise RunError(
                    f"the time that --stop-after gives, {event.after_s:g} s, was over before the first step: "
                    "getting ready took as long. Use a longer one."
                )
            if isinstance(event, ev.Received) and event.message["is"] == reply:
                replies[event.rank] = event.message
            elif isinstance(event, ev.Received) and event.message["is"] in OF_STEPS:
                self.late.append(event)
            elif isinstance(event, ev.Received) and event.message["is"] == "moved":  # beside what ends now
                self.say(cmd.Moved(event.message["bytes"], event.message["seconds"], beside_training=True))
        return replies
