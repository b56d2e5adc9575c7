"""Draws unequal clusters and asks every method where their data should live: what it wins, and how far from the best.

Needs neither root nor torch, only processor time. Parts are kept apart in result.json, and each can be run by itself.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1])]
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this
from plots import chart  # noqa: E402

from nfold.errors import PlanError  # noqa: E402
from nfold.planning.residency.methods.choices import (  # noqa: E402
    Choice,
    greedy,
    integer,
    joint,
    moved_before,
    nothing,
    overlap,
    waterfill,
)
from nfold.planning.residency.methods.joint import is_possible, joint_optimum, of_members  # noqa: E402
from nfold.planning.residency.methods.linear_program import linear_optimum  # noqa: E402
from nfold.planning.residency.methods.waterfilling import Level, holdings_at, water_level  # noqa: E402
from nfold.planning.residency.model.boxes import (  # noqa: E402
    Array,
    Boxes,
    least_compute_s,
)
from nfold.planning.residency.model.problem import Demand, Problem, problem_of  # noqa: E402
from nfold.planning.residency.model.scenarios import SCENARIOS, Scenario, drawn  # noqa: E402
from nfold.planning.residency.model.traffic import Traffic  # noqa: E402

EPOCHS = (1, 10, 100)
SIZES = (10, 100, 1000)
BATCH = 512
GRADIENT_BYTES = (250e3, 1e6, 11e6)
GREEDY_SEEDS = 5
"""With 1,000 nodes, of which each takes a second."""
ILP_SEEDS = {10: 30, 100: 5}
PARTS = ("sweep", "gradients", "ilp", "optimality", "speed")
Row = dict[str, Any]


def main() -> None:
    """Run parts, print what they find, and write result.json after each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--part", choices=PARTS, action="append", help="only this one; the others keep their results")
    options.add_argument("--seeds", type=int, default=30, help="clusters of each scenario and size")
    options.add_argument("--instances", type=int, default=10_000, help="of the part optimality")
    options.add_argument("--ilp-limit", type=float, default=2.0, help="seconds for one integer program")
    options.add_argument("--most-nodes", type=int, default=max(SIZES), help="leave out larger clusters")
    given = options.parse_args()
    sizes = tuple(size for size in SIZES if size <= given.most_nodes)
    made: dict[str, Callable[[], Row]] = {
        "sweep": lambda: sweep(sizes, given.seeds),
        "gradients": lambda: gradients(sizes, given.seeds),
        "ilp": lambda: integer_programs(sizes, given.seeds, given.ilp_limit),
        "optimality": lambda: optimality(given.instances),
        "speed": speed,
    }
    result = {part: found for part, found in known(__file__).items() if part in PARTS}
    for part in given.part or PARTS:
        begun_s = time.process_time()
        found = made[part]()
        result[part] = {**found, "processor_s": round(time.process_time() - begun_s, 1), **stamp()}
        write(result, __file__)


# What moving wins, gradients aside


def sweep(sizes: tuple[int, ...], seeds: int) -> Row:
    """Every scenario, size and number of epochs: each method's speed-up over no move."""
    rows = [
        {"scenario": scenario.name, "nodes": size, "epochs": epochs, **_speedups(scenario, size, epochs, seeds)}
        for scenario, size, epochs in product(SCENARIOS, sizes, EPOCHS)
    ]
    for row in rows:
        medians = "  ".join(f"{name} {row[name]['median']:.2f}" for name in METHODS if name in row)
        print(f"{row['scenario']:22} n {row['nodes']:5} E {row['epochs']:4}  {medians}", flush=True)
    _draw(rows, sizes)
    return {"seeds": seeds, "rows": rows}


def balance(problem: Problem) -> Choice:
    """Divide by speed, as if links were free."""
    boxes = problem.boxes
    level = Level(move_s=boxes.total / float(min(boxes.up.min(), boxes.down.min())), compute_s=least_compute_s(boxes))
    return moved_before("waterfill", problem, holdings_at(boxes, level))


METHODS: dict[str, Callable[[Problem], Choice]] = {
    "balance": balance,
    "greedy": greedy,
    "waterfill": waterfill,
    "overlap": overlap,
}


def _speedups(scenario: Scenario, size: int, epochs: int, seeds: int) -> Row:
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        problem = _problem(scenario, size, seed, epochs)
        stays, best = _run_s(nothing(problem)), _run_s(waterfill(problem))
        found["ideal"].append(stays / (epochs * least_compute_s(problem.boxes)))
        for name, method in METHODS.items():
            if name == "greedy" and size >= 1000 and seed >= GREEDY_SEEDS:
                continue
            run_s = _run_s(method(problem))
            found[name].append(stays / run_s)
            found[f"{name} from the best of moving first"].append(run_s / best - 1)
    return {name: _range(values) for name, values in found.items()}


