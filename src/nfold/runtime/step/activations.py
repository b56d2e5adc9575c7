"""What segments of a cut model hand to each other in a step: activations, and the gradients that come back for them."""

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence

import torch

from nfold.capture.batches.sizes import Spec
from nfold.capture.cutting.captured import Captured
from nfold.core.schedule import RankSchedule
from nfold.core.tasks import ChunkTensor, Forward, Receive, Send
from nfold.runtime.parameters.buffers import as_bytes


class Activations:
    """The tensors of one rank and step that more than one segment uses. Messages are sent by other threads."""

    def __init__(self, schedule: RankSchedule, captured: Captured | None, device: torch.device) -> None:
        self._all_uses, self._captured, self._device = _uses(schedule), captured, device
        self._lock = threading.Lock()
        self.begin(())

    def begin(self, sizes: Sequence[int]) -> None:
        """Begin a step.

        Args:
            sizes: samples of each chunk.
        """
        self._sizes = sizes
        self._values: dict[ChunkTensor, torch.Tensor] = {}
        self._gradients: dict[ChunkTensor, dict[int, torch.Tensor]] = defaultdict(dict)
        """Contributions by where they came from; local segments first, then ranks."""
        self._arrived: dict[int, torch.Tensor] = {}
        """Host memory of Receives by id."""
        self._uses = Counter(self._all_uses)
        """Uses that are still to come."""

    def keep(self, made: ChunkTensor, value: torch.Tensor) -> None:
        """Keep what a forward made, detached, if anything uses it."""
        if self._uses[made]:
            self._values[made] = value.detach()

    def use(self, activation: ChunkTensor) -> torch.Tensor:
        """Return an activation, detached, and free it after its last use."""
        value = self._values[activation].detach()
        if self.is_last_use(activation):
            del self._values[activation]
        return value

    def is_last_use(self, tensor: ChunkTensor, together: Sequence[ChunkTensor] = ()) -> bool:
        """Count a use, and return whether none is left, of what is freed together with it neither."""
        with self._lock:
            self._uses[tensor] -= 1
            return not any(self._uses[each] for each in (tensor, *together))

    def add_gradient(self, activation: ChunkTensor, segment: int, gradient: torch.Tensor) -> None:
        """Keep what the backward of a segment of this rank found for one of its inputs."""
        self._gradients[activation][-1 - segment] = gradient

    def summed_gradient(self, activation: ChunkTensor) -> torch.Tensor:
        """Add the contributions in one order, whatever order they came in: own segments, last first, then ranks."""
        contributions = self._gradients.pop(activation)
        first, *others = sorted(contributions)
        total = contributions[first]
        for key in others:
            total = total + contributions[key]
        return total

    # Messages

    def outgoing(self, task: Send, activation: ChunkTensor) -> memoryview:
        """Return the bytes of an activation, or of its gradient."""
        value = self.use(activation) if task.purpose == "activation" else self.summed_gradient(activation)
        spec = self._spec(activation)
        spec.check(value, self._sizes[activation.chunk])
        return as_bytes(spec.pack(value.detach()).cpu())

    def incoming(self, task: Receive, activation: ChunkTensor) -> memoryview:
        """Return memory for received bytes."""
        host = self._arrived[task.id] = self._spec(activation).room(self._sizes[activation.chunk])
        return as_bytes(host)

    def combine(self, task: Receive, activation: ChunkTensor) -> None:
        """Take in what was received."""
        value = self._spec(activation).unpack(self._arrived.pop(task.id).to(self._device))
        if task.purpose == "activation":
            self._values[activation] = value
        else:
            self._gradients[activation][task.peer] = value

    def _spec(self, activation: ChunkTensor) -> Spec:
        assert self._captured is not None, "a cut model needs its capture"
        return self._captured.spec(activation.name)


def _uses(schedule: RankSchedule) -> Counter[ChunkTensor]:
    """How often a step uses each tensor of a chunk on this rank: as an input, or to send it."""
    uses: Counter[ChunkTensor] = Counter()
    for task in schedule.tasks:
        if isinstance(task, Forward):
            uses.update(ChunkTensor(name, task.chunk) for name in schedule.segments[task.segment].inputs)
        elif isinstance(task, Send) and isinstance(task.data, ChunkTensor) and task.purpose == "activation":
            uses[task.data] += 1
    return uses
