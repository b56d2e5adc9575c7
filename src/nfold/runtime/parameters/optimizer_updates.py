"""Optimizer steps over what a rank updates: whole parameters, or its share of a bucket.

The user's optimizer is built once per OptimizerStep, over exactly the pieces that the task changes: a bucket, or one of
the shares that this rank serves. Planning has checked that this gives the same result as one optimizer over everything
(`ModelGraph.update_scope`).
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from nfold.capture.optimizers.lost_state import tell_broken, tell_forgotten, tell_shared
from nfold.capture.optimizers.state_scope import is_elementwise, plain_settings
from nfold.capture.optimizers.state_tree import CannotHold, StateTree, to_tree
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.touched_rows import touched_only
from nfold.capture.side_effects.module_states import is_freed
from nfold.capture.side_effects.shared_state import Watch, places_of_optimizer
from nfold.core.graph import ModelGraph
from nfold.core.placement import Reduction
from nfold.core.tasks import Elements
from nfold.errors import ProgramError
from nfold.program import Program, describe
from nfold.runtime.parameters.buffers import Buffers, Piece
from nfold.runtime.parameters.forgotten_state import forgotten
from nfold.runtime.parameters.held_pieces import Held, held_by, shaped
from nfold.runtime.parameters.optimizer_state import OptimizerState, Plain

Kept = dict[str, tuple[Plain, Plain]]
"""By hyper-parameter: the checkpoint's, which is used, and that of the program, where they differ."""
UpdateKey = Elements | None
"""`OptimizerStep.gradients`."""


class PieceState(NamedTuple):
    """The optimizer's state for a piece of a parameter."""

    piece: Piece
    values: dict[str, Any]
    elementwise: frozenset[str]
    """Those with an element for each of the piece's."""
    group: dict[str, Plain]
    """Plain hyper-parameters of its group."""


