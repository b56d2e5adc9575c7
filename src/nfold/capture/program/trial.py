"""Tries the user's program once and turns what goes wrong into a message that says what, where and what to do."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from nfold.capture.batches.tree import shapes_text
from nfold.capture.program.calling import call
from nfold.capture.program.program_graph import Loss
from nfold.errors import ProgramError
from nfold.program import describe


def check_model(model: Any) -> nn.Module:
    """Return what the user's model function built.

    Raises:
        ProgramError: it is no module, or its weights do not exist yet.
    """
    if not isinstance(model, nn.Module):
        raise ProgramError(
            f"Program(model=...) must be a function that returns a torch.nn.Module, it returned "
            f"{type(model).__name__}. Return the module itself, not a class or a tuple."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise ProgramError(
            "Program(model=...) returned a module of torch.jit.script or torch.jit.trace, whose operators cannot be "
            "told apart or computed in chunks. Return the plain module."
        )
    lazy = [name for name, parameter in model.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise ProgramError(
            f"{len(lazy)} weights of {type(model).__name__} have no size yet, {lazy[0]} first. "
            "Call the model once on an example inside the function that builds it."
        )
    wide = [name for name, tensor in _saved(model) if tensor.dtype == torch.complex128]
    if wide:
        raise ProgramError(
            f"{wide[0]} of {type(model).__name__} is complex128, which a file of weights (safetensors) cannot "
            "hold. Use complex64, or keep the real and the imaginary part (torch.view_as_real)."
        )
    sparse = [name for name, tensor in _saved(model) if tensor.layout is not torch.strided]
    if sparse:
        weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        advice = (
            "Train its values as a dense parameter, and put the sparse tensor together in forward."
            if sparse[0] in weights
            else "A buffer that does not change need not be in it: register_buffer(.., persistent=False)."
        )
        raise ProgramError(
            f"{sparse[0]} of {type(model).__name__} is sparse, which a file of weights (safetensors) cannot hold. "
            f"{advice}"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ProgramError(f"{type(model).__name__} has no trainable parameter, so there is nothing to train.")
    return model


def _saved(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, value) for name, value in model.state_dict().items() if isinstance(value, torch.Tensor))


def try_step(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> torch.Tensor:
    """Compute the loss of one batch and its gradients.

    Raises:
        ProgramError: forward or the loss raised, or the loss is not a scalar that depends on the weights.
    """
    value = try_loss(try_forward(model, batch[0]), batch[1], loss)
    try_backward(model, value)
    return value


def try_backward(model: nn.Module, value: torch.Tensor) -> None:
    """Compute the gradients of a loss.

    Raises:
        ProgramError: the backward pass, or a hook in it, raised.
    """
    try:
        value.backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ProgramError(f"the backward pass of {type(model).__name__} raised {describe(error)}.") from error


def try_forward(model: nn.Module, inputs: Any) -> Any:
    """Return the model's outputs.

    Raises:
        ProgramError: forward raised.
    """
    given = shapes_text(inputs)
    try:
        return call(model, inputs)
    except Exception as error:
        module = innermost(model, error)
        where = f" in {module!r} ({type(model.get_submodule(module)).__name__})" if module else ""
        raise ProgramError(
            f"{type(model).__name__}.forward raised {describe(error)}{where}. Its input was {given}, a batch of items "
            f"of train_data. {_advice(error)}"
        ) from error


_TOO_FEW = "Expected more than 1 "
"""How torch begins what it says of statistics over a single value."""
_LONE = (
    "That layer normalises over one value, which leaves nothing of it: give it larger maps or more samples, or leave "
    "it out."
)
_OF_CODE = (AttributeError, NameError, ImportError, ZeroDivisionError, OSError, NotImplementedError)
"""Errors that no shape is the cause of."""
_FIT = (
    "Make the two fit: the batch comes first. Several inputs are one tuple or dict of each item: a tuple goes by "
    "position where forward needs as many arguments, a dict by keyword where forward takes several arguments and "
    "names all its keys, or with Program(keywords=True)."
)


def _advice(error: Exception) -> str:
    """Say what to do about an error of forward; whatever the shapes of its input are, some have other causes."""
    if _TOO_FEW in str(error):
        return _LONE
    is_of_inputs = isinstance(getattr(error, "obj", None), (tuple, list, dict))  # whose attribute was asked for
    return "Mend forward: it fails on one device, too." if isinstance(error, _OF_CODE) and not is_of_inputs else _FIT


def innermost(model: nn.Module, error: BaseException) -> str:
    """Return the path of the innermost module in whose call an error was raised; empty if that is the model."""
    names = {id(module): name for name, module in model.named_modules()}
    found, trace = "", error.__traceback__
    while trace is not None:
        found = names.get(id(trace.tb_frame.f_locals.get("self")), found)
        trace = trace.tb_next
    return found


def try_loss(outputs: Any, target: Any, loss: Loss) -> torch.Tensor:
    """Return the loss of outputs.

    Raises:
        ProgramError: the loss raised, or is not a scalar that depends on the weights.
    """
    name = getattr(loss, "__name__", type(loss).__name__)
    given = f"outputs {shapes_text(outputs)} and targets {shapes_text(target)}"
    try:
        value = loss(outputs, target)
    except Exception as error:
        raise ProgramError(
            f"the loss {name} refused {given}: {describe(error).rstrip('.')}. Make the model's last layer or the "
            "dataset's targets fit the loss."
        ) from error
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.ndim != 0:
        raise ProgramError(
            f"the loss {name} must return a scalar tensor, the mean over the samples that it is given; for {given} "
            f"it returned {shapes_text(value)}. Use reduction='mean', or .mean() at its end."
        )
    if not value.requires_grad:
        raise ProgramError(
            f"the loss {name} does not depend on any trainable parameter, so there is nothing to train: for {given} "
            "it returned a tensor without a gradient. Look for .detach(), .item() or no_grad on the way to it."
        )
    return value
