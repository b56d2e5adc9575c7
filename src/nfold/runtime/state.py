"""The whole model's state from what each rank holds, as one file that needs no nfold to read.

State belongs to parameters, not to ranks: every rank contributes what only it has, rank 0 joins it, and any number of
ranks under any plan can take it back. A checkpoint is a safetensors file:

    model.NAME             the plain module's state dict
    optimizer.NAME.KEY     whatever the optimizer keeps for that parameter
    metadata "nfold"       step, chunks, the optimizer's class and plain values, as JSON
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from nfold.core.placement import Reduction
from nfold.errors import CheckpointError
from nfold.runtime.agreement import Fingerprints
from nfold.runtime.updates import OptimizerState, Plain, UpdateKey, Updater, collect
from nfold.runtime.weights import Weights

_FINGERPRINTS = "fingerprints"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A training state: the parameters after `step` steps, and what it takes to go on."""

    step: int
    chunks: int
    model: dict[str, torch.Tensor]
    optimizer: OptimizerState


def contribution(
    rank: int,
    reductions: Iterable[Reduction],
    updaters: Mapping[UpdateKey, Updater],
    weights: Weights,
    buffer_modules: Iterable[str],
    untrained: Iterable[str] = (),
    fingerprints: Fingerprints | None = None,
) -> bytes:
    """Return what this rank alone must give to the whole model's state: safetensors bytes.

    Args:
        rank: this one.
        reductions: all.
        updaters: its own.
        weights: its own.
        buffer_modules: whose buffers it gives.
        untrained: parameters of no reduction that it gives, since rank 0 has let them go.
        fingerprints: of what other ranks hold as well.
    """
    parameters = weights.parameters
    owned = [name for reduction in reductions if reduction.members[0] == rank for name in reduction.parameters]
    owned += untrained
    tensors = {f"model.{name}": parameters[name].detach().cpu().clone() for name in owned}
    for module in buffer_modules:
        for name, buffer in _saved_buffers(weights.model.get_submodule(module)):
            tensors[".".join(part for part in ("model", module, name) if part)] = buffer.detach().cpu().clone()
    return _pack(
        tensors, weights.join(_own_state(rank, reductions, updaters, parameters)), {_FINGERPRINTS: fingerprints or {}}
    )


def fingerprints_of(part: bytes) -> Fingerprints:
    """Return the fingerprints in a contribution."""
    found: Fingerprints = _facts(part)[_FINGERPRINTS]
    return found


def _saved_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    left_out = module._non_persistent_buffers_set
    return ((name, buffer) for name, buffer in module.named_buffers(recurse=False) if name not in left_out)


def join(parts: list[bytes], weights: Weights, step: int, chunks: int) -> bytes:
    """Join all contributions into a checkpoint; what nobody contributed is as this rank's module has it.

    Args:
        parts: what ranks gave. The list is emptied on the way: the whole model need not be in memory twice.
        weights: this rank's.
        step: that was reached.
        chunks: of a step.
    """
    model = weights.model
    tensors = {f"model.{name}": tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    aliases = _aliases(model)
    optimizer = OptimizerState()
    while parts:
        loaded, state, _ = _unpack(parts.pop(0))
        for name, tensor in loaded.items():
            own = name.removeprefix("model.")
            whole = f"model.{weights.whole_name(own)}"
            for alias in aliases.get(whole, (whole,)):
                weights.put(tensors, alias, own, tensor)
        _merge(optimizer, state)
    return _pack(tensors, optimizer, {"step": step, "chunks": chunks})


def plain_model(checkpoint: bytes) -> bytes:
    """Return only the module's state dict: what `model.safetensors` holds."""
    tensors, _, _ = _unpack(checkpoint)
    return save_tensors(
        {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}
    )


def read_checkpoint(data: bytes) -> Checkpoint:
    """Return the training state that a checkpoint's bytes hold.

    Raises:
        CheckpointError: they hold something else.
    """
    try:
        tensors, optimizer, facts = _unpack(data)
        model = {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}
        return Checkpoint(facts["step"], facts["chunks"], model, optimizer)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"this is not a checkpoint of nfold, or it is damaged: {error}") from error


def _own_state(
    rank: int,
    reductions: Iterable[Reduction],
    updaters: Mapping[UpdateKey, Updater],
    parameters: Mapping[str, nn.Parameter],
) -> OptimizerState:
    """Optimizer state of which this rank is the first holder: its shares, or buckets whose first member it is."""
    sizes = {name: parameter.numel() for name, parameter in parameters.items()}
    own = {
        name
        for reduction in reductions
        if reduction.route == "server" or reduction.members[0] == rank
        for name in reduction.parameters
    }
    parts = [part for updater in updaters.values() for part in updater.state() if part[0].name in own]
    state = collect(parts, sizes)
    state.kind = next((updater.kind for updater in updaters.values()), "")
    for name, tensors in state.tensors.items():
        for key, tensor in tensors.items():
            if tensor.dim() and tensor.numel() == sizes[name]:
                tensors[key] = tensor.view(parameters[name].shape)
    return state


def _merge(into: OptimizerState, part: OptimizerState) -> None:
    """Shares of one parameter come from several ranks, each zero where the others have something."""
    for name, tensors in part.tensors.items():
        for key, tensor in tensors.items():
            have = into.tensors.setdefault(name, {})
            is_share = key in have and tensor.dim() > 0
            have[key] = have[key] + tensor if is_share else tensor
    into.scalars.update(part.scalars)
    into.groups.update(part.groups)
    into.kind = into.kind or part.kind


def _aliases(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Every key of the state dict, by the first key of the tensor that it shares."""
    first: dict[int, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        key = first.setdefault(id(tensor), f"model.{name}")
        aliases[key] = (*aliases.get(key, ()), f"model.{name}")
    return aliases


def _pack(tensors: dict[str, torch.Tensor], optimizer: OptimizerState, facts: dict[str, Any]) -> bytes:
    everything = dict(tensors)
    for name, state in optimizer.tensors.items():
        for key, tensor in state.items():
            everything[f"optimizer.{name}.{key}"] = tensor.detach().cpu().contiguous()
    plain = {**facts, "optimizer": optimizer.kind, "scalars": optimizer.scalars, "groups": optimizer.groups}
    contiguous = {name: tensor.contiguous() for name, tensor in everything.items()}
    return save_tensors(contiguous, metadata={"nfold": json.dumps(plain)})


def _unpack(data: bytes) -> tuple[dict[str, torch.Tensor], OptimizerState, dict[str, Any]]:
    facts = _facts(data)
    tensors = load_tensors(data)
    groups = {name: _with_tuples(group) for name, group in facts.pop("groups").items()}
    optimizer = OptimizerState(scalars=facts.pop("scalars"), groups=groups, kind=facts.pop("optimizer", ""))
    for name in [name for name in tensors if name.startswith("optimizer.")]:
        parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
        optimizer.tensors.setdefault(parameter, {})[key] = tensors.pop(name)
    return tensors, optimizer, facts


def _with_tuples(group: dict[str, Any]) -> dict[str, Plain]:
    """Return hyper-parameters as the optimizer had them, since JSON has no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}


def _facts(data: bytes) -> dict[str, Any]:
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    facts: dict[str, Any] = json.loads(header["__metadata__"]["nfold"])
    return facts
