"""The gate that every capture passes before it is trusted: cut at every operator, it must equal the user's own module.

Both sides draw the same random numbers: the module draws as it likes, and the cut program starts each draw from the
state that the generators had at that point. Both must leave the generators alike: a number that was drawn while the
module was traced, and is drawn no more, may have decided something that no call here shows, as a rare coin does.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
_ALONE = (1, 2)
_DRAWS_LESS = "it draws random numbers in Python, where no operator does"


@dataclass(frozen=True, slots=True)
class Gated:
    """The result of the gate for one capture."""

    failure: str = ""
    """How it differs from the module; empty if it does not."""
    is_other_alone: bool = False
    """Whether it differs on a single sample, and on no batch of several."""


def pass_gate(
    captured: Captured, fresh: Callable[[], nn.Module], loss: Loss, example: Example, *, alone: bool = False
) -> Gated:
    """Compare a capture with the module: a few calls, several batch sizes, equal random numbers.

    Args:
        captured: to check; its own model is not touched.
        fresh: makes copies of the model.
        loss: the user's.
        example: where batches come from.
        alone: whether to compare a single sample too.
    """
    eager, cut = fresh(), fresh()
    bound = Captured(captured.graph, captured.layout, cut)
    states = _States(bound, fresh) if captured.layout.random.draws else None
    segments = segments_of(bound, [[operator.name] for operator in captured.graph.operators], states)
    precision = max(node.meta["region"].lowest_precision for node in captured.layout.traced.nodes)
    is_exported = captured.layout.traced.method == "export"  # for at least two samples; an epoch may end with one
    for seed, key in enumerate((*_CALLS, _ALONE) if alone or is_exported else _CALLS):
        try:
            expected, drawn = _eager(eager, loss, example.batch(*key), seed)
        except Exception:
            if key == _ALONE:
                break
            raise
        seed_all(seed)
        try:
            if states is not None:
                states.record(example.batch(*key))
            draws_less = drawn.moved()
            seed_all(seed)
            value = play_step(bound, segments, example.batch(*key))
        except Exception as error:
            text = f"cut into operators, it {plainly(error)}"
        else:
            text = _DRAWS_LESS if draws_less else difference(expected, outcome(value, cut), precision)
        if text:
            return Gated(is_other_alone=True) if key == _ALONE and not is_exported else Gated(text)
    return Gated()


def _eager(model: nn.Module, loss: Loss, batch: tuple[Any, Any], seed: int) -> tuple[StepOutcome, RandomState]:
    """Return what a call comes to, and the generators' states when the loss is there."""
    seed_all(seed)
    value = loss(call(model, batch[0]), batch[1])
    drawn = RandomState()
    torch.autograd.backward(value)
    return outcome(value, model), drawn


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

    def record(self, batch: tuple[Any, Any]) -> None:
        """Run the program in its own order, from the generators as they are, and note where its draws begin."""
        self._recording = True
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
