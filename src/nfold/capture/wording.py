"""Says what an error of torch means to somebody who knows their program, and not how nfold follows it."""

from nfold.capture.statements.holding import CannotHold

_HISTORY = ("differentiated Tensor", "does not require grad", "backward through the graph a second time")
_STAND_INS = ("Proxy", "proxy", "symbolic", "fx", "__cuda_array_interface__", "TORCH_LOGS")


def plainly(error: BaseException) -> str:
    """Return an error in few words that follow "it" or a line of the user's."""
    text = str(error).strip().split("\n")[0]
    if any(word in text for word in _HISTORY):
        return "takes a gradient (torch.autograd.grad), and the operators from which it is taken may not be cut apart"
    if isinstance(error, CannotHold):
        return f"cannot be an operator of its own, since it {text}"
    if any(word in text for word in _STAND_INS):
        return "needs the values of a tensor"
    return f"cannot be followed ({type(error).__name__}: {text})"
