"""The gate that every capture passes before it is trusted: cut at every operator, it must equal the user's own module.

Both sides draw the same random numbers: the module draws as it likes, and the cut program starts each draw from the
state that the generators had at that point.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nfold.capture.batches.example import GATE_SIZE, SIZES, Example
from nfold.capture.computing.random import RandomState, seed_all
from nfold.capture.computing.step_outcome import StepOutcome, difference, outcome
from nfold.capture.cutting.captured import Captured, scope_of
from nfold.capture.cutting.compiled_segments import compile_nodes
from nfold.capture.cutting.replay import play_step, segments_of
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import LOSS, Loss
from nfold.capture.tracing.plain_errors import plainly

_LARGE, _SMALL = SIZES
_CALLS = ((_LARGE, 0), (_SMALL, 1), (GATE_SIZE, 3), (_LARGE, 0))
"""How many samples, and which."""
ALONE = ((1, 2),)


def pass_gate(
    captured: Captured,
    fresh: Callable[[], nn.Module],
    loss: Loss,
    example: Example,
    calls: tuple[tuple[int, int], ...] = _CALLS,
) -> str:
    """Compare a capture with the module: a few calls, several batch sizes, equal random numbers.

    Args:
        captured: to check; its own model is not touched.
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        calls: batches, by how many samples and which.

    Returns:
        How they differ; empty if they do not.
    """
    eager, cut = fresh(), fresh()
    bound = Captured(captured.graph, captured.layout, cut)
    states = _States(bound, fresh) if captured.layout.random.draws else None
    segments = segments_of(bound, [[operator.name] for operator in captured.graph.operators], states)
    precision = max(node.meta["region"].lowest_precision for node in captured.layout.traced.nodes)
    if captured.layout.traced.method == "export" and calls is _CALLS:
        calls = (*_CALLS, *ALONE)  # export was promised at least two samples; an epoch may end with one
    for seed, key in enumerate(calls):
        try:
            expected = _eager(eager, loss, example.batch(*key), seed)
        except Exception:
            if key[0] == 1:
                break
            raise
        try:
            if states is not None:
                states.record(seed, example.batch(*key))
            seed_all(seed)
            value = play_step(bound, segments, example.batch(*key))
        except Exception as error:
            return f"cut into operators, it {plainly(error)}"
        text = difference(expected, outcome(value, cut), precision)
        if text:
            return text
    return ""


def _eager(model: nn.Module, loss: Loss, batch: tuple[Any, Any], seed: int) -> StepOutcome:
    seed_all(seed)
    value = loss(call(model, batch[0]), batch[1])
    torch.autograd.backward(value)
    return outcome(value, model)


class _States:
    """Records the generators' states at each draw of an uncut run, for the same draw of a cut one."""

    def __init__(self, captured: Captured, fresh: Callable[[], nn.Module]) -> None:
        layout = captured.layout
        nodes = [node for node in layout.traced.nodes if not layout.cut.is_free(node)]
        given = [layout.tensors[name] for name in ("input", "target")]
        self._states: dict[int, RandomState] = {}
        self._recording = False
        self._run = compile_nodes(
            nodes,
            given,
            [layout.tensors[LOSS]],
            cut=layout.cut,
            scope=scope_of(captured.graph, layout, fresh()),
            anchor=next((layout.anchors[node] for node in given if node in layout.anchors), None),
            random=layout.random,
            draws=self,
        )

    def record(self, seed: int, batch: tuple[Any, Any]) -> None:
        """Run the program in its own order and note where its draws begin."""
        self._recording = True
        seed_all(seed)
        with torch.enable_grad():
            self._run(*batch)
        self._recording = False

    def seed(self, draw: int) -> None:
        """Note the states, or put them back."""
        if self._recording:
            self._states[draw] = RandomState()
        else:
            self._states[draw].restore()

    def seed_everything(self, draw: int) -> None:
        """The same: all generators are noted."""
        self.seed(draw)
