"""Begins generations: members that listen become ranks that are connected to each other."""

from collections.abc import Sequence

from nfold.runtime.coordinator.rank_requests import Flow, RankRequests


class Generations:
    """Those who listen, and the generation under way."""

    def __init__(self, requests: RankRequests) -> None:
        self._requests = requests
        self._addresses: dict[int, tuple[str, int]] = {}
        self._number = -1

    def begin(self, members: Sequence[int]) -> Flow:
        """Connect members to each other; the one before is over with that, and its messages are thrown away.

        Args:
            members: by rank. Those who were connected before stay so.
        """
        new = tuple(member for member in members if member not in self._addresses)
        if new:
            listening = yield from self._requests.ask(new, {"do": "listen"}, "listening")
            self._addresses |= {member: tuple(listening[member]["address"]) for member in new}
        self._number += 1
        order = {
            "do": "connect",
            "generation": self._number,
            "members": list(members),
            "addresses": [[member, *self._addresses[member]] for member in members],
            "gone": [],
        }
        yield from self._requests.ask(tuple(members), order, "connected")
