"""Answers a question to Mt-KaHyPar; as a script, one question after another that comes in over its standard input.

    asks ── question, a line of JSON ──> answers
         <── for each vertex its block ─
    its end of the connection is closed ──> ends

A script imports nothing else of nfold, so that it has begun in a tenth of a second.
"""

import contextlib
import functools
import json
import socket
from typing import Any, TypedDict

PACKAGE = "mtkahypar"
READY = b"ready\n"
"""Sent once the package is imported."""


class Question(TypedDict):
    """A hypergraph in plain numbers, and what a partition of it must keep."""

    preset: str
    num_blocks: int
    epsilon: float
    most_weights: list[int]
    """Of each block."""
    weights: list[int]
    """Of each vertex."""
    nets: list[list[int]]
    """Vertices."""
    costs: list[int]
    """Of each net."""
    fixed: list[int]
    """For each vertex the block that it must be in, or -1; empty: none must."""
    blocks: list[int]
    """For each vertex the block that it is in, in a partition to be improved; empty: there is none."""


def answer(question: Question) -> list[int]:
    """Return for each vertex its block."""
    context = _context(question)
    graph = _graph(question, context)
    if not question["blocks"]:
        return list(graph.partition(context).get_partition())
    # Its first two arguments are named the wrong way round.
    partitioned = graph.create_partitioned_hypergraph(context, question["num_blocks"], question["blocks"])
    partitioned.improve_partition(context, 1)
    return list(partitioned.get_partition())


def _context(question: Question) -> Any:
    package = _package()
    package.set_seed(0)
    context = _initializer().context_from_preset(getattr(package.PresetType, question["preset"]))
    context.set_partitioning_parameters(question["num_blocks"], question["epsilon"], package.Objective.KM1)
    context.set_individual_target_block_weights(question["most_weights"])
    return context


def _graph(question: Question, context: Any) -> Any:
    weights, nets = question["weights"], question["nets"]
    graph = _initializer().create_hypergraph(context, len(weights), len(nets), nets, weights, question["costs"])
    if question["fixed"]:
        graph.add_fixed_vertices(question["fixed"], question["num_blocks"])
    return graph


def _package() -> Any:
    import mtkahypar  # 64 MB that only a plan needs

    return mtkahypar


@functools.cache
def _initializer() -> Any:
    return _package().initialize(1, False)


def main() -> None:
    """Answer until the other end of the connection is closed, however its process ended."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), socket.socket(fileno=0) as connection:
        _initializer()
        connection.sendall(READY)
        with connection.makefile("rb") as questions:
            for line in questions:
                connection.sendall(json.dumps(answer(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