def _draw(rows: list[Row], sizes: tuple[int, ...]) -> None:
    """Print the thesis-like setting as a chart."""
    for epochs in EPOCHS:
        shown = [row for row in rows if row["scenario"] == "thesis-like" and row["epochs"] == epochs]
        lines = {name: [row[name]["median"] for row in shown] for name in METHODS}
        print(f"\n{epochs} epochs:\n{chart('nodes', sizes, 'times as fast as no move', lines)}")


# With gradients


def gradients(sizes: tuple[int, ...], seeds: int) -> Row:
    """Ten epochs in which gradients travel: balance alone against members chosen too."""
    rows = []
    for kind, scenario, size, gradient_bytes in product(("ring", "server"), SCENARIOS, sizes, GRADIENT_BYTES):
        found: dict[str, list[float]] = defaultdict(list)
        for seed in range(seeds if size < 1000 else min(seeds, 10)):
            problem = _problem(scenario, size, seed, 10, Traffic(kind=kind, gradient_bytes=gradient_bytes))
            stays, chosen = nothing(problem), joint(problem)
            assert stays is not None, "nobody is excluded"
            found["share of gradients, no move"].append(stays.cost.sync_s / stays.cost.epoch_s)
            found["waterfill"].append(stays.cost.run_s / _run_s(waterfill(problem)))
            found["joint"].append(stays.cost.run_s / chosen.cost.run_s)
            found["members"].append(float(chosen.members.sum()))
        row = {"traffic": kind, "scenario": scenario.name, "nodes": size, "gradient_bytes": gradient_bytes}
        rows.append({**row, **{name: _range(values) for name, values in found.items()}})
        medians = "  ".join(f"{name} {rows[-1][name]['median']:.2f}" for name in found)
        print(f"{kind:6} {scenario.name:22} n {size:5} M {gradient_bytes / 1e6:5.2f} MB  {medians}", flush=True)
    return {"seeds": seeds, "epochs": 10, "batch": BATCH, "rows": rows}


# The integer program of independent links


def integer_programs(sizes: tuple[int, ...], seeds: int, limit_s: float) -> Row:
    """What it promises, and what network cards that nodes share deliver, ten epochs."""
    rows = []
    for scenario, size in product(SCENARIOS, (size for size in sizes if size in ILP_SEEDS)):
        found: dict[str, list[float]] = defaultdict(list)
        for seed in range(min(seeds, ILP_SEEDS[size])):
            _solve(_problem(scenario, size, seed, 10), limit_s, found)
        rows.append({"scenario": scenario.name, "nodes": size, **{name: _range(each) for name, each in found.items()}})
        medians = "  ".join(f"{name} {rows[-1][name]['median']:.3g}" for name in found)
        print(f"{scenario.name:22} n {size:5}  {medians}", flush=True)
    used = {size: min(seeds, most) for size, most in ILP_SEEDS.items()}
    return {"seeds": used, "limit_s": limit_s, "rows": rows}


def _solve(problem: Problem, limit_s: float, found: dict[str, list[float]]) -> None:
    begun_s = time.process_time()
    try:
        chosen = integer(problem, limit_s)
    except PlanError:
        found["without an answer in time"].append(1.0)
        return
    assert chosen.promised_s is not None, "it promises"
    stays, best = _run_s(nothing(problem)), _run_s(waterfill(problem))
    found["promised"].append(stays / chosen.promised_s)
    found["delivered"].append(stays / chosen.cost.run_s)
    found["waterfill"].append(stays / best)
    found["gap of the solver"].append(chosen.gap or 0.0)
    found["processor_s"].append(time.process_time() - begun_s)


# Whether the best is the best


