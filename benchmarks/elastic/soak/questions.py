"""One process asks Mt-KaHyPar again and again: what does it keep?"""

import argparse
import itertools
import time
from pathlib import Path

from nfold.machine.heap import give_back, share_heap
from nfold.planning.hypergraph import kahypar
from nfold.planning.hypergraph.block_limits import Limits
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph, Net
from nfold.planning.hypergraph.kahypar_processes import MOST, Processes

CHUNKS, OPERATORS = 6, 6
PLENTY = 1e18


def chain() -> Hypergraph:
    """Return the cells of operators one after another, each with a weight."""
    columns = [tuple(range(row * CHUNKS, (row + 1) * CHUNKS)) for row in range(OPERATORS)]
    weights = [Net(num_bytes=40_000, pins=column) for column in columns]
    pairs = (pair for rows in itertools.pairwise(columns) for pair in zip(*rows, strict=True))
    activations = [Net(num_bytes=4_000, pins=pair) for pair in pairs]
    return Hypergraph(
        groups=tuple((f"operator {row}",) for row in range(OPERATORS)),
        num_chunks=CHUNKS,
        seconds=(1e-3,) * OPERATORS * CHUNKS,
        saved_bytes=(4_000,) * OPERATORS * CHUNKS,
        nets=(*weights, *activations),
        states=(),
        fixed={},
    )


def ask(cells: Hypergraph, number: int) -> None:
    """Ask a question that was not asked before, of either kind."""
    shares = (1.0, 1 + number / 10_000)
    limits = Limits(shares=tuple(each / sum(shares) for each in shares), epsilon=0.1, memory_bytes=(PLENTY,) * 2)
    if number % 2:
        kahypar.partition(cells, limits, number)
    else:
        kahypar.improve(cells, limits, [vertex % 2 for vertex in range(cells.num_vertices)])


def resident_kib() -> int:
    """Return what this process holds, once the allocator has given back what it need not keep."""
    give_back()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0])


def main() -> None:
    """Print what the process holds, again and again."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--questions", type=int, default=2000)
    options.add_argument("--most", type=int, default=MOST, help="questions that one process answers")
    given = options.parse_args()
    kahypar._PROCESSES = Processes(given.most)
    share_heap()  # as `nfold train` does
    cells, before, began_s = chain(), 0, time.perf_counter()
    for number in range(given.questions + 1):
        if number % 250 == 0:
            held = resident_kib()
            grown = f"{(held - before) / 250:6.2f} KiB a question" if before else ""
            print(f"{number:6} questions {held:8} KiB {grown} after {time.perf_counter() - began_s:.1f} s", flush=True)
            before = held
        ask(cells, number)


if __name__ == "__main__":
    main()
