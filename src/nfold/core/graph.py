"""The model as data: operators and the tensors between them, without torch.

A tensor has one producer and any number of consumers; a parameter belongs to every operator that uses it
(tied weights are one parameter with several users). Sizes are per sample, so one graph serves every batch.
"""

from dataclasses import dataclass
from typing import Literal

from nfold.core.condition import Condition

Capture = Literal["fx", "export", "opaque"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A value that one operator makes and others use."""

    name: str
    producer: str
    """Operator that makes it; empty for an input of the program."""
    consumers: tuple[str, ...]
    bytes_per_sample: float
    """Bytes that grow with the batch, per sample."""
    fixed_bytes: int = 0
    """Bytes that do not."""
    requires_grad: bool = True
    """Whether a gradient of the same size flows back in a training step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows [start, stop) of a parameter of the user's module: what a part of an operator uses of it."""

    parameter: str
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A trainable or frozen weight, under the first name that the module gives it."""

    name: str
    num_elements: int
    num_bytes: int
    dtype: str
    """torch's name without the prefix: `float32`."""
    trainable: bool
    users: tuple[str, ...]
    """Operators that use it."""
    has_gradient: bool = True
    """Whether a backward pass gives it one; an unused weight's gradient stays None."""
    rows: Rows | None = None
    """Which rows of which parameter of the module it is; None: a whole one."""
    sparse_dims: int = 0
    """In how many dimensions its gradient is sparse: 1 if it names rows, as an embedding's; 0: dense or complex."""
    written: bool = False
    """Whether forward itself writes to it, as an embedding with `max_norm` does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Channels:
    """How an operator can be cut into parts that make some of its output's channels each, one part after another.

    Its parameters, if it has any, have one row for each channel.
    """

    axis: int
    """Where its output counts channels: -1 for features, -3 for maps; counted from the end."""
    count: int
    groups: int = 1
    """Of a grouped convolution: cuts lie between groups."""
    inputs: int = 0
    """Channels of its input, of which a part needs those of its groups only; 0: every part needs all of them."""
    follows: bool = False
    """It computes each channel from the same one of its input, without weights: it is cut as its input is."""

    @property
    def units(self) -> int:
        """The most parts that the operator can be cut into: one for each channel, or for each group of channels."""
        return self.groups if self.groups > 1 else self.count

    def groups_of(self, start: int, stop: int) -> int:
        """Return how many groups channels [start, stop) are."""
        return (stop - start) // (self.count // self.groups) if self.groups > 1 else 1

    def taken(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return the channels of the input that output channels [start, stop) are computed from; None: all of them."""
        if not self.inputs:
            return None
        made, used = self.count // self.groups, self.inputs // self.groups
        return start // made * used, stop // made * used


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One row of the grid: the smallest piece of the model that may be placed by itself."""

    name: str
    kind: str
    """What it computes, for people: `Conv2d`, `relu`, `model`."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    flops_per_sample: float = 0.0
    """Forward floating-point operations per sample; 0 where unknown."""
    num_random: int = 0
    """How many random draws its forward makes (dropout)."""
    statistics: tuple[str, ...] = ()
    """Batch-norm modules whose running statistics it updates, in order of call."""
    state: tuple[str, ...] = ()
    """Modules whose other state, carried from one forward to the next, it changes or reads."""
    channels: Channels | None = None
    """None: it cannot be cut into parts."""
    whole: str = ""
    """Why it cannot, where one might expect it; empty where nobody would."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Modules whose operators must all be placed together, since each copy of what they keep would differ."""
        return (*self.statistics, *self.state)


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """Running statistics of one batch-norm module: a mean and a variance per channel."""

    module: str
    num_channels: int
    num_calls: int
    """Times a forward pass calls the module."""
    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelGraph:
    """Operators in one topological order, the tensors between them, and what is true of the program."""

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    parameters: tuple[Parameter, ...]
    statistics: tuple[Statistic, ...] = ()
    capture: Capture
    loss: str = "loss"
    """The tensor that training makes small."""
    indivisible: str = ""
    """Why the batch cannot be cut into chunks (a loss that is no sample mean, state carried from one forward to the
    next); empty when it can."""
    conditions: tuple[Condition, ...] = ()
    """What all data must meet for the batch to be cut; a chunk that does not ends the run."""
    unproved: str = ""
    """Why nobody could prove that samples do not see each other; empty if it is proved. Then it is tried, now and while
    the program trains."""
    update_scope: Literal["element", "parameter", "model"] = "element"
    """The smallest piece that the optimizer may update alone with the same result."""
    unseen_update: str = ""
    """Where the optimizer's code may look at all parameters at once although no trial has shown it: then its update is
    not cut either; empty if nowhere."""
    keeps_optimizer: Literal["pieces", "whole"] = "pieces"
    """Whether a checkpoint has the optimizer's state by parameter, or what its own `state_dict()` gives."""
    forgets: tuple[str, ...] = ()
    """What of the optimizer no checkpoint has, and nothing came of when it was tried."""
    unkept: str = ""
    """Why no checkpoint of the model or the optimizer can be gone on from, and what to do; empty if one can."""
    unweighable: str = ""
    """Why the optimizer cannot apply one worker's gradient by its share of a step; empty if it can."""
    clips_gradients: bool = False
    """Whether gradients are scaled by their norm over all trained parameters before the update."""
    averages_weights: bool = False
    """Whether an average of every weight is kept beside it."""
    static_gradients: bool = True
    """Whether the same parameters get a gradient in every step. An opaque model may skip some."""
    least_samples: int = 1
    """The fewest samples of a chunk for which the program computes, as batch statistics over one value need two."""
    least_samples_module: str = ""
    """The module that raised on fewer, by its path; empty if it was the model itself or the loss, or there is none."""
    least_samples_error: str = ""
    """What it raised."""
    only_samples: int = 0
    """Samples of the only batches on which the program computes, all of a step's; 0: it computes on any from
    `least_samples` up."""
    why_pairs: str = "it was not tried on one alone"
    """Why a chunk has two samples where its batch has, in a few words; empty if one alone gives the same."""
    whole: tuple[str, ...] = ()
    """The user's modules that no operator divides, since a trace cannot go into them or goes wrong there (`""` is the
    model itself), and statements that decide on values, by file and lines: `net.py:31-33`."""
    inexact_cut: str = ""
    """Why operators apart compute other bits than the whole model does; empty: they compute the same, or nobody has
    asked (`--exact`)."""
    notes: tuple[str, ...] = ()
    """What capture found and did about it, in plain words."""

    @property
    def is_split(self) -> bool:
        """Whether operators were cut into parts, so that the module's own forward no longer computes with the graph's
        parameters."""
        return any(parameter.rows for parameter in self.parameters)

    @property
    def why_updated_whole(self) -> str:
        """The reason why one optimizer must update all parameters together; empty: it may update them apart."""
        if self.unseen_update:
            return f"the optimizer may look at all parameters at once ({self.unseen_update})"
        return "the optimizer must see all parameters at once"

    @property
    def least_chunk(self) -> int:
        """Return the fewest samples of a chunk, where the batch has as many; see `chunk_sizes`."""
        return 2 if self.why_pairs else 1

    def operator(self, name: str) -> Operator:
        """Return an operator by its name, which must be one of the graph's. O(operators)."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def trained(self) -> tuple[Parameter, ...]:
        """Parameters that get a gradient."""
        return tuple(p for p in self.parameters if p.trainable and p.has_gradient)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters that get a gradient: what data parallelism reduces each step."""
        return sum(p.num_bytes for p in self.trained)
