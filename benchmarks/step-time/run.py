"""Step time of `auto` and every strategy against PyTorch data parallelism and pipelining, in the same emulated box.

For each network, number of nodes and speed of links: DistributedDataParallel over Gloo, the same with its bf16 hook,
torch.distributed.pipelining with the most even split of its blocks and its best number of chunks, and nfold under
several strategies; all with the same batch. Cells are added to result.json one by one. Needs root, `ip` and `tc`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import torch

from nfold.verbs.try_plans import Trial, TriedPlan, try_plans

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "programs"
sys.path[:0] = [str(HERE.parent), str(PROGRAMS)]
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from nets32 import BATCH_SIZES, NETS  # noqa: E402
from step_tables import tables  # noqa: E402
from step_times import Row, has_all, merged, same_cell, summary, with_times  # noqa: E402

STRATEGIES = ("ring", "auto", "pipeline", "hybrid", "hypergraph", "ps", "weighted")
"""In this order: ranks that have just started are slower for a while, and nothing hangs on how fast the ring is."""
DATA_PARALLEL = ("ring", "ps", "weighted")
CORES = 2.0
"""Of all nodes together: what this machine really has."""
UNEVEN = (2.0, 1.0, 0.5, 0.5)
"""Speeds of `--uneven` nodes, relative to each other."""
TRIAL_S = 12.0
FEWEST_STEPS, MOST_STEPS = 6, 25
PEER_STEPS = 3
PEER_LIMIT_S = 600
PEER_CHUNKS = (4, 8, 16)
"""Of torch.distributed.pipelining: the fastest counts. Its 1F1B wants one for each stage at least, all of one size."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A network on a cluster."""

    net: str
    cores: tuple[float, ...]
    link_mbit: int

    @property
    def cluster(self) -> str:
        """Its cluster file."""
        return "\n".join(
            f'[[node]]\nname = "n{index}"\ncores = {cores}\nmemory = "3 GiB"\nuplink = "{self.link_mbit} Mbit/s"\n'
            for index, cores in enumerate(self.cores)
        )

    @property
    def key(self) -> dict[str, Any]:
        """How its row says which it is."""
        return {"net": self.net, "nodes": len(self.cores), "cores": list(self.cores), "link_mbit": self.link_mbit}


def cells(nets: list[str], nodes: list[int], links: list[int], *, uneven: bool) -> Iterator[Cell]:
    """All combinations; uneven nodes are four."""
    for net in nets:
        for link_mbit in links:
            if uneven:
                yield Cell(net, tuple(CORES * speed / sum(UNEVEN) for speed in UNEVEN), link_mbit)
            else:
                for count in nodes:
                    yield Cell(net, (CORES / count,) * count, link_mbit)


def most_even_split(net: str, stages: int) -> str:
    """Return the split between blocks whose slowest stage is fastest, from the time of each block: all splits tried."""
    torch.set_num_threads(1)
    blocks, values = list(NETS[net]()), torch.randn(BATCH_SIZES[net] // 4, 1, 32, 32)
    seconds = []
    for block in blocks:
        values = values.detach().requires_grad_()
        times = []
        for _ in range(5):
            began_s = time.perf_counter()
            made = block(values)
            made.sum().backward()
            times.append(time.perf_counter() - began_s)
        seconds.append(median(times))
        values = made
    best = min(
        combinations(range(1, len(blocks)), stages - 1),
        key=lambda split: max(
            sum(seconds[begin:end]) for begin, end in zip((0, *split), (*split, len(blocks)), strict=True)
        ),
    )
    return ",".join(map(str, best))


def peer(cluster: Path, *command: str) -> float | None:
    """Run a script of torch.distributed on every node and return what rank 0 printed last; None if it failed."""
    nfold = Path(sys.executable).with_name("nfold")
    whole = [nfold, "emulate", str(cluster), "--", sys.executable, *command]
    try:
        done = subprocess.run(whole, capture_output=True, text=True, timeout=PEER_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)} took longer than {PEER_LIMIT_S} s", file=sys.stderr)
        return None
    last = [line.split()[-1] for line in done.stdout.splitlines() if line.split()]
    if done.returncode or not last:
        print(done.stderr[-600:], file=sys.stderr)
        return None
    return float(last[-1])


