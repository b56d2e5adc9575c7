"""Deeper networks made of a captured one, without capturing again: a block that keeps the shape of its input, repeated.

ResNet-101 is ResNet-50 with 17 blocks more in its third stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nfold.core.graph import ModelGraph, Operator, Parameter, Tensor


def deepened(graph: ModelGraph, module: str, copies: int) -> ModelGraph:
    """Return the graph with so many copies of a module's operators behind them, each on the one before.

    Raises:
        ValueError: the module is no such block.
    """
    block = _block_of(graph, f"{module}.")
    each = [_Copy(block, index) for index in range(1, copies + 1)]
    operators = tuple(_operators(graph, block, each))
    tensors = (*graph.tensors, *(copy.tensor(one) for copy in each for one in graph.tensors if block.has(one.producer)))
    return replace(
        graph,
        operators=operators,
        tensors=tuple(_with_consumers(tensor, operators) for tensor in tensors),
        parameters=(
            *graph.parameters,
            *(copy.parameter(one) for copy in each for one in graph.parameters if block.has(one.name)),
        ),
        statistics=(
            *graph.statistics,
            *(
                replace(one, module=copy.named(one.module))
                for copy in each
                for one in graph.statistics
                if block.has(one.module)
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """The operators of a module, the tensor that they begin with and the one that they leave."""

    prefix: str
    enters: str
    leaves: str

    def has(self, name: str) -> bool:
        """Whether an operator, a parameter or a module lies in it."""
        return name.startswith(self.prefix)


def _block_of(graph: ModelGraph, prefix: str) -> _Block:
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    inside = [operator for operator in graph.operators if operator.name.startswith(prefix)]
    names = {operator.name for operator in inside}
    enters = {name for operator in inside for name in operator.inputs if tensors[name].producer not in names}
    leaves = {name for operator in inside for name in operator.outputs if not names.issuperset(tensors[name].consumers)}
    if len(enters) != 1 or len(leaves) != 1:
        raise ValueError(
            f"{prefix}* uses {len(enters)} tensors of others and is used by {len(leaves)}: one each is needed"
        )
    begin, end = tensors[enters.pop()], tensors[leaves.pop()]
    if begin.bytes_per_sample != end.bytes_per_sample:
        sizes = f"{begin.bytes_per_sample:.0f} bytes a sample in, {end.bytes_per_sample:.0f} out"
        raise ValueError(f"{prefix}* cannot follow itself: {sizes}")
    return _Block(prefix, begin.name, end.name)


@dataclass(frozen=True, slots=True)
class _Copy:
    """One more of a block; the first stands behind the block itself."""

    block: _Block
    index: int

    def named(self, name: str) -> str:
        """Return what something of the block is called here; 0 is the block."""
        if not self.index or not self.block.has(name):
            return name
        return f"{self.block.prefix[:-1]}+{self.index}.{name.removeprefix(self.block.prefix)}"

    def input(self, name: str) -> str:
        """Return what is used here in the place of a tensor that the block uses."""
        before = _Copy(self.block, self.index - 1)
        return before.named(self.block.leaves) if name == self.block.enters else self.named(name)

    def operator(self, one: Operator) -> Operator:
        """Return the block's operator as it is here."""
        return replace(
            one,
            name=self.named(one.name),
            inputs=tuple(map(self.input, one.inputs)),
            outputs=tuple(map(self.named, one.outputs)),
            parameters=tuple(map(self.named, one.parameters)),
            statistics=tuple(map(self.named, one.statistics)),
        )

    def tensor(self, one: Tensor) -> Tensor:
        """Return a tensor that is made here; its consumers are still the block's."""
        return replace(one, name=self.named(one.name), producer=self.named(one.producer))

    def parameter(self, one: Parameter) -> Parameter:
        """Return a weight of its own."""
        return replace(one, name=self.named(one.name), users=tuple(map(self.named, one.users)))


def _operators(graph: ModelGraph, block: _Block, copies: list[_Copy]) -> Iterator[Operator]:
    """Yield all in order: who uses what the block leaves now uses what the last copy leaves."""
    inside = [operator for operator in graph.operators if block.has(operator.name)]
    last = copies[-1].named(block.leaves) if copies else block.leaves
    for operator in graph.operators:
        if block.has(operator.name):
            yield operator
        else:
            yield replace(operator, inputs=tuple(last if name == block.leaves else name for name in operator.inputs))
        if operator is inside[-1]:
            yield from (copy.operator(one) for copy in copies for one in inside)


def _with_consumers(tensor: Tensor, operators: tuple[Operator, ...]) -> Tensor:
    return replace(tensor, consumers=tuple(each.name for each in operators if tensor.name in each.inputs))
