"""Watches that a loss which reads weights past the outputs of the model reads those of the model that is trained."""

from typing import Any

from torch import nn

from nfold.capture.batches.example import GATE_SIZE
from nfold.capture.example_batches import program_batches
from nfold.capture.side_effects.weights_beside import weights_beside
from nfold.core.graph import ModelGraph
from nfold.errors import ProgramError
from nfold.program import Program


class OwnWeights:
    """The weights that a loss reads by itself, which must be those of the model that is trained."""

    def __init__(self, program: Program, model: nn.Module, dataset: Any, graph: ModelGraph) -> None:
        """Look for them in the model that was just built; only in one that is a single operator are there any."""
        self._program, self._model, self._dataset = program, model, dataset
        self._size = graph.only_samples or GATE_SIZE
        self._expected = self._found() if graph.capture == "opaque" else []

    @property
    def are_any(self) -> bool:
        """Whether there are any."""
        return bool(self._expected)

    def check(self) -> None:
        """Compare the weights that the loss reads with the model's, if it reads any. One forward pass of a sample.

        Raises:
            ProgramError: the loss reads another model now.
        """
        if self._expected and self._found() != self._expected:
            raise ProgramError(
                f"The loss reads {self._expected[0]} of another model than the one that this rank trains: all models "
                "that the program builds share what it finds them by (a global, say). Return what the loss needs from "
                "forward. Ranks that are processes (a script, without --debug) have a model each."
            )

    def _found(self) -> list[str]:
        device = next(self._model.parameters()).device
        example = program_batches(self._program, self._dataset, device)
        return weights_beside(self._model, self._program.loss, example.batch(self._size))
