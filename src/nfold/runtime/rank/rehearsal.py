"""Tries before training what would otherwise be noticed late: a metric that raises, a schedule that ends too early."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset

from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.program.building import build_model
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.rank.evaluation import evaluate
from nfold.runtime.rank.metric_trials import not_means

_FEW = 8
_LOOKS = 64
"""At how many steps a learning rate is looked at."""
_NOTHING = 1e-6
"""Of the largest learning rate, what is next to nothing."""


def play_schedule(program: Program, num_samples: int, steps: int | None) -> dict[str, Any]:
    """Play the schedule of the learning rate for all steps of a run. 5 to 20 us a step.

    Args:
        program: whose optimizer is built over its own weights, of which none is updated.
        num_samples: of an epoch.
        steps: of the run; None: the program's epochs.

    Returns:
        `schedule_end`: for how many steps it lasts, and what it raises then; None if it lasts for all, or there is
        none. `schedule_fade`: after how many steps its learning rate is next to nothing for the rest; None if it never
        is. `rates`: the learning rate of each group after some of the steps; None if it does not last, or there is
        none. What keeps optimizer or schedule from being built is for the capture to say.
    """
    nothing = {"schedule_end": None, "schedule_fade": None, "rates": None}
    if program.scheduler is None:
        return nothing
    steps = steps or program.epochs * -(-num_samples // program.batch_size)
    with LOCK:
        before, model = RandomState(), build_model(program, torch.device("cpu"))
        try:
            weights = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
            stepper = Stepping.of(program).build(weights)
        except Exception:
            return nothing
        finally:
            before.restore()
    rates = {}
    told: list[tuple[int, list[float]]] = []
    for step in sorted({steps * part // _LOOKS for part in range(_LOOKS)} | {steps}):
        if (lasts := stepper.lasts(step)) is not None:
            return nothing | {"schedule_end": {"steps": lasts[0], "error": lasts[1]}}
        told.append((step, [float(group.get("lr", 1.0)) for group in stepper.optimizer.param_groups]))
        rates[step] = max(map(abs, told[-1][1]))
    learning = [step for step, rate in rates.items() if rate > _NOTHING * max(rates.values())]
    fade = min((step for step in rates if step > max(learning, default=-1)), default=None)
    return nothing | {"schedule_fade": fade, "rates": told}


def rehearse(program: Program, train: Any, test: Any, device: torch.device) -> list[str]:
    """Evaluate a few items of the test data with an untrained model; what it draws is drawn again by who trains.

    Returns:
        Names of what is evaluated and is no mean over samples.

    Raises:
        ProgramError: it cannot be done, although as many items of the training data can be evaluated. What is wrong
            with those is for the capture to say.
    """
    with LOCK:
        before, model = RandomState(), build_model(program, device)
        try:
            return _rehearse(program, model, train, test, device)
        finally:
            before.restore()


def _rehearse(program: Program, model: nn.Module, train: Any, test: Any, device: torch.device) -> list[str]:
    whole = min(program.batch_size, len(test))
    few = min(_FEW, whole)
    found = _objection(program, model, test, few, device)
    if found is not None and few < whole:  # a metric may want more samples than a few, or a model all of a batch
        found = _objection(program, model, test, whole, device)
    found = found or _last_objection(program, model, test, device)
    if found is None:
        return not_means(program, model, test, device)
    if not len(train) or _objection(replace(program, metrics={}), model, train, program.batch_size, device) is None:
        raise found
    return []


def _last_objection(program: Program, model: nn.Module, dataset: Any, device: torch.device) -> ProgramError | None:
    """Evaluate the last batch where it is of fewer items than others: a metric may want more, or a model."""
    left = len(dataset) % program.batch_size
    return _tried(program, model, Subset(dataset, range(len(dataset) - left, len(dataset))), device) if left else None


def _objection(
    program: Program, model: nn.Module, dataset: Any, count: int, device: torch.device
) -> ProgramError | None:
    return _tried(program, model, Subset(dataset, range(min(count, len(dataset)))), device)


def _tried(program: Program, model: nn.Module, items: Any, device: torch.device) -> ProgramError | None:
    try:
        evaluate(program, model, items, 0, 1, device)
    except ProgramError as error:
        return error
    return None
