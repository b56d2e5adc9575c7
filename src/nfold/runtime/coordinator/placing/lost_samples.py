"""Who is asked for a sample that a node has lost while it trains, and how it comes back. Pure."""

import base64
from collections.abc import Mapping
from typing import Any

from nfold.runtime.control import commands as cmd
from nfold.runtime.coordinator.placing.living_data import LivingData


def ask_for(living: LivingData | None, ranks: tuple[int, ...], member: int, number: int) -> list[cmd.ToShell]:
    """Return the commands that follow when a member lacks a sample: who has it gives it, or nobody does.

    Args:
        living: the data of all members; None: nobody trains yet.
        ranks: the members that are there.
        member: who lacks it.
        number: of the sample.
    """
    if living is None:
        return [_refused(member, number, f"sample {number} is lost. Let the run go on with --resume: it comes again.")]
    node, owner = living.home_of(number)
    here = living.node_of(member)
    if owner not in ranks or owner == member:
        why = (
            f"sample {number} on {here} is not what was written there, and only {node} has it, which is not there. "
            f"Bring {node} back, and let the run go on with --resume."
        )
        return [_refused(member, number, why)]
    return [
        cmd.Noted(f"note: sample {number} on {here} was lost or changed by its disk, and is fetched again from {node}"),
        cmd.Send((owner,), {"do": "give", "beside": True, "number": number, "to": member}),
    ]


def _refused(member: int, number: int, why: str) -> cmd.Send:
    return _given(member, {"number": number, "why": why, "name": "", "crc": 0}, b"")


def pass_on(given: Mapping[str, Any]) -> cmd.Send:
    """Return a sample, as who has it gives it, for who lacks it."""
    told = {key: given[key] for key in ("number", "why", "name", "crc")}
    return _given(given["to"], told, base64.b64decode(given["data"]))


def _given(member: int, told: Mapping[str, Any], data: bytes) -> cmd.Send:
    return cmd.Send((member,), {"do": "given", "beside": True, **told}, data)
