"""Test figures are means over samples, whatever the batches and the structure of targets."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from nets import NUM_SAMPLES, Noisy, images, program
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from nfold.capture.program.building import build_model
from nfold.errors import PeerLost, ProgramError
from nfold.runtime.checkpoint.state_collection import ByteRun, Collected
from nfold.runtime.rank.evaluation import evaluate, fill
from nfold.runtime.rank.rehearsal import rehearse
from nfold.runtime.rank.state_delivery import send_file

CPU = torch.device("cpu")


def error_rate(outputs: torch.Tensor, targets: dict[str, torch.Tensor]) -> torch.Tensor:
    return (outputs.argmax(1) != targets["label"]).double().mean()


def test_a_last_smaller_batch_counts_for_its_samples_only():
    data = [(image, {"label": label, "weight": 1.0}) for image, label in images()]
    mine = replace(
        program("plain"),
        loss=lambda outputs, targets: F.cross_entropy(outputs, targets["label"]),
        metrics={"error": error_rate},
    )
    model = build_model(mine, CPU)
    sums = [evaluate(mine, model, data, part, 2, CPU) for part in range(2)]
    outputs, labels = model(torch.stack([image for image, _ in images()])), torch.stack([x for _, x in images()])
    for name, expected in (
        ("test_loss", F.cross_entropy(outputs, labels)),
        ("error", (outputs.argmax(1) != labels).double().mean()),
    ):
        total, count = (sum(part[name][index] for part in sums) for index in (0, 1))
        assert count == len(data)
        assert total / count == pytest.approx(expected.item(), rel=1e-12)
    assert model.training


class Sampling(torch.nn.Module):
    """Draws in evaluation too, as variational models do."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(36, 4).double()

    def forward(self, inputs):
        found = self.last(inputs.flatten(1)[:, :36])
        return found + torch.randn_like(found)


def test_what_test_data_and_model_draw_is_the_same_on_any_number_of_ranks_and_again():
    drawing = lambda items: (torch.stack([x + torch.rand(()) for x, _ in items]), torch.stack([y for _, y in items]))  # noqa: E731
    mine = replace(program("plain"), model=Sampling, collate=drawing)
    model = build_model(mine, CPU)
    alone = evaluate(mine, model, Noisy(), 0, 1, CPU)
    torch.manual_seed(77)
    again = evaluate(mine, model, Noisy(), 0, 1, CPU)
    shared = [evaluate(mine, model, Noisy(), part, 2, CPU) for part in range(2)]
    assert again == alone
    assert sum(part["test_loss"][0] for part in shared) == pytest.approx(alone["test_loss"][0], rel=1e-12)


def test_a_module_is_filled_by_pieces_that_end_anywhere():
    wanted, found = (torch.nn.BatchNorm1d(5) for _ in range(2))
    with torch.no_grad():
        wanted.weight.copy_(torch.arange(5.0))
        wanted.running_var.fill_(3.0)
        wanted.num_batches_tracked.fill_(9)
    flat = {name: value.reshape(-1) for name, value in wanted.state_dict().items()}

    def runs():
        for name, values in flat.items():
            for start in range(0, values.numel(), 2):
                data = values[start : start + 2].view(torch.uint8).numpy().data
                yield ByteRun(name, start * values.itemsize, data)

    assert fill(found, runs()) is found
    assert all(torch.equal(value, wanted.state_dict()[name]) for name, value in found.state_dict().items())


