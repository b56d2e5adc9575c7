"""Programs that would train other parameters on several ranks than on one device: repaired or refused."""

from dataclasses import replace

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play
from nets import CLASSES, images, program
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, Subset

from nfold.capture.program.building import build_model
from nfold.errors import PlanError, ProgramError
from nfold.program import Program


def check_every_way(mine: Program, num_steps: int) -> None:
    """Assert that a ring and a server end with what a plain loop ends with."""
    graph, expected = graph_of(mine), plain_loop(mine, num_steps, 4).state_dict()
    for strategy in ("ring", "ps"):
        played = play(mine, graph, make_plan(mine, graph, strategy, 2, 0, chunks=4), num_steps)
        assert difference(played.state, expected) <= 1e-9, strategy


class Zeroing(torch.optim.SGD):
    """Ends every step by dropping gradients, as some training code does."""

    def step(self, closure=None):
        super().step(closure)
        self.zero_grad()


class Signing(torch.optim.SGD):
    """Replaces gradients and data by new tensors."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.sign()
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data.clamp(-0.5, 0.5)


@pytest.mark.parametrize("kind", [Zeroing, Signing])
def test_optimizers_that_replace_gradients_and_data(kind):
    check_every_way(program("plain", optimizer=lambda parameters: kind(parameters, lr=0.01)), 6)


class Slowed(torch.optim.SGD):
    """Keeps slow weights that fast ones come back to, and writes to all that it was given."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
        self.slow = [each.detach().clone() for group in self.param_groups for each in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        every = (each for group in self.param_groups for each in group["params"])
        for slow, fast in zip(self.slow, every, strict=True):
            slow.lerp_(fast, 0.5)
            fast.copy_(slow)


@pytest.mark.parametrize("strategy", [pytest.param("pipeline", marks=pytest.mark.exhaustive), "hypergraph"])
def test_an_optimizer_that_writes_to_every_weight_is_given_none_that_others_compute_with(strategy):
    mine = program("plain", optimizer=lambda parameters: Slowed(parameters, lr=0.05))
    graph, expected = graph_of(mine), plain_loop(mine, 4, 2).state_dict()
    played = play(mine, graph, make_plan(mine, graph, strategy, 2, 0, chunks=2), 4)
    assert difference(played.state, expected) <= 1e-9


class Synchronised(nn.Sequential):
    """Batch norm that would synchronise, if torch.distributed were there."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(2, 4, 3), nn.SyncBatchNorm(4), nn.Flatten(), nn.Linear(144, CLASSES))


def test_a_batch_norm_that_insists_on_counting_its_batches():
    check_every_way(of(Synchronised), 4)


class Recomputing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(128, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        for _ in range(2):
            x = checkpoint(lambda value: torch.tanh(self.again(value)), x, use_reentrant=True)
        return self.head(x)


class Heads(nn.Module):
    """A head for each kind of sample: which ones are used changes from batch to batch."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(128, CLASSES), nn.Linear(128, CLASSES)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = 1 if float(x.abs().mean()) > 100 else 0
        return self.heads[chosen](x.flatten(1))


def of(model: type[nn.Module]) -> Program:
    return Program(
        model=lambda: model().double(),
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        train_data=images,
        batch_size=16,
    )


@pytest.mark.exhaustive
def test_a_gradient_that_comes_twice_is_waited_for():
    check_every_way(of(Recomputing), 5)


def test_gradients_that_come_and_go_are_refused():
    mine = of(Heads)
    graph = graph_of(mine)
    with pytest.raises(PlanError, match=r"'heads\.1\.weight' among them"):
        make_plan(mine, graph, "ring", 2, 0, chunks=2)


class Noisy(Dataset):
    """Adds noise to every sample that is read, as augmentation does."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(2, 8, 8, dtype=torch.float64), index % CLASSES


def test_data_that_draws_is_the_same_wherever_it_is_read():
    mine = program("dropping")
    mine = Program(model=mine.model, loss=mine.loss, optimizer=mine.optimizer, train_data=Noisy, batch_size=8, seed=5)
    graph = graph_of(mine)
    alone = play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=4), 6)
    spread = play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=4), 6)
    assert spread.losses == pytest.approx(alone.losses, rel=1e-9)
    assert difference(spread.state, alone.state) <= 1e-9


class Penalized(nn.Module):
    """Returns how fast each output changes with its sample, for the loss to make small."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(128, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.flatten(1).requires_grad_()
        outputs = self.head(torch.tanh(self.first(x)))
        (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        return outputs, slope


class Open(Penalized):
    """Leaves that to the loss."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.flatten(1).detach().requires_grad_()
        return self.head(torch.tanh(self.first(x))), x


def penalty(outputs: tuple[torch.Tensor, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs[0], targets) + outputs[1].square().sum(1).mean()


def penalty_in_loss(outputs: tuple[torch.Tensor, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    (slope,) = torch.autograd.grad(outputs[0].sum(), outputs[1], create_graph=True)
    return penalty((outputs[0], slope), targets)


@pytest.mark.parametrize(("model", "loss"), [(Penalized, penalty), (Open, penalty_in_loss)], ids=["forward", "loss"])
def test_a_gradient_penalty_is_exact(model, loss):
    check_every_way(replace(of(model), loss=loss), 5)


def test_a_model_that_is_built_once_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, CLASSES)).double()
    mine = replace(of(Heads), model=lambda: model)
    build_model(mine, torch.device("cpu"))
    with pytest.raises(ProgramError, match=r"returned 1\.weight for the second time"):
        build_model(mine, torch.device("cpu"))


class Checkpointed(nn.Module):
    """Computes its middle again in backward."""

    def __init__(self, middle: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.middle, self.head = nn.Linear(128, 16), middle, nn.Linear(16, CLASSES)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return self.head(checkpoint(self.middle, x, use_reentrant=self.reentrant))


def dropping(*, reentrant: bool) -> nn.Module:
    return Checkpointed(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.4)), reentrant=reentrant)


def normalizing(*, reentrant: bool) -> nn.Module:
    return Checkpointed(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), reentrant=reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_that_is_drawn_again_in_backward_is_the_same(reentrant):
    mine = replace(of(Heads), model=lambda: dropping(reentrant=reentrant).double())
    graph = graph_of(mine)
    alone = play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=6), 8)
    spread = play(mine, graph, make_plan(mine, graph, "ring", 3, 0, chunks=6), 8)
    assert difference(spread.state, alone.state) <= 1e-9


@pytest.mark.parametrize("chunks", [pytest.param(2, marks=pytest.mark.exhaustive), 4])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_batch_norm_that_is_computed_again_in_backward_is_refused(reentrant, chunks):
    mine = replace(of(Heads), model=lambda: normalizing(reentrant=reentrant).double())
    graph = graph_of(mine)
    with pytest.raises(ProgramError, match=r"the batch norm middle\.1 was called 2 times for one chunk, not 1"):
        play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=chunks), 1)


class Noising(torch.optim.SGD):
    """Langevin dynamics: a step down the gradient, and a step anywhere."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(torch.randn_like(parameter), alpha=0.01)


def test_an_optimizer_that_draws_draws_the_same_on_every_rank():
    mine = program("unused", optimizer=lambda parameters: Noising(parameters, lr=0.01))
    graph = graph_of(mine)
    alone = play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=4), 6)
    spread = play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=4), 6)
    assert difference(spread.state, alone.state) <= 1e-9
    assert difference(alone.state, play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=4), 7).state) > 1e-3
    with pytest.raises(PlanError, match="must see all parameters at once"):
        make_plan(mine, graph, "ps", 2, 0, chunks=4)


