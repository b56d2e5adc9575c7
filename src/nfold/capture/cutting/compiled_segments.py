"""Compiles a run of a program's nodes into one Python function over the user's own modules and parameters.

def segment(input, conv1):
    size = conv1.shape[0]
    relu = f0(conv1)
    with lock:
        seed(0)
        drop = m0(relu)
    return (drop,)
"""

import contextlib
import itertools
import keyword
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import fx

from nfold.capture.batches.sizes import Affine
from nfold.capture.computing.grad_and_autocast_regions import Region
from nfold.capture.computing.random import LOCK
from nfold.capture.cutting.operator_cut import Cut
from nfold.capture.program.program_graph import Scope

_SIZE = "num_samples"


class Draws(Protocol):
    """Seeds the generators before the k-th random node of a program."""

    def seed(self, draw: int) -> None:
        """Seed torch's generators."""

    def seed_everything(self, draw: int) -> None:
        """Seed Python's and numpy's as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """Where a function can read the number of samples: one dimension of one of its inputs."""

    node: fx.Node
    path: tuple[Any, ...]
    dimension: int
    line: Affine


@dataclass(frozen=True, slots=True)
class RandomNodes:
    """Nodes that draw, each with its place in the program's order of draws."""

    draws: dict[fx.Node, int]
    foreign: bool = False
    """Whether any draws from Python's or numpy's generator."""


def compile_nodes(
    nodes: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    *,
    cut: Cut,
    scope: Scope,
    anchor: Anchor | None,
    random: RandomNodes,
    draws: Draws,
) -> Callable[..., tuple[Any, ...]]:
    """Return a function from the values of `inputs` to those of `outputs`. About 20 us per node.

    Args:
        nodes: to compute, in the order of the program.
        inputs: nodes whose values are given.
        outputs: nodes whose values are returned.
        cut: tells which nodes belong to no operator and are computed wherever they are needed.
        scope: finds the modules and tensors of the model.
        anchor: where the number of samples is read; None: no node needs it.
        random: the nodes that draw.
        draws: seeds the generators before each of them.
    """
    writer = _Writer(cut, scope, random, draws)
    names = [writer.name(node) for node in inputs]
    writer.known |= set(inputs)
    if anchor is not None:
        writer.write_size(anchor)
    if any(node.meta["region"].is_autocast and node.meta["region"].keeps_casts for node in nodes):
        writer.write_aliases(inputs)
    last_use = _last_uses(nodes, outputs, cut)
    for region, members in itertools.groupby(nodes, key=lambda node: node.meta["region"]):
        with writer.block(region):
            for node in members:
                writer.write(node)
                writer.forget(last_use.get(node, ()))
    body = [*writer.lines, f"return ({' '.join(f'{writer.name(node)},' for node in outputs)})"]
    source = f"def segment({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, "<segment>", "exec"), writer.globals)
    function: Callable[..., tuple[Any, ...]] = writer.globals["segment"]
    return function


