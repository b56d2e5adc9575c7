"""Whether a batch has the shapes with which a model was cut: those that did not change then are fixed in it."""

from dataclasses import dataclass
from typing import Any

from nfold.capture.batches.example import SIZES, THIRD_SIZE, Example
from nfold.capture.batches.sizes import Spec, fit_tensor
from nfold.capture.batches.tree import dtype_name, paths_of, shapes_text
from nfold.errors import ProgramError


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of the tensors of a batch, inputs first."""

    specs: dict[tuple[Any, ...], Spec]
    """By the keys that lead to a tensor; those that follow no rule are left out, since nothing relies on them."""

    def check(self, batch: tuple[Any, Any], size: int, chunk: int) -> None:
        """Refuse a batch of other shapes.

        Raises:
            ProgramError: it has a tensor of another one.
        """
        for path, tensor in paths_of(batch):
            spec = self.specs.get(path)
            if spec is not None and tuple(tensor.shape) != spec.at(size):
                usual = f"{dtype_name(spec.dtype)}{list(spec.at(size))}"
                raise ProgramError(
                    f"{'targets' if path[0] else 'inputs'} of chunk {chunk} hold {shapes_text(tensor)}, and {size} "
                    f"samples had {usual} when the model was cut, which counts for all batches. Give all samples one "
                    "length: pad them in train_data() or in Program(collate=...)."
                )


def batch_shapes(example: Example) -> Shapes:
    """Return the shapes that batches have for any number of samples. Reads three small batches."""
    batches = [(size, dict(paths_of(example.batch(size)))) for size in (*SIZES, THIRD_SIZE)]
    fitted = {path: fit_tensor([(size, found.get(path)) for size, found in batches]) for path in batches[0][1]}
    return Shapes({path: spec for path, spec in fitted.items() if spec is not None})
