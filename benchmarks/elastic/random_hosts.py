"""Lets hosts of a run join, leave, stall, be cut off and be killed at random, as long as it trains."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count, cycle

from elastic_run import TICK, ElasticRun
from hosts_at import Hosts

OTHERS = 0.15
"""The share of disturbances that hit a host which is only getting ready."""
LONG_CUTS = 0.2
"""The share of cuts after which a host is given up before its network is back."""
SILENT_S = 60.0
"""After which it is."""
SPARE = 3
"""Networks beside those of the most hosts: one who leaves is still in its own when the next one comes."""


class HungError(Exception):
    """A run does no more steps."""


class RandomHosts:
    """The hosts of one run, and what is done to them."""

    def __init__(self, run: ElasticRun, draw: random.Random, least: int, most: int, hosts: Hosts | None = None) -> None:
        """Nobody has joined yet.

        Args:
            run: waits for hosts.
            draw: says what happens, and to whom.
            least: hosts that train are left.
            most: hosts that there are at a time.
            hosts: more than those, each in a network of its own, from which it is cut off, too; None: all on loopback.
        """
        self.run, self._draw, self._hosts = run, draw, hosts
        self._least, self._most = least, most
        self._names = (f"host-{number}" for number in count())
        self._turn = cycle(range(most + SPARE))
        self._places: dict[str, int] = {}
        self._cut: set[str] = set()
        self._mending: list[threading.Timer] = []
        self.done: Counter[str] = Counter()

    def play(self, between_s: tuple[float, float], hung_s: float, tell: Callable[[int, str], None]) -> None:
        """Let two hosts join, and disturb them until the run ends.

        Args:
            between_s: the least and the most seconds between two disturbances.
            hung_s: without a step mean that it hangs.
            tell: is told of each disturbance, and of the last step before it.

        Raises:
            HungError: it hangs.
        """
        self._join()
        self._join()
        try:
            self._disturb_to_the_end(between_s, hung_s, tell)
        finally:
            for mending in self._mending:
                mending.cancel()

    def _disturb_to_the_end(
        self, between_s: tuple[float, float], hung_s: float, tell: Callable[[int, str], None]
    ) -> None:
        run, step, begin_s = self.run, 0, time.monotonic()
        while run.until(partial(_is_past, run, step), hung_s - (time.monotonic() - begin_s)):
            if run.process.poll() is not None:
                return
            step, begin_s = run.last_step, time.monotonic()
            tell(step, self.disturb())
            TICK.wait(self._draw.uniform(*between_s))
        if run.process.poll() is None:
            raise HungError(f"no step for {hung_s:.0f} s after step {run.last_step}")

    def disturb(self) -> str:
        """Do one thing at random that leaves enough hosts; return what."""
        run, draw = self.run, self._draw
        for name in [name for name, host in run.hosts.items() if host.poll() is not None]:
            del run.hosts[name]  # it was given back
        training = [name for name in run.training() if name not in self._cut]
        others = [name for name in run.hosts if name not in run.training()]
        wishes = ["join"] * 3 if len(run.hosts) < self._most else []
        wishes += ["stall"] if training else []
        wishes += ["leave", "kill", "kill_rank"] if len(training) > self._least else []
        wishes += ["leave two", "kill two"] if len(training) > self._least + 1 else []
        wishes += ["cut"] if len(training) > self._least and self._hosts is not None else []
        if others and draw.random() < OTHERS:
            training, wishes = others, ["leave", "kill"]
        if not wishes:
            return "nothing"
        kind = draw.choice(wishes)
        chosen = draw.choice(training) if training and kind != "join" else ""
        match kind:
            case "join":
                self._join()
            case "leave":
                run.leave(chosen)
            case "kill":
                run.kill(chosen)
            case "kill_rank":
                run.kill_rank(chosen)
            case "stall":
                run.stall(chosen, draw.uniform(0.2, 3.0))
            case "cut":
                self._cut_off(chosen)
            case "leave two" | "kill two":
                for name in draw.sample(training, 2):
                    (run.leave if kind == "leave two" else run.kill)(name)
        self.done[kind] += 1
        return f"{kind} {chosen}"

    def _join(self) -> None:
        name = next(self._names)
        if self._hosts is None:
            self.run.join(name)
            return
        taken = {self._places[other] for other in (*self.run.hosts, *self._cut)}
        self._places[name] = next(place for place in self._turn if place not in taken)
        self.run.join(name, self._hosts.inside(self._places[name]))

    def _cut_off(self, name: str) -> None:
        """Take a host off its network, and bring it back later."""
        assert self._hosts is not None
        assert self._hosts.networks is not None
        networks, place = self._hosts.networks, self._places[name]
        is_long = self._draw.random() < LONG_CUTS
        cut_s = SILENT_S + self._draw.uniform(15, 25) if is_long else self._draw.uniform(0.5, 4.0)

        def mend() -> None:
            networks.mend(place)
            self._cut.discard(name)

        self._cut.add(name)
        networks.cut(place)
        self._mending.append(threading.Timer(cut_s, mend))
        self._mending[-1].start()


def _is_past(run: ElasticRun, step: int) -> bool:
    return run.last_step > step
