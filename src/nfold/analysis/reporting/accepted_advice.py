"""Whether nfold would do what a command that is about to be advised says: it is planned first."""

import re
from dataclasses import replace
from math import lcm

from nfold.planning.choosing.search import is_possible
from nfold.planning.choosing.strategies import AUTO
from nfold.planning.inputs.facts import Facts as Question

_FLAG = re.compile(r"(-n|--\w[\w-]*) ([\w,-]+)")


def is_accepted(command: str, question: Question) -> bool:
    """Return whether every run that a command asks for can be planned. The searches that take seconds are left out.

    Args:
        command: `nfold VERB FILE FLAGS`; its flags are numbers of ranks and chunks, and strategies.
        question: that the run was planned from.
    """
    flags = dict(_FLAG.findall(command))
    counts = [int(count) for count in flags.get("-n", "1").split(",")]
    servers, chunks = int(flags.get("--servers", 0)), int(flags.get("--chunks", 0)) or None
    strategies = (flags.get("--strategies") or flags.get("--strategy") or AUTO).split(",")
    if command.startswith("nfold compare"):
        strategies = strategies if "--strategies" in flags else ["ring", "ps"]
        chunks = chunks or lcm(*counts)
    return all(_is_run(_with_ranks(question, count, servers), name, chunks) for count in counts for name in strategies)


def _is_run(question: Question, strategy: str, chunks: int | None) -> bool:
    """One worker is run as a single device, whatever it is compared with."""
    if question.workers == 1 and not question.servers:
        return is_possible(replace(question, chunks=None), "single")
    return is_possible(replace(question, chunks=chunks), strategy)


def _with_ranks(question: Question, workers: int, servers: int) -> Question:
    """Return the question with other numbers of ranks: the first nodes of its cluster, and these again where more are
    asked for than there are."""
    used = tuple(dict.fromkeys((*question.nodes, *(node.name for node in question.cluster.nodes))))
    nodes = (*question.nodes, *(name for name in used if name not in question.nodes))
    while len(nodes) < workers + servers:
        nodes = (*nodes, *used)
    return replace(question, nodes=nodes[: workers + servers], workers=workers, servers=servers)
