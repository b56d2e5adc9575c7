"""Turns a model and a loss into a Captured program: what is true of it, and its operators."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import GATE_SIZE, Example
from nfold.capture.capture_attempt import CaptureAttempt, names_of
from nfold.capture.computing.random import undisturbed
from nfold.capture.cutting.captured import Captured
from nfold.capture.example_batches import program_batches
from nfold.capture.independence.objections import why_unfit
from nfold.capture.optimizers.state_scope import keeping
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import update_scope
from nfold.capture.optimizers.weighing import why_unweighable
from nfold.capture.program.building import build_model
from nfold.capture.program.program_graph import Loss
from nfold.capture.program.trial import check_model
from nfold.capture.program_facts import facts_and_batches, find_facts
from nfold.capture.side_effects.gradient_hooks import has_gradient_hooks, told_kept_by_hooks
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.capture.side_effects.weights_beside import weights_beside
from nfold.capture.visited_samples import visited_count
from nfold.core.graph import ModelGraph
from nfold.errors import InternalError
from nfold.program import Program


def capture(
    model: nn.Module,
    loss: Loss,
    example: Example,
    *,
    stepping: Stepping | None = None,
    rebuild: Callable[[], nn.Module] | None = None,
    evaluates: bool = False,
) -> Captured:
    """Capture a program and check the capture. About twenty forward passes over two or three samples.

    Where a trace goes wrong it takes a dozen more for each of at most 33 trials to keep modules whole.

    The process's random generators are put back; the model is not changed.

    Args:
        model: the user's module; segments will use its weights and its torch.nn modules.
        loss: (outputs, targets) -> scalar.
        example: batches of the user's data.
        stepping: the user's optimizer, to find out how far an update can be cut.
        rebuild: builds the module anew, for one that cannot be copied.
        evaluates: whether it is called in eval mode between steps.

    Raises:
        ProgramError: (also a ValueError) the program fails by itself.
    """
    with undisturbed(), torch.enable_grad():  # whatever the caller's mode
        check_model(model)
        fresh = fresh_copies(model, rebuild, lazy=True)
        facts, example = facts_and_batches(fresh, loss, example, evaluates=evaluates)
        if rebuild is not None and has_gradient_hooks(model):
            told = told_kept_by_hooks(rebuild, loss, example.batch(GATE_SIZE))
            facts = replace(facts, notes=(*facts.notes, told) if told else facts.notes)
        facts = replace(facts, indivisible=facts.indivisible or why_unfit(model))
        beside = weights_beside(model, loss, example.batch(GATE_SIZE))
        captured = CaptureAttempt(model, fresh, loss, example, facts, beside).first_good()
        if stepping is None:
            return captured
        return captured.with_graph(_with_updates(captured.graph, stepping, model, facts.sparse))


def _with_updates(graph: ModelGraph, stepping: Stepping, model: nn.Module, sparse: Mapping[str, int]) -> ModelGraph:
    """Say how far an update can be cut, and how the optimizer's state is kept."""
    updates = update_scope(stepping, model, sparse)
    kept = keeping(stepping, model, updates.scope, sparse)
    notes = (*graph.notes, kept.note) if kept.note else graph.notes
    return replace(
        graph,
        update_scope=kept.scope,
        unseen_update=updates.unseen,
        keeps_optimizer=kept.form,
        forgets=kept.forgets,
        unkept=kept.unkept or graph.unkept,
        unweighable=why_unweighable(stepping, model, sparse),
        notes=notes,
    )


def capture_program(model: nn.Module, program: Program, dataset: Any) -> Captured:
    """Capture a program, bound to a module that it built, on items of its data. See `capture`.

    Raises:
        ProgramError: (also a ValueError) the program fails by itself.
    """
    device = next(check_model(model).parameters()).device
    batches, size = program_batches(program, dataset, device), program.batch_size
    example = replace(batches, largest=size, last=lambda: visited_count(program, dataset) % size)
    captured = capture(
        model,
        program.loss,
        example,
        stepping=Stepping.of(program),
        rebuild=lambda: build_model(program, device),
        evaluates=program.test_data is not None,
    )
    graph = replace(
        captured.graph,
        clips_gradients=program.clip_norm is not None,
        averages_weights=program.averages is not None,
    )
    return captured.with_graph(graph)


def recapture(
    model: nn.Module,
    loss: Loss,
    example: Example,
    graph: ModelGraph,
    *,
    rebuild: Callable[[], nn.Module] | None = None,
    lazy: bool = False,
) -> Captured:
    """Capture again what another process captured, without the gate. About six forward passes.

    Args:
        model: built by the same program.
        loss: the same.
        example: the same batches.
        graph: what the other process found.
        rebuild: see `capture`.
        lazy: let copies of the model share its memory, where nobody holds the addresses of its weights yet.

    Raises:
        InternalError: it came out differently.
    """
    with undisturbed(), torch.enable_grad():
        fresh = fresh_copies(model, rebuild, lazy=lazy)
        facts = find_facts(fresh, loss, example, divisible=not graph.indivisible)
        facts = replace(facts, unproved=graph.unproved)
        attempt = CaptureAttempt(model, fresh, loss, example, facts)
        wanted = [operator.name for operator in graph.operators]
        is_partly_whole = graph.capture == "fx" and graph.whole
        for traced in attempt.with_whole(graph.whole) if is_partly_whole else attempt.traces():
            captured = attempt.bind(traced) if traced.method == graph.capture else None
            # Graphs of earlier versions do not say what is whole.
            if captured and graph.whole in ((), captured.graph.whole) and names_of(captured) == wanted:
                return captured.with_graph(graph)
        raise InternalError("this process captures other operators than the one that made the plan")
