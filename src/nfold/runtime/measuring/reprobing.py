"""Has the links probed again in the middle of a run, when what a step exchanges is slower than predicted. Pure.

How much slower, and for how long, `slowness.py` decides.

    step done ──slow?──> no further steps are granted ──> probes, round by round as at the start ──> a note, steps go on

Where links have changed, what is said of the run from then on rests on the new ones, so some steps are traced again.

Ranks do their orders one after another, so they probe after the last step that was granted, and nothing else travels.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster, Node
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.measuring.probing_rounds import Probe, affordable, round_robin, with_links
from nfold.runtime.measuring.slowness import ProbeSpacing, Slowness, UnexpectedTime, times_s
from nfold.runtime.measuring.unsent_bytes import unsent_bytes
from nfold.transport.probing.probe import ProbedPair

NOTABLE = 1.2
"""A link that is slower or faster by less than this is called unchanged."""
PATIENCE_S = 120.0
"""A probe waits so long for a message: links may be cut for a minute while it probes, too. Who is not heard for longer
is given up by others (see `silent_ranks.py`)."""


class Reprobing:
    """Decides when links are probed again, and sends the probes."""

    def __init__(
        self,
        nodes: tuple[str, ...],
        cluster: Cluster,
        expected_s: Callable[[], Mapping[str, float]],
        spacing: ProbeSpacing | None = None,
        from_step: int = 0,
    ) -> None:
        """Watch what a run exchanges.

        Args:
            nodes: of each rank.
            cluster: as it was known when the run was planned.
            expected_s: predicts all that is watched, once a step is done: nobody waits for that before the first one.
            spacing: of the run's probes so far; None: there were none.
            from_step: that is the first one of which this is so.
        """
        self._from_step = from_step
        self._nodes, self._cluster = nodes, cluster
        self._expected_s, self._spacing = expected_s, spacing
        self._surprise: UnexpectedTime | None = None
        self._rounds: list[list[Probe]] = []
        """Those to come."""
        self._is_first = True
        self._awaited: list[tuple[int, Probe]] = []
        """Who has not said yet what a probe found. The replies of a rank come in the order of its orders."""
        self._found: dict[Probe, ProbedPair] = {}
        self._num_rounds = 0
        """So far, of the generation."""

    @cached_property
    def _slowness(self) -> Slowness:
        return Slowness(self._expected_s(), self._spacing)

    @property
    def is_open(self) -> bool:
        """Whether probes are under way, so that no steps may be played."""
        return bool(self._awaited)

    def look(self, done: cmd.StepDone) -> list[cmd.Command]:
        """Take in a step and return the orders to probe, if it is time."""
        if done.step < self._from_step:
            return []
        surprise = self._slowness.take(times_s(done.parts, done.reductions))
        if surprise is None or self.is_open:
            return []
        self._surprise, self._found = surprise, {}
        self._rounds, self._is_first = round_robin(self._nodes), True
        return self._begin_round() if self._rounds else []

    def _begin_round(self) -> list[cmd.Command]:
        probes = self._rounds.pop(0)
        self._num_rounds += 1
        self._awaited = [(rank, probe) for probe in probes for rank in (probe.measures, probe.echoes)]
        return [cmd.Order((rank,), _order(rank, probe, self._num_rounds)) for rank, probe in self._awaited]

    def take(self, event: ev.Received, next_step: int, *, goes_on: bool = True) -> list[cmd.Command]:
        """Take in a reply, and say what was found when it was the last.

        Args:
            event: what a rank said.
            next_step: the first one that was not granted yet.
            goes_on: whether other rounds may follow.
        """
        if event.message["is"] != "probed" or not self.is_open:
            return []
        own = next(each for each in self._awaited if each[0] == event.rank)
        self._awaited.remove(own)
        if event.rank == own[1].measures:
            self._found[own[1]] = codec.decode(ProbedPair, event.message["found"])
        if self.is_open:
            return []
        if self._is_first:
            del self._rounds[affordable(1 + len(self._rounds), self._found) - 1 :]
            self._is_first = False
        return self._begin_round() if self._rounds and goes_on else self._close(next_step)

    def _close(self, next_step: int) -> list[cmd.Command]:
        before, self._cluster = self._cluster, with_links(self._cluster, self._nodes, self._found)
        self._slowness.accept()
        assert self._surprise is not None, "something was not as expected, or nobody would have probed"
        changes = [text for node in before.nodes for text in _changes(node, self._cluster.node(node.name))]
        measured_ms, expected_ms = self._surprise.measured_s * 1e3, self._surprise.expected_s * 1e3
        noted = cmd.Noted(
            f"{self._surprise.what} takes {measured_ms:.1f} ms instead of {expected_ms:.1f} ms; "
            f"probed again: {', '.join(changes) or 'the links are as they were'}"
        )
        everyone = tuple(range(len(self._nodes)))
        limits = cmd.Order(everyone, {"do": "limit", "unsent_bytes": unsent_bytes(self._cluster, self._nodes)})
        if not changes:
            return [noted, limits]
        return [noted, limits, cmd.LinksChanged(self._cluster, next_step), cmd.Order(everyone, {"do": "trace"})]


def _order(rank: int, probe: Probe, number: int) -> dict[str, object]:
    measures = rank == probe.measures
    peer = probe.echoes if measures else probe.measures
    return {"do": "probe", "peer": peer, "measures": measures, "patience_s": PATIENCE_S, "round": number}


def _changes(before: Node, after: Node) -> list[str]:
    ways: tuple[tuple[str, Channel | None, Channel | None], ...] = (
        ("uplink", before.uplink, after.uplink),
        ("downlink", before.downlink, after.downlink),
        ("loopback", before.local, after.local),
    )
    return [
        f"{before.name}'s {name} carries {new.bandwidth_bytes_per_s * 8 / 1e6:.3g} Mbit/s of payload instead of "
        f"{old.bandwidth_bytes_per_s * 8 / 1e6:.3g}"
        for name, old, new in ways
        if old is not None and new is not None and _differ(old.bandwidth_bytes_per_s, new.bandwidth_bytes_per_s)
    ]


def _differ(old: float, new: float) -> bool:
    return max(old, new) > NOTABLE * min(old, new)
