"""Sparse gradients and sparse tensors train as on one device, under every strategy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drifting import drift, drifting_plan
from harness import difference, graph_of, make_plan, plain_loop, play, with_more
from torch import nn
from torch.nn import functional as F
from torch.optim import Adagrad, Adam, Optimizer, SparseAdam

from nfold.errors import ProgramError
from nfold.program import Program

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

ROWS, NODES = 9, 12
_ENTRIES = torch.arange(NODES)
LINKS = torch.sparse_coo_tensor(
    torch.stack([_ENTRIES, (3 * _ENTRIES + 1) % NODES]),
    torch.linspace(0.5, 1.5, NODES).double(),
    (NODES, NODES),
    check_invariants=True,
).coalesce()


def slots() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows that come twice in a sample, in two chunks of a batch, and never."""
    picked = torch.randint(0, ROWS - 2, (64, 3), generator=torch.Generator().manual_seed(0))
    return [(row, (row.sum() % 2).double()) for row in picked]


class Table(nn.Module):
    """Rows whose gradients cancel out or are minus zero are touched all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 2, sparse=True)

    def forward(self, picked: torch.Tensor) -> torch.Tensor:
        rows = self.table(picked)
        return rows[:, 0].sum(1) + (rows[:, 1] - self.table(picked[:, 1]) - 0.0 * rows[:, 2]).sum(1)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.table = nn.EmbeddingBag(ROWS, 3, mode="sum", sparse=True), nn.Embedding(ROWS, 3, sparse=True)
        self.head = nn.Linear(3, 1)

    def forward(self, picked: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.bag(picked) * self.table(picked[:, 0]))).squeeze(1)


class Picked(nn.Module):
    """A gradient that is sparse in both dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 3 * ROWS).reshape(3, ROWS))

    def forward(self, picked: torch.Tensor) -> torch.Tensor:
        return torch.gather(self.weight, 1, picked.T, sparse_grad=True).sum(0)


class Both(Optimizer):
    """Two optimizers in one: tables are updated by the first, the rest by the second."""

    def __init__(self, named: Any) -> None:
        named = list(named)
        super().__init__([weight for _, weight in named], {"lr": 0.1})
        tables = [weight for name, weight in named if "head" not in name]
        rest = [weight for name, weight in named if "head" in name]
        self.inner: list[Optimizer] = [SparseAdam(tables, lr=0.1)] if tables else []
        self.inner += [Adam(rest, lr=0.1)] if rest else []

    def step(self, closure: Any = None) -> None:
        for each in self.inner:
            each.step()


def program(model: Callable[[], nn.Module], optimizer: Any, **more: Any) -> Program:
    def build() -> nn.Module:
        torch.manual_seed(3)
        return model().double()

    loss = F.binary_cross_entropy_with_logits
    return Program(model=build, loss=loss, optimizer=optimizer, train_data=slots, batch_size=16, **more)


def sparse_adam(parameters: Any) -> Optimizer:
    return SparseAdam(parameters, lr=0.1)


def adagrad(parameters: Any) -> Optimizer:
    return Adagrad(parameters, lr=0.1)