class Clipping(torch.optim.SGD):
    def step(self, closure=None):
        nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
        super().step(closure)


class Experts(nn.Module):
    """Each half of the samples has its own head, as long as there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(128, CLASSES), nn.Linear(128, CLASSES)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        outputs = x.new_zeros(len(x), CLASSES)
        for head, chosen in zip(self.heads, (x[:, 0] < 0, x[:, 0] >= 0), strict=True):
            if chosen.any():
                outputs[chosen] = head(x[chosen])
        return outputs


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, Clipping])
def test_a_weight_that_one_chunk_leaves_out_is_refused(optimizer):
    mine = replace(
        of(Experts), batch_size=4, optimizer=lambda parameters: optimizer(parameters, lr=0.1, weight_decay=0.1)
    )
    graph = graph_of(mine)
    with pytest.raises(ProgramError, match="got no gradient for one chunk"):
        play(mine, graph, make_plan(mine, graph, "ring", 2, 0, chunks=2), 8)


def test_sparse_gradients_are_summed_and_their_state_is_kept():
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 6, sparse=True), nn.Linear(6, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed((x.flatten(1)[:, :5].abs() * 3).long().clamp(max=8)).mean(1))

    mine = of(Sparse)
    graph = graph_of(mine)
    expected = plain_loop(mine, 5, 4).state_dict()
    for strategy, workers in (("single", 1), ("ring", 2), ("ps", 2)):
        chosen = make_plan(mine, graph, strategy, workers, 0, chunks=4)
        assert difference(play(mine, graph, chosen, 5).state, expected) <= 1e-9
        half = play(mine, graph, chosen, 3)
        assert difference(play(mine, graph, chosen, 5, checkpoint=half.checkpoint).state, expected) <= 1e-9


class Remembering(nn.Module):
    """Compares with what it has computed of the last three batches, which lies in a ring that whole batches fill."""

    def __init__(self, batch_size=16):
        super().__init__()
        self.linear = nn.Linear(128, CLASSES)
        self.register_buffer("queue", torch.zeros(3 * batch_size, CLASSES))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        found, place = self.linear(x.flatten(1)), int(self.place)
        near = found - 0.1 * self.queue.mean(0)
        assert len(self.queue) % len(x) == 0
        self.queue[place : place + len(x)] = found.detach()
        self.place[0] = (place + len(x)) % len(self.queue)
        return near


def test_one_worker_trains_what_computes_on_batches_of_one_size_alone():
    mine = replace(
        program("plain"), model=lambda: Remembering().double(), train_data=lambda: Subset(images(), range(32))
    )
    graph = graph_of(mine)
    played = play(mine, graph, make_plan(mine, graph, "single", 1, 0, chunks=1), 5)
    assert difference(played.state, plain_loop(mine, 5, 1).state_dict()) == 0
    with pytest.raises(PlanError, match="cut into 2 chunks: forward changes queue, place"):
        make_plan(mine, graph, "ring", 2, 0, chunks=2)
