"""Tries an evaluation before training: a metric that raises would otherwise be noticed after an epoch."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset

from nfold.capture.building import build_model
from nfold.capture.random import LOCK, RandomState
from nfold.errors import ProgramError
from nfold.program import Program
from nfold.runtime.evaluation import evaluate

_FEW = 8


def rehearse(program: Program, train: Any, test: Any, device: torch.device) -> None:
    """Evaluate a few items of the test data with an untrained model; what it draws is drawn again by who trains.

    Raises:
        ProgramError: it cannot be done, although as many items of the training data can be evaluated. What is wrong
            with those is for the capture to say.
    """
    with LOCK:
        before, model = RandomState(), build_model(program, device)
        try:
            _rehearse(program, model, train, test, device)
        finally:
            before.restore()


def _rehearse(program: Program, model: nn.Module, train: Any, test: Any, device: torch.device) -> None:
    whole = min(program.batch_size, len(test))
    few = min(_FEW, whole)
    found = _objection(program, model, test, few, device)
    if found is not None and few < whole:
        found = _objection(program, model, test, whole, device)  # a metric may want more samples than a few
    if found is not None and _objection(replace(program, metrics={}), model, train, few, device) is None:
        raise found


def _objection(
    program: Program, model: nn.Module, dataset: Any, count: int, device: torch.device
) -> ProgramError | None:
    first = Subset(dataset, range(min(count, len(dataset))))
    try:
        evaluate(program, model, first, 0, 1, device)
    except ProgramError as error:
        return error
    return None
