"""Evaluates the model that ranks train, and the averages of its weights: where it lies, or whole on rank 0."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nfold.capture.program.building import build_model
from nfold.core.options.averages import averaged
from nfold.machine.heap import give_back
from nfold.program import Program
from nfold.runtime.asynchronous.asynchronous_replica import AsynchronousReplica
from nfold.runtime.checkpoint.state_collection import Collected
from nfold.runtime.checkpoint.weight_averages import WeightAverages
from nfold.runtime.data.loaders import LoadersReader
from nfold.runtime.rank.evaluation import evaluate, fill
from nfold.runtime.step.replica import Replica

Sums = dict[str, list[float]]
Fetch = Callable[[], nn.Module | None]
"""Returns a whole module on rank 0; all ranks take part."""


@dataclass(frozen=True, slots=True)
class Evaluating:
    """All that one rank needs to evaluate."""

    program: Program
    replica: Replica | AsynchronousReplica
    dataset: Any
    device: torch.device
    reader: LoadersReader | None = None
    """Reads the same data in other processes; None: this one does."""

    def everywhere(self, averages: WeightAverages | None) -> Sums:
        """Return this rank's sums where all workers hold the whole model, and those of the averages, if any."""
        sums = self._part(self.replica.model)
        if averages is not None:
            with averages.in_place():
                sums |= _named(self._part(self.replica.model))
        return sums

    def on_rank_0(self, fetch: Fetch, fetch_averages: Fetch | None) -> Sums:
        """Return all sums on rank 0 and none elsewhere; no more than one whole model is in memory at a time."""
        sums = self._whole(fetch)
        return sums if fetch_averages is None else sums | _named(self._whole(fetch_averages))

    def filled(self, collected: Collected | None) -> nn.Module | None:
        """Return a module that has the collected weights; None on other ranks than 0."""
        return None if collected is None else fill(build_model(self.program, self.device), collected.runs)

    def _part(self, model: nn.Module) -> Sums:
        working = self.replica.plan.placement.working
        if self.replica.rank not in working:
            return {}
        part = working.index(self.replica.rank)
        return evaluate(self.program, model, self.dataset, part, len(working), self.device, self.reader)

    def _whole(self, fetch: Fetch) -> Sums:
        model = fetch()
        if model is None:
            return {}
        try:
            return evaluate(self.program, model, self.dataset, 0, 1, self.device, self.reader)
        finally:
            del model
            give_back()


def _named(sums: Sums) -> Sums:
    return {averaged(name): pair for name, pair in sums.items()}
