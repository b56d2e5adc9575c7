"""One rank's part of a job, built from a plan: model, buffers, optimizers and the engine that plays its schedule."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.shapes import batch_shapes
from nfold.capture.computing.batch_norm import StatisticsRecorder, running_statistics
from nfold.capture.example_batches import program_batches
from nfold.capture.side_effects.module_states import is_freed
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.plan import Plan
from nfold.core.residency import PlacedRun
from nfold.core.schedule import RankSchedule
from nfold.core.tasks import COMMITTED, Elements, FoldStatistics, Load
from nfold.core.trace import ReductionParts, Span, StepParts
from nfold.errors import ProgramError
from nfold.planning.costs.peak_memory import foreign_parameters
from nfold.planning.operator_parts.splitting import split_graph
from nfold.program import Program
from nfold.runtime.checkpoint.agreement import fingerprints, first_diverged
from nfold.runtime.checkpoint.checkpoint_format import Checkpoint, Offer, offer
from nfold.runtime.checkpoint.extra_state import ExtraStates, plain_extras
from nfold.runtime.checkpoint.joined_facts import DIVERGED, EXTRAS, check_agreement, fingerprints_of, join_facts
from nfold.runtime.data.chunk_loader import ChunkLoader
from nfold.runtime.data.loaders import LoadersReader
from nfold.runtime.data.ordering import sampler_of
from nfold.runtime.data.sample_reader import SampleReader
from nfold.runtime.failures.stalls import TaskWatch
from nfold.runtime.parameters.optimizer_updates import (
    Kept,
    kept_by,
)
from nfold.runtime.step.built_model import BuiltModel
from nfold.runtime.step.cells import Cells, TellLosses
from nfold.runtime.step.changed_buffers import ChangedBuffers
from nfold.runtime.step.clipping import Clipping
from nfold.runtime.step.engine import Engine, Played
from nfold.runtime.step.kept_program import KeptProgram
from nfold.runtime.step.lent_sums import SumsAlone, TellSum, are_all_lent, flat_gradients, lent_sums, take_in
from nfold.runtime.step.traced_model import modules_of
from nfold.transport.protocol import Transport

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a rank reports of one step."""

    parts: StepParts
    losses: dict[int, float]
    """Chunk -> its mean loss times its share of the batch's samples; of the chunks whose loss was computed here."""
    spans: tuple[Span, ...]
    begin_s: float
    """On this rank's clock."""
    reductions: tuple[ReductionParts, ...] = ()
    notes: tuple[str, ...] = ()
    """What the user should know."""


