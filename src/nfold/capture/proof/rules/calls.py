"""One call of an ATen operator: its arguments by name, what is known of them, and its results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nfold.capture.program.weight_writes import written_arguments
from nfold.capture.proof.rules.counting import SampleCount, symbols_of
from nfold.capture.proof.rules.kinds import SHARED, TOTAL, Kind, Mixed, SampleRows, Unknown

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
ONE_OVER = Mixed(how="divides by the number of samples")
"""Kind of a number that is one over the number of samples; only a product knows what to do with it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator, as a rule sees it."""

    name: str
    """Of the operator, without overload and without the mark of one that writes in place."""
    arguments: dict[str, Any]
    result: Any
    samples: SampleCount
    known: Callable[[torch.Tensor], Kind]
    numbers: Callable[[Any], Kind | None]
    """Kind of a symbol that was taken out of a tensor."""
    again: Callable[[Callable[[], torch.Tensor]], torch.Tensor]
    """Computes something more, which is followed as well."""
    is_pointwise: bool
    """Whether each element of its result is made of those in its place alone, numbers included."""
    proportional: Callable[[Any, str], bool]
    """Whether a number is made of data alone, and is as large for each sample; noted as a condition of the proof."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def is_statistical(self) -> bool:
        """Whether it is a batch norm, which may take and give statistics of the batch."""
        return "batch_norm" in self.name

    @property
    def only_reads_statistics(self) -> bool:
        """Whether it is a batch norm that leaves its running statistics as they are."""
        return self.is_statistical and not self.get("training", True)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument; a default where the operator has none of that name."""
        return self.arguments.get(name, default)

    def kind(self, name: str) -> Kind:
        """Return the kind of an argument by name."""
        return self.kind_of(self.arguments.get(name))

    def source(self) -> tuple[torch.Tensor, Kind]:
        """Return the first tensor among the arguments, and its kind."""
        tensor = next(self.tensors())
        return tensor, self.kind_of(tensor)

    def kind_of(self, value: Any) -> Kind:
        """Return the kind of a tensor or a number."""
        if isinstance(value, torch.Tensor):
            return self.known(value)
        if isinstance(value, _NUMBERS):
            return self._number(value)
        return SHARED

    def _number(self, value: Any) -> Kind:
        taken = [self.numbers(symbol) for symbol in symbols_of(value) - {self.samples.symbol}]
        for kind in taken:
            if kind != SHARED:
                return kind if kind is not None else Unknown(what="a number comes from where nothing was followed")
        if taken and self.samples.symbol not in symbols_of(value):
            return SHARED
        power = self.samples.power(value)
        if power is None:
            return Mixed(how="computes with the number of samples")
        return (SHARED, TOTAL, ONE_OVER)[power]

    def rows(self, name: str) -> SampleRows | None:
        """Return the rows of an argument, if it has some."""
        kind = self.kind(name)
        return kind if isinstance(kind, SampleRows) else None

    @property
    def values(self) -> Iterator[Any]:
        """Yield all arguments, and the entries of lists one by one."""
        return flat(self.arguments.values())

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield every tensor among the arguments, in order."""
        yield from tensors_in(self.arguments.values())

    @property
    def outputs(self) -> list[Any]:
        """The results, tensors or not."""
        return list(self.result) if isinstance(self.result, (tuple, list)) else [self.result]

    @property
    def shape(self) -> Sequence[Any]:
        """The shape of the first result."""
        return next(each.shape for each in self.outputs if isinstance(each, torch.Tensor))

    def mixed(self, how: str) -> Mixed:
        """Return the kind of a result that is made of several samples."""
        return Mixed(how=how)

    def unknown(self, what: str = "") -> Unknown:
        """Return the kind of a result of which no rule can tell how it is made."""
        return Unknown(what=what or f"nfold has no rule for torch's {self.name} as it is used here")


def bind(function: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    found: dict[str, Any] = {}
    for position, argument in enumerate(function._schema.arguments):
        if position < len(args):
            found[argument.name] = args[position]
        elif argument.name in kwargs:
            found[argument.name] = kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value if argument.has_default_value() else None
    return found


def written(function: torch._ops.OpOverload, arguments: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a call writes to."""
    return list(tensors_in(arguments[name] for _, name in written_arguments(function)))


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, and the entries of lists one by one."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield value


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among values and inside of lists."""
    return (each for each in flat(values) if isinstance(each, torch.Tensor))


def real_dim(dim: int, ndim: int) -> int:
    """Return a dimension counted from the front."""
    return dim + ndim if dim < 0 else dim


def all_dims(dims: Any, ndim: int) -> list[int]:
    """Return dimensions counted from the front; all of them where none is named."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(ndim))
    return [real_dim(each, max(ndim, 1)) for each in (dims if isinstance(dims, (list, tuple)) else [dims])]
