"""Finds the first cause when ranks fail: one of them did something, the others only noticed.

Makes the message that the user reads. How a process ended is found out by `launch/child.py`.
"""

from collections.abc import Sequence
from typing import Any

from nfold.core.members import Member
from nfold.core.text.units import seconds
from nfold.errors import ClusterError, NfoldError, NonFiniteLoss, ProgramError, WorkerLost
from nfold.runtime.failures.network_cuts import NetworkCut, explained

_CHANGE = "while hosts came and went"
_DOING = {
    "load": "while it loaded the program",
    "reside": "while it made room for samples",
    "move": "while samples moved",
    "profile": "while it measured the program",
    "lend": "while it lent its state to a newcomer",
    "listen": "while it connected to the other ranks",
    "connect": "while it connected to the other ranks",
    "probe": "while it probed the network",
    "pace": "while it measured how fast all compute at once",
    "build": "while it built the model",
    "drop": "while it made room for the next plan to try",
    "evaluate": "while it evaluated the test data",
    "abandon": _CHANGE,
    "holdings": _CHANGE,
    "recall": _CHANGE,
    "hand": _CHANGE,
    "checkpoint": "while its state was gathered for a checkpoint",
    "model": "while the best model was gathered",
    "keep": "while what others hold was gathered for a checkpoint",
    "average": "while the averaged weights were gathered",
    "deliver": "while the final model was gathered",
    "finish": "while it finished",
}
"""What a rank does at an order, in words that follow `failed` or `was killed`."""
_SILENT = "has not answered for"
_CUT_OFF = "and rank"
_OUT_OF_MEMORY = "was killed by signal 9"
_TELLS_ALL = (_SILENT, _CUT_OFF, _OUT_OF_MEMORY)
"""Who is stopped, cut off, or killed from outside, prints nothing of it."""
_WHY_SILENT = "its process is stopped, or its machine hangs or cannot be reached"
_WHY_CUT = "the network between them is cut"
_KINDS: dict[str, type[NfoldError]] = {kind.__name__: kind for kind in (ProgramError, ClusterError, NonFiniteLoss)}