class Replica:
    """One rank of one generation.

    Attributes:
        model_s: what it took to build the model; about nothing where it was kept.
    """

    def __init__(
        self,
        rank: int,
        program: Program,
        dataset: Any,
        graph: ModelGraph,
        plan: Plan,
        own: RankSchedule,
        transport: Transport,
        *,
        device: torch.device,
        last_step: int,
        checkpoint: Checkpoint | None = None,
        reader: LoadersReader | None = None,
        kept: KeptProgram | None = None,
        built: BuiltModel | None = None,
        placed: Sequence[PlacedRun] = (),
        resident: Any = None,
        measures: bool = True,
        commits: bool = False,
        tell_losses: TellLosses | None = None,
        tasks: TaskWatch | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Args:
        rank: its number.
        program: the user's.
        dataset: of training samples; those that it is traced and tried with, and trained with unless `resident` is.
        graph: of the program.
        plan: how the work is spread.
        own: what this rank plays in a step.
        transport: to the other ranks.
        device: where to compute.
        last_step: of the run.
        checkpoint: to go on from; None: weights are those that the program builds.
        reader: reads samples in processes of their own; None: a thread reads.
        kept: what an earlier generation has found out about the program.
        built: the model, for the same part of an earlier plan, with the checkpoint's state; None: it is built here.
        placed: who trains on which samples, where each rank does on its own; empty: all ranks read all.
        resident: samples by their numbers in the whole data; None: `dataset` has them all.
        measures: whether to time reductions.
        commits: whether a step that fails leaves the state as it was; the plan must be one that may be followed.
        tell_losses: called in each step, before this rank's last gradients go.
        tasks: is told what is done now; None: nobody looks.
        clock: seconds.
        """
        self.rank, self.plan, self.device = rank, plan, device
        self._graph, self._transport, self._clock = split_graph(graph, plan.splits), transport, clock
        self._all_groups = own.statistics
        self._committed = tuple(task for task in own.tasks if isinstance(task, COMMITTED))
        self._groups = tuple(group for group in own.statistics if rank in group.members)
        self._local = {each.name: each for each in plan.reductions if each.route == "local" and rank in each.members}
        self._foreign = foreign_parameters(self._graph, plan.placement)
        self.sampler = sampler_of(program, dataset, plan.batch_size, plan.chunks, graph.least_chunk, placed)
        begin_s = clock()
        self.built = built or BuiltModel(
            *(rank, program, dataset, graph, plan, own),
            device=device,
            steps_per_epoch=self.sampler.steps_per_epoch,
            checkpoint=checkpoint,
            kept=kept or KeptProgram(),
        )
        self.model_s = clock() - begin_s
        self.program, self.model, self.averages = self.built.program, self.built.model, self.built.averages
        self._weights, self._buffers, self._updaters = self.built.weights, self.built.buffers, self.built.updaters
        self._buffers.forget_messages()
        self._clipping = self._build_clipping(self._weights.parameters)
        chunks = tuple(sorted({task.chunk for task in own.tasks if isinstance(task, Load)}))
        trained = dataset if resident is None else resident
        reads = reader or SampleReader(trained, program.seed, program.collate)
        self._loader = ChunkLoader(reads, self.sampler, chunks, last_step)
        self._cells = self._build_cells(own, dataset, tell_losses)
        wishes: dict[str, Any] = {"times_reductions": measures, "commits": commits, "tasks": tasks}
        self._engine = Engine(own, transport, self._cells, self._cells.stores, clock, **wishes)
        norms = {statistic.module for statistic in graph.statistics}
        self._changed_buffers = ChangedBuffers(self.model, but=norms)
        self._extra_states = ExtraStates(self.model)
        self._previous_end_s: float | None = None
        self._sums_alone: SumsAlone | None = None

    def _build_clipping(self, parameters: dict[str, nn.Parameter]) -> Clipping | None:
        limit = self.program.clip_norm
        if (limit is not None) != self._graph.clips_gradients:
            raise ProgramError(
                f"Program(clip_norm={limit}) is not what this run was planned with, which "
                f"{'clips' if self._graph.clips_gradients else 'does not clip'}. Put it back, or begin a new run."
            )
        if limit is None:
            return None
        plan = self.plan
        return Clipping(limit, self.rank, plan.world_size, plan.reductions, self._buffers, parameters)

    def _build_cells(self, own: RankSchedule, dataset: Any, tell_losses: TellLosses | None) -> Cells:
        modules, captured = modules_of(self._graph, self._groups), self.built.captured
        recorder = StatisticsRecorder(self.model, modules) if modules else None
        return Cells(
            program=self.program,
            model=self.model,
            parameters=self._weights.parameters,
            captured=captured,
            graph=self._graph,
            schedule=own,
            reductions=self.plan.reductions,
            groups=self._groups,
            buffers=self._buffers,
            updaters=self._updaters,
            clipping=self._clipping,
            sampler=self.sampler,
            loader=self._loader,
            recorder=recorder,
            device=self.device,
            shapes=batch_shapes(program_batches(self.program, dataset)) if captured else None,
            trials=self.built.trials,
            stage_trials=self.built.stage_trials,
            tell_losses=tell_losses,
        )

    @property
    def kept(self) -> Kept:
        """Hyper-parameters that were taken from the checkpoint and differ from the program's."""
        return kept_by(self._updaters.values())

    # Training

    def step(self, index: int, *, keep_spans: bool) -> StepResult:
        """Train one step.

        Args:
            index: of the step, from 0 at the start of the run.
            keep_spans: whether to return when each task began and ended.

        Raises:
            TransportError: a peer is lost.
            NonFiniteLoss: a chunk's loss is NaN or infinite.
        """
        begin_s = self._clock() if self._previous_end_s is None else self._previous_end_s
        sent_before = self._transport.sent_bytes
        sizes = self.sampler.sizes(index)
        self._cells.begin(index, sizes)
        played = self._engine.play(index, sizes, keep_spans=keep_spans)
        self._buffers.settle()
        self._average(index + 1, played)
        self._previous_end_s = played.end_s
        samples = sum(sizes[chunk] for chunk in self._cells.losses)
        sent_bytes = self._transport.sent_bytes - sent_before
        parts = self._parts(index, played, played.end_s - begin_s, samples, sent_bytes)
        told = (parts, dict(self._cells.losses), tuple(played.spans), played.begin_s, played.reductions)
        return StepResult(*told, self.take_notes())

    def take_notes(self) -> tuple[str, ...]:
        """Return what a user should know since the last call."""
        tried = [each for each in (self.built.trials, self.built.stage_trials) if each is not None]
        return tuple(note for each in tried for note in each.take_notes())

    def _average(self, steps: int, played: Played) -> None:
        """Average the weights that the step has left; it is a part of updating them."""
        if self.averages is not None and self.averages.update(steps):
            end_s = self._clock()
            played.seconds["UPDATE"] += end_s - played.end_s
            played.end_s = end_s

    # Steps of others

    def sums_of(self, rank: int, reductions: Sequence[Reduction]) -> tuple[Elements, ...]:
        """Return which sums of a step a rank gives to a newcomer that plays it too; see `lent_sums`."""
        place = (self._graph, self._all_groups, self.plan.chunks)
        return lent_sums(rank, reductions, *place, is_alone=self.plan.is_alone)

    def is_given(self, sums: Sequence[Elements]) -> bool:
        """Return whether these are all that changes the training's state in a step."""
        return are_all_lent(sums, self.plan.reductions, self._graph, self._all_groups, self.plan.chunks)

    def values(self, elements: Elements) -> torch.Tensor:
        """Return elements of a buffer, a view of shape [stop - start]; of what lies in none, a copy."""
        if elements.kind == "running":
            return running_statistics(self.model.get_submodule(elements.name))
        if elements.kind == "gradient" and self._sums_alone is not None:
            return self._sums_alone.values(elements)
        if elements.kind == "gradient" and elements.name in self._local:
            return flat_gradients(self._local[elements.name], self._weights.parameters)
        return self._buffers.flat(elements)

    def tell_sums(self, reductions: Sequence[Reduction], summed: TellSum, committed: Callable[[int], None]) -> None:
        """Set who is told of elements once they are summed, and of steps before they change the training's state.

        Args:
            reductions: those of the plan; where this rank trains alone, into which its gradients are put.
            summed: called with elements.
            committed: called with a step.
        """
        if not self.plan.is_alone:
            self._buffers.on_summed, self._engine.on_commit = summed, committed
            return
        alone = SumsAlone(self.rank, reductions, self._weights.parameters, self._cells.gradient)
        self._sums_alone, self._engine.on_commit = alone, partial(alone.tell, summed, committed)

    def tell_no_sums(self) -> None:
        """Tell nobody of sums any more."""
        self._buffers.on_summed = self._engine.on_commit = self._sums_alone = None

    def replay(self, index: int, sums: Iterable[tuple[Elements, torch.Tensor]]) -> None:
        """Do what a step of others has changed of the training's state, from all of its sums."""
        self._cells.begin_again(index, self.sampler.sizes(index))
        are_folded = take_in(sums, self.model, self._buffers)
        for task in self._committed:
            if not (are_folded and isinstance(task, FoldStatistics)):
                self._cells.perform(task, _nobody_waits)
        if self.averages is not None:
            self.averages.update(index + 1)

    def pause(self) -> None:
        """Measure the next step from its own begin: what comes before it (evaluation, a checkpoint) is no step."""
        self._previous_end_s = None

    def _parts(self, index: int, played: Played, step_s: float, samples: int, sent_bytes: int) -> StepParts:
        seconds = played.seconds
        known = sum(seconds.values()) + played.waited_s
        return StepParts(
            step=index,
            rank=self.rank,
            step_s=step_s,
            input_s=seconds["LOAD"],
            forward_s=seconds["F"],
            backward_s=seconds["B"],
            update_s=seconds["UPDATE"],
            communication_s=played.waited_s,
            other_s=max(0.0, step_s - known),
            sent_bytes=sent_bytes,
            samples=samples,
        )

    # State

    def offer(self, *, with_optimizer: bool) -> Offer:
        """Return what only this rank holds of the whole model; if wanted, of the optimizer's state and averages too."""
        own = [op for op in self._graph.operators if min(self.plan.placement.owners[op.name]) == self.rank]
        modules = dict.fromkeys(module for operator in own for module in operator.statistics)
        modules |= dict.fromkeys(self._changed_buffers.modules())
        # Rank 0 has its own in its module, unless they are rows of one that it has freed.
        untrained = self._untrained() if self.rank or self.plan.splits else ()
        marks = fingerprints(self.rank, self.plan.reductions, self._weights.parameters)
        updaters = self._updaters if with_optimizer else None
        place = (self.rank, self.plan.reductions, updaters, self._weights, modules, untrained)
        offered = offer(*place, fingerprints=marks, extras=self._extra_states.changed())
        return self.averages.beside(offered) if self.averages is not None and with_optimizer else offered

    def held(self, *, is_checked: bool) -> Offer:
        """Return all that this rank has of the whole model's state, whoever has it as well. Nothing is copied.

        Args:
            is_checked: whether to look if ranks hold the same numbers, and numbers at all; two passes over the weights.
        """
        own = [op for op in self._graph.operators if self.rank in self.plan.placement.owners[op.name]]
        modules = dict.fromkeys(module for operator in own for module in operator.statistics)  # in no group if alone
        modules |= dict.fromkeys(self._changed_buffers.modules())
        reductions, parameters = self.plan.reductions, self._weights.parameters
        marks = fingerprints(self.rank, reductions, parameters) if is_checked else {}
        place = (self.rank, reductions, self._updaters, self._weights, modules)
        found = offer(*place, fingerprints=marks, extras=self._extra_states.changed(), is_all=True)
        if self.rank == self.plan.placement.working[0]:  # rank 0 may have no part of the state
            found.facts[EXTRAS] = plain_extras(self.model.state_dict(keep_vars=True)) | found.facts[EXTRAS]
        if is_checked:
            found.facts[DIVERGED] = first_diverged(self.rank, reductions, parameters)
        given = {part.name for part in found.parts if part.values.numel() == math.prod(part.shape)}
        rest = [part for part in found.rest if part.name not in given and not is_freed(part.values)]
        found = replace(found, rest=rest)
        return self.averages.beside(found) if self.averages is not None else found

    @property
    def is_changed_by_updates_alone(self) -> bool:
        """Whether nothing but the end of a step changes the model, so that one that failed has changed nothing."""
        return not (self.written or self._changed_buffers.modules() or self._extra_states.are_any)

    @property
    def may_change_itself(self) -> bool:
        """Whether a step that failed may have changed the model, now or later."""
        return bool(self.written) or self._changed_buffers.may_be_any or self._extra_states.are_any

    @property
    def written(self) -> frozenset[str]:
        """Names of parameters that the program itself changes, in its forward or in a hook."""
        return frozenset(each.name for each in self._graph.parameters if each.written)

    def _untrained(self) -> tuple[str, ...]:
        """Parameters that no reduction holds, and of whose users this rank is the first owner."""
        reduced = {name for reduction in self.plan.reductions for name in reduction.parameters}
        left = (each for each in self._graph.parameters if each.users and each.name not in reduced)
        return tuple(each.name for each in left if self.plan.placement.ranks_of(each.users)[0] == self.rank)

    def join(self, said: list[dict[str, Any]], step: int) -> dict[str, Any]:
        """Join what all ranks say beside tensors into what a checkpoint says.

        Raises:
            ProgramError: ranks hold different values of the same parameter.
        """
        check_agreement([fingerprints_of(facts) for facts in said], self._graph, step)
        return join_facts(said, step, self.plan.chunks)

    @property
    def is_complete(self) -> bool:
        """Whether each worker holds all current parameters, so that each may evaluate a part of the test data."""
        workers = set(self.plan.placement.working)
        if self.plan.splits or any(self._foreign[rank] for rank in workers):
            return False
        everywhere = all(workers <= set(reduction.members) for reduction in self.plan.reductions)
        return everywhere and all(workers <= set(group.members) for group in self._all_groups)

    def close(self) -> None:
        """Stop loading, and let go of the model's parameters: no message of a failed step reaches them any more."""
        self._engine.end()
        self.tell_no_sums()
        self._loader.close()
        self._cells.close()


def _nobody_waits(_: int) -> None:
    """No message waits for what changes the training's state."""
