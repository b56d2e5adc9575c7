"""Says what an error of torch means to somebody who knows their program, and not how nfold follows it."""

import re
import textwrap
import traceback
from collections.abc import Callable, Sequence

from nfold.capture.program.users_line import UNCHECKED, is_in_distributions
from nfold.capture.statements.holding import CannotHoldStatement

_HISTORY = ("differentiated Tensor", "does not require grad", "backward through the graph a second time")
_GRADIENT = "takes a gradient (torch.autograd.grad), and the operators from which it is taken may not be cut apart"
_SCRIPTED = "calls a function of torch.jit.script, into which nobody can look"
_TRANSFORMED = "calls torch.func (vmap, grad, jacrev ..), into which nobody can look"
_WHOLE = "the whole model is one operator"
_BATCH = "so only its batch can be spread over ranks"
_ALONE = "and its batch cannot be cut: it trains on one worker"
_STAND_INS = ("Proxy", "proxy", "symbolic", "fx", "__cuda_array_interface__", "TORCH_LOGS")


def plainly(error: BaseException) -> str:
    """Return an error of torch in a few plain words that follow "it" or a line of the user's."""
    text = str(error).strip().split("\n")[0]
    if any(word in text for word in _HISTORY):
        return _GRADIENT
    if "instead found type 'Standin'" in text:
        return _SCRIPTED
    if any("/torch/_functorch/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
        return _TRANSFORMED
    if "detach views in-place" in text:
        return "takes a part of a tensor out of its history in place: write part.detach() instead of part.detach_()"
    if isinstance(error, CannotHoldStatement):
        return f"cannot be an operator of its own, since it {text}"
    if any(word in text for word in _STAND_INS):
        return "needs the values of a tensor"
    return f"cannot be followed ({type(error).__name__}: {text})"


def told_held(name: str, refusal: BaseException) -> str:
    """Say that statements are one operator, and why."""
    why = first_line(refusal)
    verb = "are" if "-" in name.rpartition(":")[2] else "is"
    return f"{name} {verb} one operator, cut off before and after: {why}{_advice(why, refusal)}"


def _advice(why: str, refusal: BaseException) -> str:
    if _SCRIPTED in why:
        return ". Without @torch.jit.script it would be followed"
    if is_in_distributions(refusal.__cause__ or refusal):
        return f". {UNCHECKED} it would be followed"
    is_choice = _TRANSFORMED not in why and re.search(r"\bif\b", why.partition("` (")[0])
    return ". A choice between two values can be written as torch.where(condition, a, b)" if is_choice else ""


def told_whole(notes: Sequence[str], line_of_gradient: Callable[[], str], *, has_chunks: bool) -> list[str]:
    """Add that the whole model is one operator; where a gradient is taken that is one sentence, whatever was tried.

    Args:
        notes: what was tried.
        line_of_gradient: finds the user's line that takes one.
        has_chunks: whether the batch can be cut.
    """
    whole = f"{_WHOLE}, {_BATCH if has_chunks else _ALONE}"
    others = [note for note in notes if _GRADIENT not in note]
    if len(others) == len(notes):
        return [*notes, whole]
    line = line_of_gradient()
    place = f" ({line})" if line else ""
    return [*others, f"the program takes a gradient itself{place}, and what it is taken from may not be cut: {whole}"]


_MOST_LETTERS = 400


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, at most some of it."""
    return textwrap.shorten(str(error).strip().split("\n")[0], _MOST_LETTERS, placeholder=" ..")
