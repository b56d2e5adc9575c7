"""What a step of members costs the network, beside the samples that move."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nfold.core.residency import TrafficKind
from nfold.planning.residency.model.boxes import Array, Mask


class Links(NamedTuple):
    """Links of n nodes: arrays of shape (n,)."""

    up: Array
    """Bytes that it can send in a second."""
    down: Array
    """Bytes that it can receive in a second."""
    latency_s: Array
    """Its part of the latency of a message, to which the other end's part is added."""
    message_s: Array
    """For which its processor is busy when a message leaves it, or reaches it."""
    byte_s: Array
    """The same of a byte."""

    @property
    def narrow(self) -> Array:
        """Return the slower direction of each."""
        return np.minimum(self.up, self.down)


def traffic_kind(strategy: str) -> TrafficKind:
    """Return what a step sends under a strategy of data parallelism, or under one that is still to be chosen."""
    return "server" if strategy == "ps" else "ring"


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """How members of a step sum their gradients, or pass on what they have computed."""

    kind: TrafficKind = "ring"
    gradient_bytes: float = 0.0
    """Of a whole step; a pipeline sends none."""
    activation_bytes: float = 0.0
    """Of a whole step, that each stage of a pipeline passes on, and gets the gradient of back; others send none."""

    @property
    def step_bytes(self) -> float:
        """Return what it is about."""
        return self.activation_bytes if self.kind == "pipeline" else self.gradient_bytes

    def sync_s(self, links: Links, members: Mask) -> float:
        """Return the seconds of a step in which its bytes travel; 0 where one node computes alone.

        Bytes are handled while others travel, and what each message takes is added to both.
        """
        count = int(members.sum())
        if count < 2 or self.step_bytes == 0:
            return 0.0
        latency_s = float(np.partition(links.latency_s[members], count - 2)[-2:].sum())
        messages = self.link_messages(links, members)
        handles_s = float((2 * self.link_bytes(links, members) * links.byte_s).max())
        told_s = float((2 * messages * links.message_s).max())
        return max(self._travels_s(links, members, count), handles_s) + told_s + self.num_waits(count) * latency_s

    def _travels_s(self, links: Links, members: Mask, count: int) -> float:
        """Return the seconds for which links are busy.

        A ring passes 2 (N - 1) parts of the gradient through every link, one after the other (Patarasuk and Yuan 2009).
        A server, the member of the best link, receives N - 1 gradients and sends as many back. An inner stage of a
        pipeline sends activations on and gradients of them back.
        """
        if self.kind == "pipeline":
            return _passes(count) * self.activation_bytes / float(links.narrow[members].min())
        if self.kind == "ring":
            return 2 * (count - 1) * self.gradient_bytes / count / float(links.narrow[members].min())
        server, others = _server(links, members), members.copy()
        others[server] = False
        pushes_s = max(1 / float(links.up[others].min()), (count - 1) / float(links.down[server]))
        pulls_s = max(1 / float(links.down[others].min()), (count - 1) / float(links.up[server]))
        return self.gradient_bytes * (pushes_s + pulls_s)

    def num_waits(self, count: int) -> int:
        """Return how many messages of a step wait for each other."""
        return 2 if self.kind == "server" else 2 * (count - 1)

    def link_messages(self, links: Links, members: Mask) -> Array:
        """Return how many messages each of n nodes sends in a step, and receives: as many. Shape (n,)."""
        count = int(members.sum())
        if count < 2:
            return np.zeros(len(members))
        if self.kind == "pipeline":
            return np.where(members, _passes(count), 0.0)
        if self.kind == "ring":
            return np.where(members, 2.0 * (count - 1), 0.0)
        return self._server_sends(links, members, 1.0)

    def link_bytes(self, links: Links, members: Mask) -> Array:
        """Return the bytes that each of n nodes sends in a step, and that it receives: as many. Shape (n,)."""
        count = int(members.sum())
        if count < 2:
            return np.zeros(len(members))
        if self.kind == "pipeline":
            return np.where(members, _passes(count) * self.activation_bytes, 0.0)
        if self.kind == "ring":
            return np.where(members, 2 * (count - 1) / count * self.gradient_bytes, 0.0)
        return self._server_sends(links, members, self.gradient_bytes)

    @staticmethod
    def _server_sends(links: Links, members: Mask, each: float) -> Array:
        sent = np.where(members, each, 0.0)
        sent[_server(links, members)] *= members.sum() - 1
        return sent


def _passes(count: int) -> int:
    """Return how often activations leave an inner stage of a pipeline; two stages have none."""
    return 1 if count == 2 else 2


def _server(links: Links, members: Mask) -> int:
    return int(np.where(members, links.narrow, -np.inf).argmax())