def measure(cell: Cell, strategies: list[str]) -> Row:
    """Run peers and strategies one after another on the same cluster."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(cell.cluster)
        steps = ("--steps", str(PEER_STEPS))
        split = most_even_split(cell.net, len(cell.cores))
        peers = {
            "ddp": peer(cluster, str(HERE / "ddp.py"), cell.net, *steps),
            "ddp bf16": peer(cluster, str(HERE / "ddp.py"), cell.net, "--bf16", *steps),
        }
        pipelining = pipelining_s(cluster, cell.net, split, *steps)
        peers["pipelining"] = min(pipelining.values(), default=None)
        print("  ", cell.net, peers, "split", split, "by chunks", pipelining, flush=True)
        ours = try_ours(cell, cluster, strategies, peers)
    ran = {**stamp(), "names": [*peers, *ours]}
    row = {**cell.key, "peers_s": peers, "split": split, "pipelining_s": pipelining, "ours": ours, "runs": [ran]}
    return with_times(row)


def pipelining_s(cluster: Path, net: str, split: str, *arguments: str) -> dict[str, float]:
    """Run torch.distributed.pipelining with every number of chunks; return the seconds of a step by it."""
    found = {}
    for chunks in PEER_CHUNKS:
        if chunks >= split.count(",") + 2 and BATCH_SIZES[net] % chunks == 0:
            script = (str(HERE / "pipelining.py"), net, "--split", split, "--chunks", str(chunks))
            found[str(chunks)] = peer(cluster, *script, *arguments)
    return {chunks: step_s for chunks, step_s in found.items() if step_s is not None}


def try_ours(
    cell: Cell, cluster: Path, strategies: list[str], peers_s: dict[str, float | None]
) -> dict[str, dict[str, Any]]:
    """Try every strategy with ranks that start once."""
    ours: dict[str, dict[str, Any]] = {}

    def tell(tried: TriedPlan) -> None:
        ours[tried.trial.strategy] = found = figures(tried)
        print("     ", tried.trial.strategy, found, flush=True)

    trials = [Trial(strategy=name, workers=len(cell.cores), steps=steps_of(name, peers_s)) for name in strategies]
    try_plans(f"{PROGRAMS / 'nets32.py'}:program_{cell.net}", trials, on_tried=tell, emulate=cluster)
    return ours


def steps_of(strategy: str, peers_s: dict[str, float | None]) -> int:
    """As many steps as a trial's time allows, if the strategy is about as fast as PyTorch's tool of its kind."""
    alike = ("ddp",) if strategy in DATA_PARALLEL else ("ddp", "pipelining")
    about_s = min((seconds for name in alike if (seconds := peers_s[name])), default=1.0)
    return max(FEWEST_STEPS, min(MOST_STEPS, round(TRIAL_S / about_s)))


def figures(tried: TriedPlan) -> dict[str, Any]:
    """What a trial came to."""
    report, plan = tried.report, tried.plan
    if report is None or plan is None:
        return {"refused": tried.refused}
    return {
        "measured_step_s": report.step_s.p50,
        "predicted_step_s": report.predicted.step_s,
        "strategy": plan.strategy,
        "chunks": plan.chunks,
        "sent_bytes_per_step": report.sent_bytes_per_step,
        "bytes_equal": report.sent_bytes_per_step == report.predicted.sent_bytes_per_step,
        "compute_s": report.time.compute_s,
        "peak_rss_bytes": report.peak_rss_bytes,
        "predicted_peak_bytes": max(plan.predicted.peak_memory_bytes),
    }


def play(cells: list[Cell], strategies: list[str], *, keep: bool) -> list[Row]:
    """Measure cell after cell and write result.json after each; those of before stay in it."""
    rows: list[Row] = known(__file__).get("rows", [])
    for cell in cells:
        before = next((row for row in rows if same_cell(row, cell.key)), None)
        if keep and before and has_all(before, strategies):
            continue
        found = measure(cell, strategies)
        found = merged(before, found) if before else found
        rows = [row for row in rows if row is not before] + [found]
        print(cell.key, found.get("times_ddp"), flush=True)
        write({"summary": summary(rows), "rows": rows}, __file__)
    return rows


def sum_up() -> list[Row]:
    """Compute the summary of result.json anew; what it was measured on, and when, stays as it is."""
    result = {"rows": [], **known(__file__)}
    told = {**result, "summary": summary(result["rows"])}
    (HERE / "result.json").write_text(json.dumps(told, indent=1) + "\n")
    return told["rows"]


def main() -> None:
    """Measure, or only sum up; print the summary."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nets", default=",".join(NETS))
    options.add_argument("--nodes", default="4,8")
    options.add_argument("--links", default="50,100,1000", help="Mbit/s")
    options.add_argument("--strategies", default=",".join(STRATEGIES))
    options.add_argument("--uneven", action="store_true", help="four nodes of speed 2 : 1 : 0.5 : 0.5")
    options.add_argument("--keep", action="store_true", help="skip cells of which all of these strategies are known")
    options.add_argument("--summary", action="store_true", help="sum up result.json and measure nothing")
    options.add_argument("--tables", action="store_true", help="print the tables of README.md and measure nothing")
    chosen = options.parse_args()
    if chosen.tables:
        print(tables(known(__file__).get("rows", [])))
    elif chosen.summary:
        print(json.dumps(summary(sum_up()), indent=1))
    else:
        nodes, links = (list(map(int, text.split(","))) for text in (chosen.nodes, chosen.links))
        asked = list(cells(chosen.nets.split(","), nodes, links, uneven=chosen.uneven))
        print(json.dumps(summary(play(asked, chosen.strategies.split(","), keep=chosen.keep)), indent=1))


if __name__ == "__main__":
    main()