def optimality(instances: int) -> Row:
    """Water-filling against a linear program; members against all sets of few nodes."""
    errors = []
    for seed in range(instances):
        boxes, epochs = random_boxes(seed), (1, 10, 100)[seed % 3]
        exact = _weighed(linear_optimum(boxes, epochs)[0], epochs)
        errors.append(abs(_weighed(water_level(boxes, epochs), epochs) / exact - 1))
    print(f"water-filling and linear program: {instances} instances, furthest {max(errors):.2g}")
    joint_errors = [_joint_error(seed) for seed in range(instances // 20)]
    print(f"members and all sets: {len(joint_errors)} instances, furthest {max(joint_errors):.2g}")
    return {
        "water-filling from the linear program": _range(errors),
        "instances": instances,
        "joint from the best of all sets": _range(joint_errors),
        "joint instances": len(joint_errors),
    }


def random_boxes(seed: int, most_nodes: int = 30) -> Boxes:
    """Return nodes that pin some samples, lack storage, or are excluded."""
    random = np.random.default_rng([7, seed])
    count = int(random.integers(2, most_nodes + 1))
    held = np.floor(random.dirichlet(np.full(count, random.choice([0.3, 1.0, 5.0]))) * 1000 * count)
    most = np.where(random.random(count) < 0.2, held + np.floor(random.uniform(0, 500, count)), np.inf)
    most[int(random.integers(count))] = np.inf
    least = np.floor(held * random.random(count) * (random.random(count) < 0.1))
    rate = 50.0 * random.choice([1.0, 2.0, 4.0, 8.0], count)
    excluded = (random.random(count) < 0.1) & (least == 0) & np.isfinite(most)
    size = random.choice([3e3, 110e3])
    up, down = (125e3 * 100 ** random.random(count) / size for _ in range(2))
    return Boxes(held=held, least=least, most=most, rate=np.where(excluded, 0.0, rate), up=up, down=down)


def _joint_error(seed: int) -> float:
    """Return how far members are from the best of all sets of up to seven nodes, as a share of its time."""
    random = np.random.default_rng([8, seed])
    size, scenario = int(random.integers(3, 8)), SCENARIOS[seed % len(SCENARIOS)]
    traffic = Traffic(kind=("ring", "server")[seed % 2], gradient_bytes=float(10 ** random.uniform(3, 7)))
    problem = _problem(scenario, size, seed, int(random.choice([1, 10, 100])), traffic)
    sets = (np.array(bits) for bits in product([False, True], repeat=size))
    best_s = min(of_members(problem, members).run_s for members in sets if is_possible(problem, members))
    return joint_optimum(problem).run_s / best_s - 1


def _weighed(level: Level, epochs: int) -> float:
    return level.move_s + epochs * level.compute_s


# How long it takes


def speed() -> Row:
    """Processor seconds of each method in the thesis-like setting, ten epochs, medians of five."""
    asked: list[tuple[str, Callable[[Problem], Any], tuple[int, ...]]] = [
        ("waterfill", lambda problem: water_level(problem.boxes, 10), (10, 100, 1000)),
        ("linear program", lambda problem: linear_optimum(problem.boxes, 10), (10, 100, 1000)),
        ("greedy", greedy, (10, 100, 1000)),
        ("overlap", overlap, (10, 100, 1000)),
        ("joint", joint, (10, 100, 1000)),
    ]
    rows = [_told(name, size, _timed(method, size)) for name, method, sizes in asked for size in sizes]
    rows.append(_told("waterfill", 100_000, [_large_s(seed) for seed in range(5)]))
    return {"unit": "processor seconds", "rows": rows}


def _told(method: str, size: int, took_s: list[float]) -> Row:
    found = _range(took_s)
    print(f"{method:16} n {size:7}  {found['median'] * 1e3:8.1f} ms (most {found['most'] * 1e3:.1f})", flush=True)
    return {"method": method, "nodes": size, **found}


def _timed(method: Callable[[Problem], Any], size: int) -> list[float]:
    took_s = []
    for seed in range(5):
        problem = _problem(SCENARIOS[1], size, seed, 10, Traffic(gradient_bytes=1e6))
        begun_s = time.process_time()
        method(problem)
        took_s.append(time.process_time() - begun_s)
    return took_s


def _large_s(seed: int, count: int = 100_000) -> float:
    """Return what water-filling takes for so many nodes."""
    random = np.random.default_rng(seed)
    up: Array = 125e3 * 100 ** random.random(count) / 3e3
    held = np.floor(random.dirichlet(np.ones(count)) * 1000 * count)
    rate = 50.0 * random.choice([1.0, 2.0, 4.0, 8.0], count)
    boxes = Boxes(held=held, least=np.zeros(count), most=np.full(count, np.inf), rate=rate, up=up, down=up)
    begun_s = time.process_time()
    water_level(boxes, 10)
    return time.process_time() - begun_s


# Shared


def _problem(scenario: Scenario, size: int, seed: int, epochs: int, traffic: Traffic | None = None) -> Problem:
    key = (scenario.name, size, seed)
    if key not in _DRAWN:
        demand = Demand(epochs=epochs, batch_size=BATCH, traffic=Traffic())
        _DRAWN[key] = problem_of(drawn(scenario, size, seed), demand, rates={})
    return _DRAWN[key].with_demand(epochs=epochs, traffic=traffic or Traffic())


_DRAWN: dict[tuple[str, int, int], Problem] = {}


def _run_s(choice: Choice | None) -> float:
    assert choice is not None, "nobody is excluded"
    return choice.cost.run_s


def _range(values: list[float]) -> Row:
    return {"median": median(values), "least": min(values), "most": max(values), "number": len(values)}


if __name__ == "__main__":
    main()
