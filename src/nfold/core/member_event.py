"""One row of a run's ledger of events: what changed who trains, or how, and what that cost."""

from dataclasses import dataclass

from nfold.core.text.units import count, figure, seconds, size

_TOLD = {"join": "{who} has joined", "leave": "{who} has left", "loss": "{who} is lost", "plan": "another plan follows"}
"""By kind; others are told by their name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberEvent:
    """Something for which a generation ended while a run trained.

    Where several hosts come or go at once, each has a row. They share one pause; bytes and samples are divided among
    them, so that a sum over rows counts each once.
    """

    at: float
    """When the next step was done after it: seconds since 1970."""
    kind: str
    """`join`, `leave` or `loss` of a host; `speed`: it computes faster or slower; `plan`: the same ranks go on by
    another plan; or another word."""
    who: str
    """The host; empty: it is about all of them."""
    step: int
    """From which on the others train with it, or without it; the first is 1."""
    ranks: int
    """That train from there on; 0: no step followed."""
    pause_s: float
    """In which nobody trained."""
    steps_again: int = 0
    """Steps that were lost with it, and are played again."""
    again_from: str = ""
    """What the others went on from after a loss, in words."""
    reason: str = ""
    """Why it happened, as far as that is known; of `speed`: how the node computes now."""
    share: str = ""
    """Of `speed`: what the node computes of a step from there on."""
    boot_s: float | None = None
    """From the start of its agent to its first step; None: it has not joined, or was not heard of before."""
    moved_bytes: int = 0
    """State that ranks were given for it."""
    samples_at_stake: int = 0
    """That were trained on, and are again: their work was lost."""
    samples_lost: float | None = None
    """That would have been trained on at the pace before it: in the pause, while steps were slower than they soon were,
    and while lost ones were played again. None: no step was done before."""

    @property
    def told(self) -> str:
        """The event as a line."""
        if self.kind == "speed":
            return (
                f"{self.name}: it gets {self.share} from step {self.step} on, after a pause of {seconds(self.pause_s)}"
            )
        if not self.ranks:
            return f"{self.name}, and no step followed"
        again = f", {count(self.steps_again, 'step')} of them for the second time" if self.steps_again else ""
        again += f", from {self.again_from}" if self.again_from else ""
        return (
            f"{self.name}: {count(self.ranks, 'rank')} train{'s' if self.ranks == 1 else ''} from step "
            f"{self.step} on{again}, after a pause of {seconds(self.pause_s)}"
        )

    @property
    def name(self) -> str:
        """Who did what."""
        if self.kind == "speed":
            return f"{self.who} {self.reason}"
        return _TOLD.get(self.kind, f"{self.kind} {{who}}").format(who=self.who).strip()

    @property
    def costs(self) -> str:
        """Its reason, and what it cost beside the pause; empty: nothing is known of that."""
        told = [
            "" if self.kind == "speed" else self.reason,
            "" if self.boot_s is None else f"{seconds(self.boot_s)} from its start to its first step",
            f"{size(self.moved_bytes)} of state moved" if self.moved_bytes else "",
            f"{count(self.samples_at_stake, 'sample')} at stake" if self.samples_at_stake else "",
            "" if self.samples_lost is None else f"{figure(self.samples_lost)} samples fewer than at the pace before",
        ]
        return "; ".join(each for each in told if each)
