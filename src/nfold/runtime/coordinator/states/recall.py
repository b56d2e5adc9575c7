"""Finds the newest state that those who are left hold whole, after others were lost. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nfold.runtime.checkpoint.joined_facts import join_facts
from nfold.runtime.checkpoint.state_file import pack_header
from nfold.runtime.coordinator.states.holdings import Holding, entries_of, read_rows, share_out
from nfold.runtime.coordinator.states.kept_state import KeptState
from nfold.runtime.coordinator.states.state_ledger import StateLedger, ToldState


def recalled_state(
    ledger: StateLedger, said: Mapping[int, Mapping[str, Any]], most_steps: int, chunks: int
) -> KeptState | None:
    """Return the state to go back to; None: no state is whole among those who are left.

    Args:
        ledger: what all had told before.
        said: what each member that is left answers to `recall`.
        most_steps: of which enough is known that they may count.
        chunks: of a batch.
    """
    committed = _committed_state(said, most_steps, chunks)
    remembered = _remembered_state(ledger, said, most_steps, chunks)
    found = [state for state in (committed, remembered) if state is not None]
    return max(found, key=lambda state: state.step, default=None)


def _committed_state(said: Mapping[int, Mapping[str, Any]], most_steps: int, chunks: int) -> KeptState | None:
    """Return the newest state that each rank of a generation had whole; None: nobody holds one."""
    whole = {
        (number, (held["step"], held["generation"])): held["told"]
        for number, answer in said.items()
        for held in answer["states"]
        if held["is_whole"] and held["step"] <= most_steps
    }
    if not whole:
        return None
    newest = max(label for _, label in whole)
    told = {number: each for (number, label), each in whole.items() if label == newest}
    step, generation = newest
    facts = next(iter(told.values()))["facts"]
    here = tuple(each for number, own in told.items() for each in read_rows(number, own["rows"]))
    one = tuple(each for each in here if each.member == here[0].member)
    header = pack_header(entries_of(one), join_facts([facts], step, chunks))
    return KeptState(generation, step, header, one, here, is_committed=True)


def _remembered_state(
    ledger: StateLedger, said: Mapping[int, Mapping[str, Any]], most_steps: int, chunks: int
) -> KeptState | None:
    """Return the newest state that all had told of, and of which those who are left have everything."""
    for number, each in said.items():
        for held in each["states"]:
            known = ledger.known((held["generation"], held["step"]))
            if known is not None and held["told"] is not None:
                ledger.take((known.generation, known.step), known.members, number, held["told"])
    for state in ledger.whole(most_steps):
        whole, here = state.holdings, _here(state, said)
        if share_out(whole, here) is not None:
            header = pack_header(entries_of(whole), join_facts(state.facts_by_rank, state.step, chunks))
            return KeptState(state.generation, state.step, header, whole, here)
    return None


def _here(state: ToldState, said: Mapping[int, Mapping[str, Any]]) -> tuple[Holding, ...]:
    """Return what of a state is held by those who are left."""
    named = {(each.origin, each.index): each for each in state.holdings}
    found: list[Holding] = []
    for number, answer in said.items():
        for held in answer["states"]:
            if (held["generation"], held["step"]) != (state.generation, state.step):
                continue
            own = [piece for piece in named if piece[0] == number and held["told"] is not None]
            others = [(member, index) for member, index in held["others"]]
            found += (replace(named[piece], member=number) for piece in (*own, *others) if piece in named)
    return tuple(found)