class Postmortem:
    """Collects how each rank ended, from the first bad news on."""

    def __init__(self) -> None:
        self._world_size = 0
        self._members: tuple[int, ...] = ()
        self._places: dict[int, str] = {}
        self._has_hosts = False
        self._failed: dict[int, dict[str, Any]] = {}
        self._left: dict[int, str] = {}
        self._excused: set[int] = set()
        self._sentenced: dict[int, str] = {}
        self._stalled: set[int] = set()
        self._first = True
        self._order = ""
        self._steps_done = 0
        self.open = False

    def regroup(self, members: Sequence[Member]) -> None:
        """Note who has each rank in a new generation. So far none has failed or is done."""
        self._world_size = len(members)
        self._members = tuple(member.number for member in members)
        self._places = {rank: f"on {member.host}, pid {member.pid}" for rank, member in enumerate(members)}
        self._has_hosts = len({member.host for member in members}) > 1
        self._excused, self._stalled = set(), set()

    def ordered(self, order: str) -> None:
        """Note the last order to all ranks."""
        self._order = order

    def reached(self, steps: int) -> None:
        """Note how many steps all ranks have reported."""
        self._steps_done = steps

    def failed(self, rank: int, message: dict[str, Any]) -> None:
        """Note the message of a rank that gives up."""
        self._failed.setdefault(rank, message)
        self.open = True

    def left(self, rank: int, status: str) -> None:
        """Note the exit status of a rank's process."""
        if rank in self._excused:
            return
        self._left.setdefault(rank, status)
        self.open = True

    def silent(self, rank: int, silent_s: float) -> None:
        """Note that a rank is given up, because it shows no sign of life."""
        self.left(rank, f"{_SILENT} {silent_s:.0f} s")

    def cut_off(self, cut: NetworkCut) -> None:
        """Note that a rank and others are given up, because nothing passes between them."""
        self.left(cut.rank, _say_cut(cut))

    def sentenced(self, members: tuple[int, ...], fault: str) -> None:
        """Note members that are killed on purpose, by a fault that the user asked for; ranks may change before."""
        self._sentenced.update(dict.fromkeys(members, fault))

    @property
    def is_loading(self) -> bool:
        """Whether ranks were last told to load the program."""
        return self._order == "load"

    def tell_silence(self, rank: int, noticed_s: float, lost_s: float, *, goes_on: bool) -> str:
        """Return a line for the user about a rank that has fallen silent; the run may go on once that is lost."""
        return (
            f"rank {rank} ({self._place(rank)}) {_SILENT} {noticed_s:.0f} s: {_WHY_SILENT}. {_after(lost_s, goes_on)}"
        )

    def tell_return(self, rank: int) -> str:
        """Return a line for the user about a silent rank that is heard again."""
        return f"rank {rank} ({self._place(rank)}) answers again"

    def tell_cut(self, cut: NetworkCut, lost_s: float, *, goes_on: bool) -> str:
        """Return a line for the user about ranks that do not hear each other; the run may go on without the first."""
        where = f"rank {cut.rank} ({self._place(cut.rank)})"
        return f"{where} {_say_cut(cut)}: {_WHY_CUT}. {_after(lost_s, goes_on)}"

    def tell_healed(self, cut: NetworkCut) -> str:
        """Return a line for the user about ranks that hear each other again."""
        return f"rank {cut.rank} ({self._place(cut.rank)}) and {_ranks(cut.others)} hear each other again"

    def tell_stall(self, rank: int, stall: dict[str, Any] | None) -> list[str]:
        """Return what a user should know of what a rank has done for far too long, once.

        Args:
            rank: which.
            stall: as `stall_told` has it; None: it goes on.
        """
        is_new = (stall is not None) != (rank in self._stalled)
        self._stalled ^= {rank} if is_new else set()
        if not is_new:
            return []
        if stall is None:
            return [f"rank {rank} ({self._place(rank)}) goes on"]
        usual = "" if stall["step_s"] is None else f" A whole step took {seconds(stall['step_s'])} before."
        at = f": {', '.join(stall['at'])}" if stall["at"] else ""
        return [
            f"rank {rank} ({self._place(rank)}) has {stall['doing']} for {stall['seconds']:.0f} s in step "
            f"{stall['step'] + 1}{at}.{usual} It is waited for without end. If it hangs, kill that process: it "
            "is then a lost rank as any other. Or press Ctrl-C twice."
        ]

    def excuse(self, ranks: tuple[int, ...]) -> None:
        """Note ranks that are done: that they leave is no failure."""
        self._excused.update(ranks)

    def take_first(self) -> bool:
        """Return True once: at the first bad news."""
        first, self._first = self._first, False
        return first

    @property
    def complete(self) -> bool:
        """Whether every rank has spoken or gone."""
        return len({*self._failed, *self._left, *self._excused}) >= self._world_size

    @property
    def is_death(self) -> bool:
        """Whether the first cause is a process that ended without a message."""
        first = next(iter(self._deaths.values()), None)
        return not self._causes and first is not None and not first.startswith(_TELLS_ALL)

    @property
    def dead(self) -> tuple[int, ...]:
        """Ranks that ended, fell silent or were cut off, where that is all that happened; empty: else."""
        return () if self._causes else tuple(self._deaths or {**self._left, **self._apart})

    def status(self, rank: int) -> str:
        """Return how a rank ended, and by which fault if that was asked for; empty: that is not known."""
        status = self._left.get(rank) or self._apart.get(rank, "")
        fault = self._sentenced.get(self._members[rank])
        return f'{status} (--fault "{fault}")' if status and fault else status

    @property
    def is_all_echo(self) -> bool:
        """Whether ranks have only told that they lost another one, which has said nothing itself."""
        return not self._causes and not self._deaths

    def forget(self) -> None:
        """Begin anew: the ranks that are left go on without those that were lost."""
        self._failed, self._left, self._first, self.open = {}, {}, True, False

    def error(self) -> NfoldError:
        """Return the first cause as an error: a rank's own failure, else a death, else the first echo."""
        if self._causes:
            rank, message = next(iter(self._causes.items()))
            return self._own_failure(rank, message)
        if self._deaths:
            rank, status = next(iter(self._deaths.items()))
            return WorkerLost(f"rank {rank} ({self._place(rank)}) {status} {self._when()}.{self._advice(rank, status)}")
        rank, message = next(iter(self._failed.items()))
        return WorkerLost(
            f"rank {rank} ({self._place(rank)}) lost its connection {self._doing(message)}: "
            f"{_sentence(message['text'])}{self._others()}"
        )

    def details(self) -> str:
        """Return the tracebacks of all ranks, for the log."""
        return "\n".join(f"rank {rank}:\n{message['traceback']}" for rank, message in self._failed.items())

    @property
    def _causes(self) -> dict[int, dict[str, Any]]:
        return {rank: message for rank, message in self._failed.items() if not message["is_echo"]}

    @property
    def _apart(self) -> dict[int, str]:
        """The fewest ranks without which no two are left that lost each other, and whom each of them lost. Who has gone
        needs no explanation; of two that explain as much, it is the one that has said nothing."""
        peers = {rank: message.get("peer") for rank, message in self._failed.items() if message["is_echo"]}
        pairs = [frozenset((rank, peer)) for rank, peer in peers.items() if peer is not None]
        living = dict.fromkeys((pair for pair in pairs if not pair & self._left.keys()), 0.0)
        cuts = explained(living, set(range(self._world_size)) - self._failed.keys() - self._excused)
        return {cut.rank: f"lost its connection to {_ranks(cut.others)}" for cut in cuts}

    @property
    def _deaths(self) -> dict[int, str]:
        return {rank: status for rank, status in self._left.items() if rank not in self._failed}

    def _own_failure(self, rank: int, message: dict[str, Any]) -> NfoldError:
        kind = _KINDS.get(message["kind"], WorkerLost)
        where = f"rank {rank} ({self._place(rank)}) failed {self._doing(message)}: "
        if kind is ProgramError and message["step"] is None:
            where = ""  # every rank sees the same program: which one said so first means nothing, but for its host
        end = self._others() if where else f" So says rank {rank} ({self._place(rank)})." if self._has_hosts else ""
        error = kind(f"{where}{_sentence(message['text'])}{end}")
        error.recurs = True
        return error

    def _doing(self, message: dict[str, Any]) -> str:
        if message["step"] is not None:
            return f"at step {message['step'] + 1}"
        return _DOING.get(message["doing"], "while it started")

    def _when(self) -> str:
        """Say when a rank died that could not say so itself, from what the others saw."""
        steps = [message["step"] for message in self._failed.values() if message["step"] is not None]
        if steps:
            return f"at step {max(steps) + 1}"
        if self._order == "until":
            reached = max((message.get("reached", 0) for message in self._failed.values()), default=0)
            if reached:
                return f"near step {reached}"
            if self._steps_done:
                return f"after step {self._steps_done}"
            return "in the first steps"
        return _DOING.get(self._order, "while it started")

    def _advice(self, rank: int, status: str) -> str:
        memory = " If nobody killed it, the machine may have run out of memory: use fewer workers or a smaller batch."
        if (fault := self._sentenced.get(self._members[rank])) and status.startswith(_OUT_OF_MEMORY):
            memory = f' That was asked for: --fault "{fault}".'
        if status.startswith(_SILENT):
            return f"{self._others()} Perhaps {_WHY_SILENT}."
        if status.startswith(_CUT_OFF):
            return f" Every rank still runs: {_WHY_CUT}.{self._others()}"
        return self._others() + (memory if status.startswith(_OUT_OF_MEMORY) else "")

    def _place(self, rank: int) -> str:
        return self._places[rank]

    def _others(self) -> str:
        count = self._world_size - len(self._excused) - 1
        return "" if count < 1 else f" {count} other rank{'s' if count > 1 else ''} stopped because of it."


def _after(lost_s: float, goes_on: bool) -> str:
    return f"After {lost_s:.0f} s {'the run goes on without it' if goes_on else 'the job is given up'}."


def _say_cut(cut: NetworkCut) -> str:
    return f"and {_ranks(cut.others)} have heard nothing from each other for {cut.silent_s:.0f} s"


def _ranks(ranks: tuple[int, ...]) -> str:
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def _sentence(text: str) -> str:
    text = " ".join(text.split())  # one message, one line: the log has the traceback as it was
    return text if text.endswith((".", "!", "?")) else f"{text}."