class Updater:
    """One optimizer over the pieces that one OptimizerStep changes."""

    def __init__(
        self,
        stepping: Stepping,
        held: list[Held],
        extra: list[tuple[str, nn.Parameter]],
        *,
        is_kept_whole: bool = False,
        forgets: Collection[str] = (),
    ) -> None:
        weights = [*((each.name, each.tensor) for each in held), *extra]
        self._held, self._tensors = held, [tensor for _, tensor in weights]
        self._stepping, self._weights, self._forgets = stepping, weights, forgets
        self._stepper = stepping.build(weights)
        self._around = Watch(partial(places_of_optimizer, self._stepper.optimizer))
        self._around.look()
        self._steps = 0
        self._optimizer = self._stepper.optimizer
        self.kind = type(self._optimizer).__qualname__
        self.is_kept_whole = is_kept_whole
        """Whether a checkpoint has what the user's state_dict() gives."""
        self.kept: Kept = {}
        _check_none_lost(self._optimizer, weights)

    def advance(self, step: int) -> None:
        """Set the learning rate's schedule to where it is after so many steps."""
        self._stepper.advance(step)

    def take_sums(self) -> None:
        """Give what lies apart from its bucket the sums of its gradients."""
        for each in self._held:
            if each.is_apart and each.gradient is not None:
                each.tensor.grad = torch.empty_like(each.tensor, requires_grad=False).copy_(each.gradient)

    def scale(self, factor: float) -> None:
        """Multiply all gradients by a factor."""
        self._give_sparse()
        if factor != 1.0:
            for tensor in self._tensors:
                if tensor.grad is not None:
                    tensor.grad.mul_(factor)

    def step(self, rate: float = 1.0) -> None:
        """Apply the gradients with the learning rate times `rate`.

        Raises:
            ProgramError: a rate is asked for, and the optimizer has none.
        """
        self._steps += 1
        if self._steps == 2:
            self._around.look()  # the first step may have filled caches
        self._give_sparse()
        self._order_gradients()
        if rate == 1.0:
            self._optimizer.step()
        else:
            self._step_at(rate)
        self._keep_values()

    def _step_at(self, rate: float) -> None:
        kept = [_learning_rate(self._optimizer, group) for group in self._optimizer.param_groups]
        for group, own in zip(self._optimizer.param_groups, kept, strict=True):
            group["lr"] = own * rate
        self._optimizer.step()
        for group, own in zip(self._optimizer.param_groups, kept, strict=True):
            group["lr"] = own if group["lr"] == own * rate else group["lr"] / rate  # step() may have changed it

    def _give_sparse(self) -> None:
        """Give back as sparse what was summed as dense."""
        for each in self._held:
            gradient = each.tensor.grad
            if each.sparse_dims and gradient is not None and gradient.layout is torch.strided:
                each.tensor.grad = touched_only(gradient, each.sparse_dims)

    def _order_gradients(self) -> None:
        """Give fused optimizers gradients in their parameters' order in memory: they go by that, buckets do not."""
        for group in self._optimizer.param_groups:
            for tensor in group["params"] if group.get("fused") else ():
                if tensor.grad is None or tensor.grad.layout is not torch.strided:
                    continue
                if tensor.grad.stride() != tensor.stride():
                    tensor.grad = torch.empty_like(tensor).copy_(tensor.grad)

    def _keep_values(self) -> None:
        """Bring back what the optimizer put elsewhere: it may replace the data and gradients of its parameters."""
        for each in self._held:
            if each.home is not None and each.tensor.data_ptr() != each.home.data_ptr():
                each.home.copy_(each.tensor.detach())
                each.tensor.data = each.tensor.data if each.is_apart else each.home
            if each.gradient is not None and not each.is_apart:
                each.tensor.grad = each.gradient

    def state(self) -> list["PieceState"]:
        """Return what the optimizer keeps for each piece, and its group's plain hyper-parameters."""
        groups = {id(tensor): group for group in self._optimizer.param_groups for tensor in group["params"]}
        return [
            PieceState(
                each.piece,
                kept := dict(self._optimizer.state.get(each.tensor, {})),
                frozenset(key for key, value in kept.items() if is_elementwise(value, each.tensor)),
                plain_settings(groups.get(id(each.tensor), {})),
            )
            for each in self._held
        ]

    def restore(self, read: Callable[[Piece], tuple[str, OptimizerState]], step: int) -> None:
        """Take back what was kept for this updater's pieces after so many steps.

        Args:
            read: returns the user's name of a piece's parameter, and under that the state of the piece alone, flat:
                whole states would be in memory beside what is made of them.
            step: steps that were done.

        Raises:
            ProgramError: it is another optimizer's.
        """
        self._stepper.replay(step)
        for each in self._held:
            name, saved = read(each.piece)
            self._check_kind(saved.kind)
            for group in self._optimizer.param_groups:
                if any(tensor is each.tensor for tensor in group["params"]):
                    self._take_group(group, saved.groups.get(name, {}))
            state: dict[str, Any] = dict(saved.scalars.get(name, {}))
            for key, tensor in saved.tensors.get(name, {}).items():
                state[key] = shaped(tensor, each) if key in saved.elementwise else tensor
            if state:
                self._optimizer.state[each.tensor] = state

    def whole_state(self) -> StateTree:
        """Return what the optimizer says of itself, for `restore_whole`.

        Raises:
            ProgramError: a checkpoint cannot hold something of it.
        """
        try:
            return to_tree(self._optimizer.state_dict())
        except CannotHold as error:
            raise ProgramError(
                f"{self.kind}.state_dict(){error}, which a checkpoint cannot hold. Keep tensors, numbers, texts, lists "
                "and dicts there, or train with --checkpoint-every 0."
            ) from error

    def why_unkept(self) -> str:
        """Say what no checkpoint of now would bring back, and what to do; empty if it brings back all."""
        try:
            found = forgotten(
                self._stepping,
                self._stepper,
                self._weights,
                num_kept=None if self.is_kept_whole else len(self._held),
            )
        except Exception as error:
            return tell_broken(self.kind, describe(error))
        self._around.look(grows=self._steps < 2)
        if moved := [name for name in self._around.moved if name not in self._forgets]:
            return tell_shared(self.kind, moved)
        lost = [name for name in found if name not in self._forgets]
        return tell_forgotten(self.kind, lost) if lost else ""

    def restore_whole(self, state: Any, kind: str, step: int) -> None:
        """Take back what the optimizer said of itself after so many steps.

        Raises:
            ProgramError: it is another optimizer's.
        """
        self._check_kind(kind)
        if not self.is_kept_whole:
            raise ProgramError(
                f"the checkpoint has what state_dict() of {kind} gave, and the program's {self.kind} is updated in "
                "pieces now. Put the optimizer back, or begin a new run."
            )
        self._stepper.replay(step)
        own = [plain_settings(group) for group in self._optimizer.param_groups]
        try:
            self._optimizer.load_state_dict(state)
        except Exception as error:
            raise ProgramError(
                f"{self.kind}.load_state_dict() raised {describe(error)} for what its state_dict() gave after step "
                f"{step}. Put the optimizer back as it was, or begin a new run."
            ) from error
        for group, before in zip(self._optimizer.param_groups, own, strict=False):
            taken = plain_settings(group)
            self.kept |= {
                key: (taken[key], before[key]) for key in before if key in taken and taken[key] != before[key]
            }

    def _check_kind(self, kind: str) -> None:
        if kind and kind != self.kind:
            raise ProgramError(
                f"the run was begun with the optimizer {kind}, and the program has {self.kind} now. "
                "Put it back, or begin a new run."
            )

    def _take_group(self, group: dict[str, Any], saved: Mapping[str, Plain]) -> None:
        """Go on with the checkpoint's hyper-parameters, and note where the program has others by now."""
        own = plain_settings(group)
        self.kept |= {key: (value, own[key]) for key, value in saved.items() if key in own and value != own[key]}
        group.update(saved)


