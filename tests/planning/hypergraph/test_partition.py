"""Divisions of a hypergraph: against every possible one where those are few, within limits, and equal for equal
questions."""

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from grids import chain, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cell_hypergraph import hypergraph

from nfold.planning.hypergraph import kahypar
from nfold.planning.hypergraph.block_limits import Limits, Memory
from nfold.planning.hypergraph.cell_hypergraph import Hypergraph, Net, State, loads_s, traffic
from nfold.planning.hypergraph.move_gains import MESSAGE_BYTES, BlockAssignment
from nfold.planning.hypergraph.nested_layouts import nested_layouts
from nfold.planning.hypergraph.partition import Effort, measure, partitions
from nfold.planning.hypergraph.repair import SLACK, repair
from nfold.planning.hypergraph.team_layouts import team_layouts
from nfold.planning.stages.stage_division import divide

pytestmark = pytest.mark.long

CASES = settings(max_examples=25, deadline=None)
PLENTY = 1e18
WORST, USUAL = 1.3, 1.05
"""Times the cost of the best of all divisions: of the worst of some answers, and on average."""


def limits(*shares: float, epsilon: float = 0.05, memory: Sequence[float] = ()) -> Limits:
    total = sum(shares)
    return Limits(
        shares=tuple(share / total for share in shares),
        epsilon=epsilon,
        memory_bytes=tuple(memory) or (PLENTY,) * len(shares),
    )


