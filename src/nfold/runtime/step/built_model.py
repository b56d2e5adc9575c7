"""The model that a rank trains, and what belongs to it whoever the other ranks are: buffers, optimizers, averages.

Where each rank has the whole model, who stays keeps it from one generation to the next, and only who comes builds it:

    trains ──> stops, with the state that others are given ──> the same part of the next plan ──> trains
      └──────> fails within a step that has changed nothing ──^
    comes, builds beside the steps of others ──> takes that state ──────────^
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from nfold.capture.cutting.captured import Captured
from nfold.capture.example_batches import program_batches
from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.plan import Plan
from nfold.core.schedule import RankSchedule, Segment, StatisticsGroup
from nfold.planning.costs.peak_memory import foreign_parameters
from nfold.planning.operator_parts.splitting import split_graph
from nfold.program import Program
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint
from nfold.runtime.checkpoint.weight_averages import WeightAverages
from nfold.runtime.guards.later_trials import LaterTrials
from nfold.runtime.guards.stage_trials import StageTrials
from nfold.runtime.parameters.buffers import Buffers
from nfold.runtime.parameters.held_pieces import sparse_gradients
from nfold.runtime.parameters.optimizer_updates import build_updaters
from nfold.runtime.parameters.unused_weights import free_unused
from nfold.runtime.parameters.weights import Weights
from nfold.runtime.step.kept_program import KeptProgram
from nfold.runtime.step.taken_state import take_model, take_states
from nfold.runtime.step.traced_model import traced

State = tuple[int, int]
"""Generation and number of steps done."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a plan that each of its ranks plays, whoever they are: all of the model, for some of the chunks."""

    program: Program
    graph: ModelGraph
    batch_size: int
    chunks: int
    segments: tuple[Segment, ...]
    reductions: tuple[Reduction, ...]
    statistics: tuple[StatisticsGroup, ...]

    @classmethod
    def of(cls, rank: int, program: Program, graph: ModelGraph, plan: Plan, own: RankSchedule) -> "Part | None":
        """Return the part that a rank plays; None: not each rank has the whole model and all of its state."""
        if not plan.is_replicated or rank not in plan.placement.working:
            return None
        reductions = tuple(replace(each, members=()) for each in plan.reductions)
        statistics = tuple(replace(each, members=()) for each in own.statistics)
        return cls(program, graph, plan.batch_size, plan.chunks, own.segments, reductions, statistics)


class BuiltModel:
    """What a rank trains.

    Attributes:
        part: that it was built for; None: it depends on the other ranks.
        program: with a loss that is checked.
        model: the user's.
        weights: its parameters.
        captured: its trace; None: the whole module is run.
        trials: of whole chunks; None: none are needed.
        stage_trials: of a cut model.
        buffers: of gradients and values.
        updaters: the optimizers.
        averages: of the weights; None: the program wants none.
    """

    def __init__(
        self,
        rank: int,
        program: Program,
        dataset: Any,
        graph: ModelGraph,
        plan: Plan,
        own: RankSchedule,
        *,
        device: torch.device,
        steps_per_epoch: int,
        checkpoint: Checkpoint | None,
        kept: KeptProgram,
    ) -> None:
        """Build it.

        Args:
            rank: its number.
            program: the user's.
            dataset: of training samples, to trace and try with.
            graph: of the program.
            plan: how the work is spread.
            own: what this rank plays in a step.
            device: where to compute.
            steps_per_epoch: of the run.
            checkpoint: to go on from; None: weights are those that the program builds.
            kept: what an earlier generation has found out about the program.
        """
        self.part = Part.of(rank, program, graph, plan, own)
        is_tried = bool(graph.unproved) and plan.chunks > 1
        self.program = kept.checked(program, graph, plan.chunks)
        self.trials = LaterTrials(program, device) if is_tried else None
        cut = split_graph(graph, plan.splits)
        foreign = foreign_parameters(cut, plan.placement)[rank]
        self.model = build_model(self.program, device)
        self.weights = Weights(self.model, cut)
        parameters = self.weights.parameters
        # Before there are buffers and states: until here a rank holds weights that it does not need, and gradients.
        traces = (self.program, self.model, graph, dataset, own, device)
        self.captured = traced(*traces, splits=plan.splits, parameters=parameters, lazy=True, kept=kept)
        self.stage_trials = self._build_stage_trials(self.captured, own, dataset, device) if is_tried else None
        unneeded = foreign - served_parameters(rank, plan.reductions)
        if checkpoint is not None:
            take_model(self.model, checkpoint, self.weights.unneeded(unneeded))
        free_unused(self.model, cut, parameters, unneeded)
        groups = tuple(group for group in own.statistics if rank in group.members)
        self.buffers = Buffers(rank, plan.reductions, groups, plan.chunks, parameters, device, sparse_gradients(cut))
        free_unused(self.model, cut, parameters, foreign - unneeded)  # the buffers have the values
        self.updaters = build_updaters(self.program, cut, plan.reductions, rank, self.buffers, parameters)
        if checkpoint is not None:
            take_states(self.updaters.values(), checkpoint, self.weights)
        wanted = self.program.averages
        self.averages = WeightAverages(wanted, steps_per_epoch, self.weights, checkpoint) if wanted else None

    def _build_stage_trials(
        self, captured: Captured | None, own: RankSchedule, dataset: Any, device: torch.device
    ) -> StageTrials | None:
        if captured is None:
            return None
        example = program_batches(self.program, dataset, device)
        given = (self.program, self.model, captured, own.segments, example, device)
        return StageTrials(*given, parameters=self.weights.parameters)

    def take(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint with what was built and never trained, where each rank has the whole model."""
        take_model(self.model, checkpoint)
        take_states(self.updaters.values(), checkpoint, self.weights)
        if self.averages is not None:
            self.averages.take(checkpoint)


class KeptModel:
    """The model of a process between two generations that train it."""

    def __init__(self) -> None:
        self._kept: tuple[BuiltModel, State | None] | None = None

    def keep(self, built: BuiltModel, state: State | None) -> None:
        """Keep a model of a part that others play too. Its replica is closed, and the transport's next generation
        begun, before it trains again: so nothing of a step that failed is written to it any more.

        Args:
            built: the model.
            state: that it has, whatever its gradients are; None: that which the program builds.
        """
        self._kept = None if built.part is None else (built, state)

    def forget(self) -> None:
        """Keep nothing: the model is trained on."""
        self._kept = None

    def take(self, part: Part | None, state: State | None, checkpoint: Checkpoint | None) -> BuiltModel | None:
        """Return the model that was kept, with the state that a generation begins with, and keep it no more.

        Args:
            part: of the plan that this process plays.
            state: that the generation begins with; None: that of a file, or of the program.
            checkpoint: the same, to read; None: that of the program.

        Returns:
            None: it plays another part than before, or has another state, so that the model is built anew.
        """
        kept, self._kept = self._kept, None
        if kept is None or part is None or kept[0].part != part:
            return None
        built, held = kept
        if held is None and checkpoint is not None:
            built.take(checkpoint)
        return built if held is None or held == state else None


def served_parameters(rank: int, reductions: Iterable[Reduction]) -> frozenset[str]:
    """Return the names of the parameters of which a rank sums and updates shares."""
    served = (each for each in reductions if any(share.rank == rank for share in each.shares))
    return frozenset(name for reduction in served for name in reduction.parameters)