def _check_none_lost(optimizer: torch.optim.Optimizer, weights: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Refuse an optimizer that took one of several parts of a parameter, because they have its name, and left others.

    Raises:
        ProgramError: it would train some rows of the parameter and not the others.
    """
    taken = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    found: dict[str, bool] = {}
    for name, tensor in weights:
        if found.setdefault(name, id(tensor) in taken) != (id(tensor) in taken):
            raise ProgramError(
                f"Program(optimizer=...) was given several parts of {name}, all under its name, and left some of them "
                "out. Go over the pairs, [p for name, p in named_parameters if ..], and make no dict of them."
            )


def _learning_rate(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Any:
    if "lr" not in group:
        raise ProgramError(
            f"{type(optimizer).__name__} keeps no learning rate `lr` in its groups, so an asynchronous server cannot "
            "weigh one worker's gradient. Use --strategy ssp --staleness 0."
        )
    return group["lr"]


def kept_by(updaters: Iterable[Updater]) -> Kept:
    """Return the hyper-parameters that updaters took from a checkpoint although the program has others."""
    return {key: pair for updater in updaters for key, pair in updater.kept.items()}


def build_updaters(
    program: Program,
    graph: ModelGraph,
    reductions: tuple[Reduction, ...],
    rank: int,
    buffers: Buffers,
    parameters: Mapping[str, nn.Parameter],
) -> dict[UpdateKey, Updater]:
    """Return this rank's updaters by the gradients that their OptimizerStep applies."""
    sizes = {name: parameter.numel() for name, parameter in parameters.items()}
    stepping = Stepping.of(program)
    held = {
        Elements("gradient", reduction.name, start, stop): held_by(
            reduction, start, stop, graph, buffers, parameters, sizes
        )
        for reduction in reductions
        for start, stop in _updated_by(rank, reduction)
    }
    elsewhere = {name for reduction in reductions for name in reduction.parameters}
    elsewhere |= {name for name, parameter in parameters.items() if is_freed(parameter)}
    if graph.update_scope == "model":
        everything = [each for pieces_held in held.values() for each in pieces_held]
        ordered = _ordered(everything, parameters, elsewhere)
        whole = graph.keeps_optimizer == "whole"
        kept: dict[str, Any] = {"is_kept_whole": whole, "forgets": graph.forgets}
        return {None: Updater(stepping, *ordered, **kept)} if everything else {}
    whole = len(held) == 1 and next(iter(held)).name in {r.name for r in reductions if r.route == "local"}
    return {
        key: Updater(stepping, *(_ordered(each, parameters, elsewhere) if whole else (each, [])), forgets=graph.forgets)
        for key, each in held.items()
        if each
    }


def _updated_by(rank: int, reduction: Reduction) -> list[tuple[int, int]]:
    """The ranges of a bucket that a rank updates."""
    if reduction.route == "server":
        return [(share.start, share.stop) for share in reduction.shares if share.rank == rank]
    return [(0, reduction.num_elements)] if rank in reduction.members else []


def _ordered(
    held: list[Held], parameters: Mapping[str, nn.Parameter], elsewhere: Container[str]
) -> tuple[list[Held], list[tuple[str, nn.Parameter]]]:
    """Put whole parameters in the module's own order, and add those that no reduction holds (frozen or unused)."""
    by_name = {each.piece.name: each for each in held}
    ordered = [by_name[name] for name in parameters if name in by_name]
    return ordered, [(name, parameter) for name, parameter in parameters.items() if name not in elsewhere]
