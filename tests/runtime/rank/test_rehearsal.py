"""What is tried before training: schedules to their end, and the last batch of the test data."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.rank.rehearsal import play_schedule, rehearse

CPU = torch.device("cpu")
CYCLE = torch.optim.lr_scheduler.OneCycleLR
TABLE = [0.1, 0.2, 0.3]


def data(count=25):
    return TensorDataset(torch.randn(count, 4), torch.arange(count) % 2)


def program(scheduler=None, **fields):
    return Program(
        model=lambda: nn.Linear(4, 2),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        scheduler=scheduler,
        train_data=data,
        batch_size=8,
        epochs=2,
        **fields,
    )


@pytest.mark.parametrize(
    ("scheduler", "steps", "lasts", "error"),
    [
        (lambda optimizer: CYCLE(optimizer, 0.2, total_steps=6), None, 6, "Tried to step 7 times"),
        (lambda optimizer: CYCLE(optimizer, 0.2, total_steps=8), None, None, ""),
        (lambda optimizer: CYCLE(optimizer, 0.2, total_steps=8), 9, 8, "Tried to step 9 times"),
        (lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: TABLE[step]), None, 2, "IndexErr"),
        (lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3), 5000, None, ""),
        (None, None, None, ""),
    ],
)
def test_a_schedule_is_played_for_all_steps_of_the_run(scheduler, steps, lasts, error):
    train, before = data(), torch.get_rng_state()
    found = play_schedule(program(scheduler), len(train), steps)["schedule_end"]
    assert torch.equal(before, torch.get_rng_state())
    if lasts is None:
        assert found is None
    else:
        assert found is not None
        assert found["steps"] == lasts
        assert error in found["error"]


def test_a_schedule_that_cannot_be_built_is_for_the_capture_to_tell():
    nothing = {"schedule_end": None, "schedule_fade": None, "rates": None}
    assert play_schedule(program(lambda optimizer: 1 / 0), len(data()), None) == nothing


@pytest.mark.parametrize(
    ("scheduler", "fade"),
    [
        (lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1), 15),
        (lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 200, gamma=0.1), None),
        (lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 960), 960),
        (lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10), None),
        (lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0), 0),
    ],
)
def test_where_a_schedule_comes_to_nothing_is_found(scheduler, fade):
    assert play_schedule(program(scheduler), len(data()), 960)["schedule_fade"] == fade


def test_a_metric_that_wants_more_than_the_last_test_batch_has_is_told_before_training():
    def spread(outputs, targets):
        if len(outputs) < 2:
            raise ValueError("a deviation needs two samples")
        return outputs.std()

    asked = program(test_data=lambda: data(17), metrics={"spread": spread})
    with pytest.raises(ProgramError, match="'spread' raised ValueError: a deviation needs two"):
        rehearse(asked, data(), data(17), CPU)
    rehearse(asked, data(), data(18), CPU)
    with pytest.raises(ProgramError, match="'spread' raised ValueError: a deviation needs two"):
        rehearse(asked, [], data(17), CPU)  # no samples live on this node


class Fixed(nn.Linear):
    def forward(self, rows):
        return super().forward(rows.view(8, 4))


def test_a_model_that_wants_all_of_a_batch_is_told_of_a_last_test_batch_with_fewer():
    asked = replace(program(test_data=data), model=lambda: Fixed(4, 2))
    rehearse(asked, data(24), data(16), CPU)
    with pytest.raises(ProgramError, match=r"shape '\[8, 4\]' is invalid .* items of test_data\(\), .*float32\[1, 4\]"):
        rehearse(asked, data(24), data(17), CPU)