@dataclass
class _Writer:
    """Source lines in the making, and the objects that they name."""

    cut: Cut
    scope: Scope
    random: RandomNodes
    draws: Draws
    lines: list[str] = field(default_factory=list)
    globals: dict[str, Any] = field(default_factory=lambda: {"lock": LOCK, "Size": torch.Size})
    known: set[fx.Node] = field(default_factory=set)
    """Nodes that have a variable."""

    region: Region | None = None
    """Modes under which lines are being written."""

    indent: str = ""

    def name(self, node: fx.Node) -> str:
        return f"v_{node.name}"

    @contextlib.contextmanager
    def block(self, region: Region) -> Iterator[None]:
        """Write what follows under the region's modes."""
        usual = next(iter(self.cut.groups[0][0].graph.nodes)).meta["region"]
        if region != usual:
            self._add(f"with {self.constant(region.enter)}():")
            self.indent = "    "
        self.region = region
        yield
        self.indent = ""

    def write_size(self, anchor: Anchor) -> None:
        keys = "".join(f"[{self.constant(key)}]" for key in anchor.path)
        number = f"{self.name(anchor.node)}{keys}.shape[{anchor.dimension}]"
        self._add(f"{_SIZE} = ({number} - {anchor.line.fixed}) // {anchor.line.slope}")

    def write_aliases(self, inputs: Sequence[fx.Node]) -> None:
        """Give inputs a history: autocast keeps the casts of tensors without one, which it takes for weights."""
        for node in inputs:
            self._add(f"{self.name(node)} = {self.constant(_with_history)}({self.name(node)})")

    def write(self, node: fx.Node) -> None:
        """Compute one node, with its seed."""
        for used in node.all_input_nodes:
            self.write_free(used)
        for line in self._drawn(node, f"{self.name(node)} = {self._call(node)}"):
            self._add(line)
        self.known.add(node)

    def write_free(self, node: fx.Node) -> None:
        """Make a value that belongs to no operator, unless it is there."""
        if node in self.known or not self.cut.is_free(node):
            return
        if node in self.cut.sizes:
            self._add(f"{self.name(node)} = {self._number(self.cut.sizes[node])}")
        elif node.op == "get_attr":
            owner, attribute = self.scope.owner(str(node.target))
            self._add(f"{self.name(node)} = {self._attribute(self.constant(owner), attribute)}")
        else:
            for used in node.all_input_nodes:
                self.write_free(used)
            self._under(node.meta["region"], f"{self.name(node)} = {self._call(node)}")
        self.known.add(node)

    def forget(self, nodes: Sequence[fx.Node]) -> None:
        """Let go of values that nothing needs any more."""
        if nodes:
            self._add(f"del {', '.join(self.name(node) for node in nodes)}")

    def constant(self, value: Any) -> str:
        """Write a value that is no node."""
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return repr(value)
        name = f"c{len(self.globals)}"
        self.globals[name] = value
        return name

    def _add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def _under(self, region: Region, line: str) -> None:
        """Write a line under modes of its own: what it makes may also be used where other modes are in force."""
        if region == self.region:
            self._add(line)
            return
        self._add(f"with {self.constant(region.enter)}():")
        self._add(f"    {line}")

    def _drawn(self, node: fx.Node, line: str) -> list[str]:
        if node not in self.random.draws:
            return [line]
        seed = self.draws.seed_everything if self.random.foreign else self.draws.seed
        return ["with lock:", f"    {self.constant(seed)}({self.random.draws[node]})", f"    {line}"]

    def _attribute(self, owner: str, name: str) -> str:
        """Write where a tensor lies: those of a ParameterList are called 0, 1 .."""
        return f"{owner}.{name}" if _is_name(name) else f"getattr({owner}, {name!r})"

    def _call(self, node: fx.Node) -> str:
        args = [self._value(arg) for arg in node.args]
        args_and_kwargs = [*args, *(self._keyword(key, value) for key, value in node.kwargs.items())]
        if node.op == "call_module":
            return f"{self.constant(self.scope.module(str(node.target)))}({', '.join(args_and_kwargs)})"
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({', '.join(args_and_kwargs[1:])})"
        return f"{self.constant(node.target)}({', '.join(args_and_kwargs)})"

    def _keyword(self, key: str, value: Any) -> str:
        return f"{key}={self._value(value)}" if _is_name(key) else f"**{{{key!r}: {self._value(value)}}}"

    def _value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.name(value)
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if type(value) in (tuple, fx.immutable_collections.immutable_list, list) and value:
            left, right = ("(", ",)") if isinstance(value, tuple) else ("[", "]")
            return f"{left}{', '.join(self._value(item) for item in value)}{right}"
        if isinstance(value, dict) and value:
            return "{" + ", ".join(f"{self.constant(key)}: {self._value(item)}" for key, item in value.items()) + "}"
        return self.constant(value)

    def _number(self, rule: Any) -> str:
        if isinstance(rule, Affine):
            return f"{rule.fixed} + {rule.slope} * {_SIZE}" if rule.slope else str(rule.fixed)
        if isinstance(rule, tuple):
            return f"Size(({' '.join(f'{self._number(part)},' for part in rule)}))"
        return self.constant(rule)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _with_history(value: Any) -> Any:
    return value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value


def _last_uses(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], cut: Cut) -> dict[fx.Node, list[fx.Node]]:
    """Say after which node a value made here is done with."""
    here, last = set(nodes), dict[fx.Node, fx.Node]()
    for node in nodes:
        last[node] = node
        last.update((used, node) for used in cut.sources(node) if used in here)
    done: dict[fx.Node, list[fx.Node]] = {}
    for value, node in last.items():
        if value not in outputs:
            done.setdefault(node, []).append(value)
    return done