class Reordered(torch.nn.Module):
    """Elements in memory in another order than they are counted in, and a constant with one element in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.weight = torch.nn.Parameter(torch.randn(2, 3).t())
        self.register_buffer("ones", torch.ones(1).expand(5))


def test_a_module_is_filled_whatever_the_order_of_its_elements_in_memory():
    wanted, found = Reordered(), Reordered()
    strides = {name: value.stride() for name, value in found.state_dict().items()}

    def runs():
        for name, value in wanted.state_dict().items():
            data = value.contiguous().view(-1).view(torch.uint8).numpy().data
            middle = 4 * (value.numel() // 2)
            yield from (ByteRun(name, 0, data[:middle]), ByteRun(name, middle, data[middle:]))

    fill(found, runs())
    for name, value in found.state_dict().items():
        assert torch.equal(value, wanted.state_dict()[name]), name
        assert value.stride() == strides[name]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "None"),
        ("0.9", "'0.9'"),
        (torch.ones(3), r"a tensor, float32\[3\]"),
        ([0.9], r"\[0\.9\]"),
    ],
)
def test_a_metric_that_is_no_number_is_told_with_what_it_is(found, said):
    mine = replace(program("plain"), metrics={"score": lambda outputs, targets: found})
    with pytest.raises(ProgramError, match=rf"the metric 'score' returned {said}\. It must return one number"):
        evaluate(mine, build_model(mine, CPU), images(), 0, 1, CPU)


# Before training


def broken(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such class")


def several(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if len(targets) < 9:
        raise ValueError("too few samples")
    return 1.0


class Unreadable(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        raise OSError(f"no file {index}")


def test_an_evaluation_that_works_draws_nothing_that_training_would_draw():
    mine = replace(program("plain"), batch_size=12, metrics={"drawn": lambda *_: torch.rand(())})
    before = torch.get_rng_state()
    rehearse(mine, images(), images(), CPU)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_metric_is_tried_with_a_whole_batch_before_it_is_refused():
    whole = NUM_SAMPLES // 2
    rehearse(replace(program("plain"), batch_size=whole, metrics={"auc": several}), images(), images(), CPU)
    with pytest.raises(ProgramError, match=r"the metric 'auc' raised ValueError: too few samples"):
        rehearse(replace(program("plain"), batch_size=8, metrics={"auc": several}), images(), images(), CPU)


def test_metrics_and_test_data_that_raise_are_refused():
    mine = replace(program("plain"), metrics={"score": broken})
    with pytest.raises(ProgramError, match=r"the metric 'score' raised KeyError: 'no such class'"):
        rehearse(mine, images(), images(), CPU)
    with pytest.raises(ProgramError, match=r"item 0 of test_data\(\) raised OSError: no file 0"):
        rehearse(program("plain"), images(), Unreadable(), CPU)
    narrow = TensorDataset(torch.ones(5, 1, 8, 8, dtype=torch.float64), torch.zeros(5, dtype=torch.int64))
    said = r"the model raised RuntimeError.* of test_data\(\), which are \(float64\[5, 1, 8, 8\], int64\[5\]\)"
    with pytest.raises(ProgramError, match=said):
        rehearse(program("plain"), images(), narrow, CPU)


@pytest.mark.parametrize("metric", [lambda outputs, targets: len(targets), lambda outputs, _: outputs.abs().sum()])
def test_a_metric_that_is_a_sum_is_refused(metric):
    mine = replace(program("plain"), metrics={"count": metric})
    with pytest.raises(
        ProgramError, match=r"the metric 'count' grows with the number of samples, as a sum does: it is "
    ):
        rehearse(mine, images(), images(), CPU)


class Confusion:
    """Adds up what it has seen."""

    def __init__(self):
        self.right = self.all = 0

    def __call__(self, outputs, targets):
        self.right += int((outputs.argmax(1) == targets).sum())
        self.all += len(targets)
        return self.right / self.all

    def of_these(self, outputs, targets):
        self(outputs, targets)
        return (outputs.argmax(1) == targets).float().mean()


def decaying(outputs, _, seen=[0.0]):  # noqa: B006
    seen[0] = 0.9 * seen[0] + 0.1 * float(outputs.abs().mean())
    return seen[0]


@pytest.mark.parametrize("metric", [Confusion(), decaying])
def test_a_metric_that_adds_up_over_calls_is_refused(metric):
    mine = replace(program("plain"), metrics={"adds": metric})
    with pytest.raises(ProgramError, match=r"the metric 'adds' keeps something from one call to the next: it was "):
        rehearse(mine, images(), images(), CPU)


def test_a_metric_that_writes_into_what_it_is_given_keeps_nothing():
    def likely(outputs, _):
        return outputs.sigmoid_().mean()

    rehearse(replace(program("plain"), metrics={"likely": likely}), images(), images(), CPU)


def test_a_metric_may_keep_what_does_not_show():
    rehearse(replace(program("plain"), metrics={"own": Confusion().of_these}), images(), images(), CPU)


def test_what_is_no_mean_over_samples_is_told():
    def largest(outputs, _):
        return outputs.abs().max()

    def accuracy(outputs, targets):
        return (outputs.argmax(1) == targets).float().mean()

    mine = replace(program("plain"), metrics={"largest": largest, "accuracy": accuracy})
    assert rehearse(mine, images(), images(), CPU) == ["largest"]


@pytest.mark.parametrize(
    "metric", [lambda outputs, _: outputs.abs().max(), lambda outputs, _: outputs.std(), lambda *_: 0.0, lambda *_: 3]
)
def test_a_metric_that_is_neither_mean_nor_sum_is_the_users_business(metric):
    rehearse(replace(program("plain"), metrics={"other": metric}), images(), images(), CPU)


def test_what_training_data_cannot_do_either_is_left_to_who_trains_with_them():
    narrow = TensorDataset(torch.ones(5, 1, 8, 8, dtype=torch.float64), torch.zeros(5, dtype=torch.int64))
    rehearse(program("plain"), narrow, narrow, CPU)


class Sent:
    """A coordinator that keeps what it is sent."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def send(self, message, blob=b""):
        self.data.append(bytes(blob))


def passing(names, broken=None):
    def runs():
        for name in names:
            yield ByteRun(name, 0, memoryview(torch.arange(3.0).view(torch.uint8).numpy()))
        if broken is not None:
            raise broken

    return Collected(b"header", runs())


def test_a_model_takes_the_weights_of_a_checkpoint_that_passes_by():
    channel, names = Sent(), ("model.weight", "optimizer.weight.momentum")
    has_file, model = send_file(channel, "checkpoint", passing(names), partial(torch.nn.RMSNorm, 3))
    assert has_file
    assert model.weight.tolist() == [0.0, 1.0, 2.0]
    assert [len(data) for data in channel.data] == [6, 12, 12]


@pytest.mark.parametrize("build", [partial(torch.nn.Linear, 2, 2), partial(torch.nn.Linear, "two", 2)])
def test_a_checkpoint_is_sent_though_no_model_takes_it(build):
    channel, names = Sent(), ("model.other", "model.more", "optimizer.weight.momentum")
    has_file, failure = send_file(channel, "checkpoint", passing(names), build)
    assert has_file
    assert isinstance(failure, Exception)
    assert len(channel.data) == 4


def test_a_checkpoint_that_does_not_come_is_not_sent():
    with pytest.raises(PeerLost):
        send_file(Sent(), "checkpoint", passing(["model.weight"], PeerLost("gone", 1)), partial(torch.nn.RMSNorm, 3))
