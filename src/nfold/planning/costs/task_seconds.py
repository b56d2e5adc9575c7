"""Seconds of each compute task, from a profile."""

from nfold.core.graph import ModelGraph
from nfold.core.profile import Profile
from nfold.core.schedule import RankSchedule, Schedule
from nfold.core.tasks import Backward, Forward, Load, MessageEnd, OptimizerStep
from nfold.planning.costs.read_ahead import CoreContention, contentions_of, read_ahead
from nfold.planning.inputs.facts import Facts


def task_seconds(
    schedule: Schedule, facts: Facts, profiles: tuple[Profile, ...], threads: tuple[int, ...]
) -> dict[tuple[int, int], float]:
    """Return the seconds of every compute task on a node of speed 1 where nothing but reading goes on beside it.

    Args:
        schedule: what is played.
        facts: what was asked: a full step of which model, where.
        profiles: of each rank, for its number of threads.
        threads: of each rank.

    Returns:
        (rank, task id) -> seconds; of Load only what is waited for, since samples are read a step ahead.
        O(tasks + segments x operators).
    """
    sizes = facts.chunk_sizes(schedule.num_chunks)
    known = {id(profile): _Segments(facts.graph, profile) for profile in profiles}
    nodes = [facts.cluster.node(name) for name in facts.nodes[: len(schedule.ranks)]]
    kinds = [{task.kind for task in rank.tasks} for rank in schedule.ranks]
    computing = [count if "F" in own else 0 for count, own in zip(threads, kinds, strict=True)]
    reading = [profile.reading_cores if "LOAD" in own else 0.0 for profile, own in zip(profiles, kinds, strict=True)]
    contentions = contentions_of(facts, nodes, computing, reading)
    seconds: dict[tuple[int, int], float] = {}
    for rank, profile, node, contention in zip(schedule.ranks, profiles, nodes, contentions, strict=True):
        own = _rank_seconds(rank, facts.graph, profile, sizes, known[id(profile)])
        seconds.update(_read_ahead(rank, own, profile.load_share(node.speed), node.speed, contention))
    return seconds


def _read_ahead(
    rank: RankSchedule,
    seconds: dict[tuple[int, int], float],
    load_share: float,
    speed: float,
    contention: CoreContention,
) -> dict[tuple[int, int], float]:
    """Return what is left of LOADs, and what F and B take while the next step's samples are read."""
    kinds = {(rank.rank, task.id): task.kind for task in rank.tasks}
    read_s = sum(value for key, value in seconds.items() if kinds[key] == "LOAD")
    compute_s = sum(value for key, value in seconds.items() if kinds[key] in ("F", "B"))
    reading = read_ahead(read_s * load_share, compute_s / speed, contention)
    factors = {"LOAD": reading.waited, "F": reading.stretch, "B": reading.stretch}
    return {key: value * factors.get(kinds[key], 1.0) for key, value in seconds.items()}


def _rank_seconds(
    rank: RankSchedule, graph: ModelGraph, profile: Profile, sizes: tuple[int, ...], segments: "_Segments"
) -> dict[tuple[int, int], float]:
    trained = sum(parameter.num_elements for parameter in graph.trained) or 1
    seconds: dict[tuple[int, int], float] = {}
    for task in rank.tasks:
        if isinstance(task, Load):
            seconds[rank.rank, task.id] = profile.read_s_per_sample * sizes[task.chunk]
        elif isinstance(task, (Forward, Backward)):
            operators = rank.segments[task.segment].operators
            seconds[rank.rank, task.id] = segments.seconds(operators, sizes[task.chunk])[isinstance(task, Backward)]
        elif isinstance(task, OptimizerStep):
            seconds[rank.rank, task.id] = _update_s(task, trained, profile)
        elif not isinstance(task, MessageEnd):
            seconds[rank.rank, task.id] = 0.0  # the profile counts clipping and statistics as parts of the update
    return seconds


def _update_s(task: OptimizerStep, trained: int, profile: Profile) -> float:
    """Its share of the elements, and what calling an optimizer costs at least."""
    part = task.gradients
    return profile.update.median_s if part is None else profile.update_s((part.stop - part.start) / trained)


class _Segments:
    """Seconds of segments under one profile; a rank has few, and computes each for every chunk."""

    def __init__(self, graph: ModelGraph, profile: Profile) -> None:
        self._num_operators, self._profile = len(graph.operators), profile
        self._operators: dict[int, dict[str, tuple[float, float]]] = {}
        self._known: dict[tuple[tuple[str, ...], int], tuple[float, float]] = {}

    def seconds(self, operators: tuple[str, ...], chunk_size: int) -> tuple[float, float]:
        """Return forward and backward seconds of a chunk."""
        if chunk_size == 0:
            return 0.0, 0.0
        key = (operators, chunk_size)
        if key not in self._known:
            self._known[key] = self._sum(operators, chunk_size)
        return self._known[key]

    def _sum(self, operators: tuple[str, ...], chunk_size: int) -> tuple[float, float]:
        if len(operators) == self._num_operators:
            return self._profile.whole_s(chunk_size)
        if chunk_size not in self._operators:
            self._operators[chunk_size] = self._profile.operators_s(chunk_size)
        each = [self._operators[chunk_size][name] for name in operators]
        return sum(pair[0] for pair in each), sum(pair[1] for pair in each)
