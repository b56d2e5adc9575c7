"""What a capture method hands on: model and loss together, as a torch.fx graph over the user's own names."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import fx, nn

from nfold.capture.program.held_statement import Held
from nfold.core.graph import Rows

Loss = Callable[[Any, Any], torch.Tensor]

INPUT, TARGET, LOSS, MODEL = "input", "target", "loss", "model"


class LossCall:
    """The user's loss as one node: it is never traced, so it is never traced wrongly."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        name = getattr(loss, "__name__", type(loss).__name__)
        self.__name__ = name if name.isidentifier() else LOSS

    def __call__(self, outputs: Any, target: Any) -> torch.Tensor:
        return self._loss(outputs, target)


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """A program as a graph with placeholders `input` and `target`; modules and tensors are paths: `model.features.0`.

    Each node's meta has `region`, the modes in force, and `module`, the path of the user's module that it is in.
    """

    graph: fx.Graph
    method: Literal["fx", "export", "opaque"]
    constants: dict[str, Any] = field(default_factory=dict)
    """Tensors and functions that the trace made for itself, by path."""
    opaque: tuple[str, ...] = ()
    """Modules, and statements by file and line, kept whole because tracing them fails or would be wrong."""
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> list[fx.Node]:
        """All nodes but the output, in the order of the program."""
        return [node for node in self.graph.nodes if node.op != "output"]

    @property
    def result(self) -> fx.Node:
        """The node that computes the loss."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        (result,) = output.args
        assert isinstance(result, fx.Node)
        return result


class Scope:
    """Finds the modules and tensors of one model by the paths in a graph; it never copies them."""

    def __init__(
        self,
        model: nn.Module,
        constants: dict[str, Any],
        rows: Mapping[str, Rows] | None = None,
        weights: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        """Bind to a model.

        Args:
            model: the user's.
            constants: what the trace made for itself, by path.
            rows: parameters that are rows of the model's, by name.
            weights: tensors that hold them; where there is none, the model's own are cut whenever they are used.
        """
        self.model = model
        self._constants = constants
        self._rows, self._weights = rows or {}, weights or {}

    def module(self, target: str) -> nn.Module:
        """Return a module by path, or statements that the trace has kept whole."""
        if isinstance(held := self._constants.get(target), Held):
            return held.bind(self.model)
        return self.model.get_submodule(module_path(target))

    def owner(self, target: str) -> tuple[Any, str]:
        """Return the object that holds a tensor (or a constant), and the attribute."""
        if target in self._constants:
            return _Constant(self._constants[target]), "value"
        name = module_path(target)
        if name in self._weights:
            return _Constant(self._weights[name]), "value"
        if name in self._rows:
            return _RowView(*self.owner(self._rows[name].parameter), self._rows[name]), "value"
        path, _, attribute = module_path(target).rpartition(".")
        return self.model.get_submodule(path), attribute

    def tensor(self, target: str) -> Any:
        """Return a tensor by path."""
        owner, attribute = self.owner(target)
        return getattr(owner, attribute)


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class _RowView:
    owner: Any
    attribute: str
    rows: Rows

    @property
    def value(self) -> torch.Tensor:
        """The rows as they are now; gradients go to the whole parameter."""
        whole: torch.Tensor = getattr(self.owner, self.attribute)
        return whole[self.rows.start : self.rows.stop]


def dotted(parts: Iterable[str]) -> str:
    """Join the parts of a path into a name with dots; the model itself has an empty one."""
    return ".".join(part for part in parts if part)


def module_path(target: str) -> str:
    """Return the user's path of a module or tensor: the part after `model.`; empty for the model itself."""
    return "" if target == MODEL else target.removeprefix(f"{MODEL}.")