@st.composite
def hypergraphs(draw: st.DrawFn, most_cells: int = 40) -> Hypergraph:
    """Any nets over the cells of a few groups and chunks."""
    chunks = draw(st.integers(1, 4))
    num_groups = draw(st.integers(1, max(1, most_cells // chunks // 2)))
    cells = num_groups * chunks
    pins = st.lists(st.integers(0, cells - 1), min_size=2, max_size=5, unique=True)
    nets = draw(st.lists(st.tuples(st.integers(1, 5000), pins), max_size=30)) if cells > 1 else []
    return Hypergraph(
        groups=tuple((f"O{index}",) for index in range(num_groups)),
        num_chunks=chunks,
        seconds=tuple(float(draw(st.integers(0, 9))) for _ in range(cells)),
        saved_bytes=tuple(draw(st.integers(0, 50)) for _ in range(cells)),
        nets=tuple(Net(num_bytes=size, pins=tuple(sorted(of))) for size, of in nets if len(of) <= cells),
        states=tuple(State(num_bytes=draw(st.integers(0, 100)), groups=(index,)) for index in range(num_groups)),
        fixed={},
    )


def cost_again(cells: Hypergraph, blocks: Sequence[int]) -> int:
    """Connectivity, the slow and obvious way, with what a message counts for."""
    total = 0
    for net in cells.nets:
        for block in set(blocks):
            total += (net.num_bytes + MESSAGE_BYTES) * any(blocks[pin] == block for pin in net.pins)
        total -= net.num_bytes + MESSAGE_BYTES
    return total


# What is kept up to date


@CASES
@given(st.data(), hypergraphs())
def test_gains_are_what_moves_save(data, cells):
    blocks = [data.draw(st.integers(0, 2)) for _ in cells.seconds]
    board = BlockAssignment(cells, blocks, 3)
    for _ in range(6):
        vertex, target = data.draw(st.integers(0, len(blocks) - 1)), data.draw(st.integers(0, 2))
        if board.blocks[vertex] == target:
            continue
        before, gain = cost_again(cells, board.blocks), board.gain(vertex, target)
        list(board.move(vertex, target))
        assert board.cost == cost_again(cells, board.blocks) == before - gain
        assert board.loads == pytest.approx(loads_s(cells, board.blocks, 3))
    assert board.pull == BlockAssignment(cells, board.blocks, 3).pull


@CASES
@given(st.data(), hypergraphs())
def test_gains_of_many_at_once_are_what_moving_them_saves(data, cells):
    blocks = [data.draw(st.integers(0, 2)) for _ in cells.seconds]
    own = [vertex for vertex, block in enumerate(blocks) if block == blocks[0]]
    target = (blocks[0] + 1) % 3
    board = BlockAssignment(cells, blocks, 3)
    for length, saved in enumerate(list(board.gains_together(own, target)), 1):
        moved = [target if vertex in own[:length] else block for vertex, block in enumerate(blocks)]
        assert cost_again(cells, blocks) - cost_again(cells, moved) == saved


@CASES
@given(st.data(), hypergraphs())
def test_memory_under_change_is_memory_from_the_start(data, cells):
    some = limits(1, 1, 1)
    blocks = [data.draw(st.integers(0, 2)) for _ in cells.seconds]
    memory = Memory(cells, some, blocks)
    for _ in range(5):
        vertex, target = data.draw(st.integers(0, len(blocks) - 1)), data.draw(st.integers(0, 2))
        memory.leave(vertex, blocks[vertex])
        memory.enter(vertex, target)
        blocks[vertex] = target
    again = Memory(cells, some, blocks)
    assert [memory.used(block) for block in range(3)] == [again.used(block) for block in range(3)]


# What is found


@CASES
@given(hypergraphs(), st.integers(2, 3))
def test_repair_never_costs_traffic_within_the_limits_and_keeps_them(cells, count):
    some = limits(*[1.0] * count, epsilon=0.5)
    start = [vertex % count for vertex in range(cells.num_vertices)]
    before = measure(cells, some, start)
    after = measure(cells, some, repair(cells, some, start))
    assert after.excess <= before.excess, "from outside the limits it only comes nearer"
    if before.excess == 0:
        assert cost_again(cells, after.blocks) <= cost_again(cells, before.blocks)


def at_random(seed: int, num_groups: int, chunks: int) -> Hypergraph:
    """Cells of unlike seconds, with up to twice as many nets of any bytes over up to five of them."""
    drawn, cells = random.Random(seed), num_groups * chunks
    nets = tuple(
        Net(num_bytes=drawn.randint(1, 5000), pins=tuple(sorted(drawn.sample(range(cells), drawn.randint(2, 5)))))
        for _ in range(drawn.randint(cells // 2, 2 * cells))
    )
    return Hypergraph(
        groups=tuple((f"O{index}",) for index in range(num_groups)),
        num_chunks=chunks,
        seconds=tuple(float(drawn.randint(1, 9)) for _ in range(cells)),
        saved_bytes=(1,) * cells,
        nets=nets,
        states=tuple(State(num_bytes=10, groups=(index,)) for index in range(num_groups)),
        fixed={},
    )


def least_cost(cells: Hypergraph, some: Limits) -> int | None:
    """What the best of all divisions within the limits costs; None where there is none."""
    every = itertools.product(range(some.num_blocks), repeat=cells.num_vertices)
    possible = (blocks for blocks in every if measure(cells, some, blocks).excess == 0)
    return min((cost_again(cells, blocks) for blocks in possible), default=None)


@pytest.mark.parametrize(
    ("num_groups", "chunks", "shares"), [(3, 3, (1.0, 1.0)), (9, 1, (2.0, 1.0)), (3, 2, (1.0, 1.0, 1.0))]
)
def test_small_questions_are_answered_nearly_as_well_as_by_trying_everything(num_groups, chunks, shares):
    some, ratios = limits(*shares, epsilon=0.3), []
    for seed in range(8):
        cells = at_random(seed, num_groups, chunks)
        least, best = least_cost(cells, some), partitions(cells, some)[0]
        assert best.traffic_bytes == traffic(cells, best.blocks)
        assert (best.excess == 0) is (least is not None), "what can be is found, and what cannot be is said"
        if least:
            ratios.append(cost_again(cells, best.blocks) / least)
    assert min(ratios) >= 1
    assert max(ratios) <= WORST
    assert sum(ratios) / len(ratios) <= USUAL


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_pipeline_is_better_than_what_is_found(count):
    """The dynamic program finds the stages that exchange the fewest bytes: rows of cells in one piece each."""
    cells = hypergraph(chain(500, 20_000, 300, 9000, 40_000, 100, 7000, 60_000), 16, 4, Loss=0.0)
    some, rows = limits(*[1.0] * count, epsilon=0.25), len(cells.groups)
    seconds, crossing = np.full((rows + 1, rows + 1), np.inf), np.zeros((rows + 1, rows + 1))
    for start, stop in itertools.combinations(range(rows + 1), 2):
        inside = [int(start <= row < stop) for row in range(rows) for _ in range(4)]
        seconds[start, stop] = loads_s(cells, inside, 2)[1]
        crossing[start, stop] = traffic(cells, [int(row >= start) for row in range(rows) for _ in range(4)])
    limit_s = some.seconds(sum(cells.seconds))[0] * (1 + SLACK)
    stages = divide(lambda *_: seconds, lambda *_: crossing, limit_s, rows, count, (1,))
    blocks = [each.first for each in stages for _ in range(each.start * 4, each.stop * 4)]
    oracle, best = measure(cells, some, blocks), partitions(cells, some)[0]
    assert (oracle.excess, best.excess) == (0, 0)
    assert best.traffic_bytes <= oracle.traffic_bytes


def test_the_best_start_of_each_kind_goes_through_a_v_cycle(monkeypatch):
    cells, some, cycled = hypergraph(chain(5000, 10, 3000, 20, 4000), 24, 8), limits(1, 1, 1), set()

    def improve(_cells, _limits, blocks):
        cycled.add(tuple(blocks))
        return blocks

    monkeypatch.setattr(kahypar, "is_available", lambda: True)
    monkeypatch.setattr(kahypar, "improve", improve)
    layout = [vertex % 3 for vertex in range(cells.num_vertices)]
    partitions(cells, some, [layout], Effort(num_starts=1, num_seeds=0, num_cycles=1, is_of_every_kind=True))
    data_parallel = [0, 0, 0, 1, 1, 1, 2, 2] * len(cells.groups)
    for start in (layout, data_parallel):
        assert tuple(repair(cells, some, start)) in cycled
    for kind in (team_layouts(cells, some), nested_layouts(cells, some)):
        assert any(tuple(repair(cells, some, start)) in cycled for start in kind)


def test_the_best_division_of_a_small_model_is_found():
    """Two layers of which the second is all weights: one rank takes it, with fewer chunks of the first."""
    cells = hypergraph(chain(10, 100_000), 16, 4, A=4.0, B=0.5, Loss=0.0)
    some = limits(1, 1, epsilon=0.15)
    every = itertools.product((0, 1), repeat=cells.num_vertices)
    least = min(each.traffic_bytes for each in (measure(cells, some, blocks) for blocks in every) if each.excess == 0)
    best = partitions(cells, some)[0]
    assert (best.excess, best.traffic_bytes) == (0, least)
    assert len(set(best.blocks[4:])) == 1


@pytest.mark.parametrize("shares", [(1.0, 1.0, 1.0, 1.0), (2.0, 1.0, 0.5, 0.5)])
def test_loads_follow_the_shares(shares):
    cells = hypergraph(chain(*[1000] * 12), 32, 16)
    some = limits(*shares)
    best = partitions(cells, some)[0]
    assert best.excess == 0
    for load, most in zip(best.loads_s, some.seconds(sum(best.loads_s)), strict=True):
        assert load <= most * (1 + 1e-6)


def test_equal_questions_get_equal_answers():
    cells = hypergraph(chain(5000, 10, 3000, 20, 4000), 24, 8)
    assert partitions(cells, limits(1, 1, 1)) == partitions(cells, limits(1, 1, 1))


def test_memory_is_kept_where_data_parallelism_has_none():
    """Each rank has room for half of the state."""
    cells = hypergraph(chain(*[1000] * 8), 16, 4)
    states = sum(state.num_bytes for state in cells.states)
    some = limits(1, 1, epsilon=0.3, memory=(0.6 * states,) * 2)
    data_parallel = [vertex % 2 for vertex in range(cells.num_vertices)]
    assert measure(cells, some, data_parallel).excess > 0
    repaired = measure(cells, some, repair(cells, some, data_parallel))
    assert max(repaired.memory_bytes) <= 0.6 * states
    assert partitions(cells, some)[0].excess == 0


def test_what_fits_nowhere_is_not_said_to_fit():
    cells = hypergraph(chain(1000, 1000), 8, 2)
    states = sum(state.num_bytes for state in cells.states)
    best = partitions(cells, limits(1, 1, memory=(0.1 * states,) * 2))[0]
    assert best.excess > 0
    assert max(best.memory_bytes) > 0.1 * states


@pytest.mark.parametrize("room", [0.0, -1000.0])
def test_no_room_is_infinitely_exceeded_by_whatever_is_kept_there(room):
    cells = hypergraph(chain(1000, 1000), 8, 2)
    some = limits(1, 1, epsilon=1.0, memory=(PLENTY, room))
    assert measure(cells, some, [0] * cells.num_vertices).excess == 0
    assert measure(cells, some, [vertex % 2 for vertex in range(cells.num_vertices)]).excess == math.inf
    best = partitions(cells, some)[0]
    assert (best.excess, set(best.blocks)) == (0, {0})


def test_samples_stay_where_they_live():
    cells = hypergraph(chain(1, 1), 8, 4, homes=(0, 0, 1, 1))
    best = partitions(cells, limits(1, 1))[0]
    assert best.blocks[-4:] == (0, 0, 1, 1)
    assert best.blocks[:4] == (0, 0, 1, 1), "to send samples costs more than to reduce one weight"


@CASES
@given(graphs(), st.integers(1, 6), st.integers(1, 5))
def test_starts_place_every_cell(graph, chunks, count):
    cells = hypergraph(graph, 24, chunks)
    some = limits(*range(1, count + 1))
    for layout in (*nested_layouts(cells, some), *team_layouts(cells, some)):
        assert len(layout) == cells.num_vertices
        assert set(layout) <= set(range(count))


# Without the package


def test_without_the_package_our_own_search_still_divides(monkeypatch):
    monkeypatch.setattr(kahypar, "is_available", lambda: False)
    monkeypatch.setattr(kahypar.Processes, "ask", lambda *_: pytest.fail("it was asked"))
    cells = hypergraph(chain(10, 100_000), 16, 4, A=4.0, B=0.5, Loss=0.0)
    best = partitions(cells, limits(1, 1, epsilon=0.15))[0]
    assert best.excess == 0
    assert best.traffic_bytes < traffic(cells, [0, 0, 1, 1] * 2)


def test_questions_are_searched_by_their_size():
    small, middle, large = (
        hypergraph(chain(*[1] * count), 32, chunks) for count, chunks in ((1, 2), (8, 16), (60, 32))
    )
    assert Effort.of(middle, 2).num_seeds > Effort.of(small, 2).num_seeds > Effort.of(large, 64).num_seeds