def momentum(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def both(named_parameters: Any) -> Optimizer:
    return Both(named_parameters)


PROGRAMS = {
    "SparseAdam": (Table, sparse_adam),
    "both dimensions": (Picked, sparse_adam),
    "two in one": (Bags, both),
    "Adagrad": (Bags, adagrad),
    "SGD": (Bags, momentum),
}


@pytest.mark.parametrize("name", with_more(("SparseAdam", "two in one"), PROGRAMS))
@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_sparse_gradients_are_given_back_as_sparse_ones(name: str, workers: int) -> None:
    mine = program(*PROGRAMS[name])
    graph = graph_of(mine)
    assert next(each.sparse_dims for each in graph.parameters) == (2 if name == "both dimensions" else 1)
    expected = plain_loop(mine, 5, 6).state_dict()
    strategies = ("ring", "pipeline") if graph.update_scope == "model" else ("ring", "ps", "weighted", "hypergraph")
    for strategy in strategies:
        chosen = make_plan(mine, graph, strategy, workers, 0, chunks=6)
        assert difference(play(mine, graph, chosen, 5).state, expected) <= 1e-9, strategy


def test_a_server_of_its_own_gives_them_back_too() -> None:
    mine = program(*PROGRAMS["SparseAdam"])
    graph = graph_of(mine)
    assert graph.update_scope == "element"
    chosen = make_plan(mine, graph, "ps", 2, 1, chunks=4)
    assert difference(play(mine, graph, chosen, 5).state, plain_loop(mine, 5, 4).state_dict()) <= 1e-9


@pytest.mark.parametrize("name", ["SparseAdam", "Adagrad"])
def test_asynchronous_servers_give_them_back_too(name: str) -> None:
    mine = program(*PROGRAMS[name])
    graph = graph_of(mine)
    drifted = drift(mine, graph, drifting_plan(mine, graph, 2, chunks=4, bound=0), [5])
    assert difference(drifted.state, plain_loop(mine, 5, 4).state_dict()) <= 1e-9


@pytest.mark.parametrize(
    ("model", "optimizer", "words"),
    [
        (Bags, sparse_adam, r"SparseAdam does not support dense gradients.* gradient of head.weight is dense"),
        (Table, lambda p: Adam(p, lr=0.1), r"Adam does not support sparse gradients.* of table.weight is sparse"),
    ],
)
def test_an_optimizer_that_does_not_take_such_gradients_is_refused_before_anything_is_measured(
    model: Any, optimizer: Any, words: str
) -> None:
    with pytest.raises(ProgramError, match=words):
        graph_of(program(model, optimizer))


class Thinned(nn.Module):
    """Multiplies what is left of its activations, as a sparse matrix."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.layout, self.first, self.head = layout, nn.Linear(6, 5), nn.Linear(4, 3)
        self.weight = nn.Parameter(torch.linspace(-1, 1, 20).reshape(5, 4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(torch.relu(self.first(rows)).to_sparse(layout=self.layout) @ self.weight))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_activations_of_a_batch(layout: torch.layout) -> None:
    def rows() -> list[tuple[torch.Tensor, int]]:
        drawn = torch.randn(32, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return [(row, index % 3) for index, row in enumerate(drawn)]

    def build() -> nn.Module:
        torch.manual_seed(3)
        return Thinned(layout).double()

    mine = Program(model=build, loss=F.cross_entropy, optimizer=momentum, train_data=rows, batch_size=16)
    graph, expected = graph_of(mine), plain_loop(mine, 4, 4).state_dict()
    for strategy, workers in (("ring", 2), ("pipeline", 2), ("hybrid", 3), ("hypergraph", 2)):
        chosen = make_plan(mine, graph, strategy, workers, 0, chunks=4)
        assert difference(play(mine, graph, chosen, 4).state, expected) <= 1e-9, strategy
    drifted = drift(mine, graph, drifting_plan(mine, graph, 2, chunks=4, bound=0), [4])
    assert difference(drifted.state, expected) <= 1e-9


class Linked(nn.Module):
    """A sparse buffer, used as it is; the product of the whole graph is the same for every sample."""

    def __init__(self, layout: torch.layout, *, is_buffer: bool, is_activation: bool) -> None:
        super().__init__()
        links = LINKS.to_dense().to_sparse(layout=layout)
        if is_buffer:
            self.register_buffer("links", links, persistent=False)
        else:
            self.links = links
        self.layer, self.head = nn.Linear(NODES, 4), nn.Linear(4, 3)
        self.is_activation = is_activation

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        eye = torch.eye(NODES, dtype=torch.float64)
        links = self.links * 2.0 if self.is_activation else self.links
        return self.head(torch.tanh(links @ self.layer(eye))[nodes])


@pytest.mark.parametrize(
    "layout", with_more((torch.sparse_coo, torch.sparse_csr), (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc))
)
@pytest.mark.parametrize(
    ("is_buffer", "is_activation"),
    with_more(((True, False), (True, True)), [(True, False), (False, False), (True, True)]),
)
def test_sparse_tensors_in_a_model(layout: torch.layout, is_buffer: bool, is_activation: bool) -> None:
    def build() -> nn.Module:
        torch.manual_seed(3)
        return Linked(layout, is_buffer=is_buffer, is_activation=is_activation).double()

    mine = Program(
        model=build,
        loss=F.cross_entropy,
        optimizer=momentum,
        train_data=lambda: [(torch.tensor(node), torch.tensor(node % 3)) for node in range(NODES)],
        batch_size=NODES,
    )
    graph, expected = graph_of(mine), plain_loop(mine, 4, 2).state_dict()
    for strategy in ("single", "ring", "ps", "pipeline"):
        chosen = make_plan(mine, graph, strategy, 1 if strategy == "single" else 2, 0, chunks=2)
        assert difference(play(mine, graph, chosen, 4).state, expected) <= 1e-9, strategy
