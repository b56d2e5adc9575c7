"""What members have told of the states that they hold, and which of these is whole. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nfold.runtime.coordinator.states.holdings import Holding, read_rows

_MOST_STATES = 8
"""That are remembered; a rank holds those of three steps at most."""


@dataclass(slots=True)
class ToldState:
    """The state after some steps of a generation, as its members have told of it."""

    generation: int
    step: int
    members: tuple[int, ...]
    """That have a part of it, by rank."""
    rows: dict[int, Sequence[Sequence[Any]]] = field(default_factory=dict)
    facts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    cost_s: float = 0.0
    """Seconds that taking it has cost the member whom it has cost most; 0: it was there already."""

    @property
    def is_whole(self) -> bool:
        """Whether all members have told what they hold of it."""
        return set(self.rows) >= set(self.members)

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What all members had when it was taken."""
        return tuple(each for member in self.members for each in read_rows(member, self.rows[member]))

    @property
    def facts_by_rank(self) -> list[Mapping[str, Any]]:
        """What members said beside tensors."""
        return [self.facts[member] for member in self.members]


class StateLedger:
    """All states of a run that somebody may still hold."""

    def __init__(self) -> None:
        self._states: dict[tuple[int, int], ToldState] = {}
        self._rows: dict[tuple[int, int], Sequence[Sequence[Any]]] = {}
        """Of the last state that a member of a generation has told of."""

    def take(self, label: tuple[int, int], members: tuple[int, ...], number: int, told: Mapping[str, Any]) -> ToldState:
        """Take in what one member tells of a state; return what is known of it.

        Args:
            label: generation and steps done.
            members: of that generation, that have a part of it.
            number: of the member.
            told: its rows, None where they are those of its last state, facts, and what a snapshot has cost.
        """
        rows = told["rows"] if told["rows"] is not None else self._rows[label[0], number]
        self._rows[label[0], number] = rows
        state = self._states.setdefault(label, ToldState(*label, members))
        state.rows[number], state.facts[number] = rows, told["facts"]
        state.cost_s = max(state.cost_s, told.get("seconds", 0.0))
        self._states = {key: self._states[key] for key in sorted(self._states)[-_MOST_STATES:]}
        generations = {generation for generation, _ in self._states}
        self._rows = {key: told for key, told in self._rows.items() if key[0] in generations}
        return state

    def known(self, label: tuple[int, int]) -> ToldState | None:
        """Return what is known of a state."""
        return self._states.get(label)

    def whole(self, most_steps: int) -> list[ToldState]:
        """Return the states that all members have told of, those after the most steps first; none after more."""
        found = [state for state in self._states.values() if state.is_whole and state.step <= most_steps]
        return sorted(found, key=lambda state: (-state.step, -state.generation))
