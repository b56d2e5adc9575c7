"""Tells which rows of a dense gradient were touched, so that it can be given back as the sparse one that it was.

Minus zero is what adding changes nothing by: -0.0 + x is x for every x, and only the sum of minus zeros is one. So a
bucket that begins with -0.0 everywhere, and is added no other -0.0, has it after any reduction where nobody touched it,
and 0.0 where what was added cancels out. An optimizer such as SparseAdam moves the latter and leaves the former alone.
(Not so with complex numbers, which torch multiplies by one when it adds.)
"""

import torch


def untouched(gradient: torch.Tensor) -> None:
    """Set all elements of a dense gradient to -0.0, which marks them as touched by nobody."""
    gradient.fill_(-0.0)


def at_own_begin(view: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor that begins where its storage does.

    On a processor, torch adds a sparse tensor without dense dimensions to a view at twice the view's offset, which is
    somebody else's memory.
    """
    if not view.is_cpu or view.storage_offset() == 0:
        return view
    memory = view.detach().reshape(-1).view(torch.uint8).numpy()
    return torch.from_numpy(memory).view(view.dtype).view(view.shape)


def without_minus_zero(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient without -0.0, so that all that it names counts as touched."""
    if gradient.layout is not torch.sparse_coo:
        return gradient + 0.0
    values = gradient._values() + 0.0
    return torch.sparse_coo_tensor(
        gradient._indices(), values, gradient.shape, is_coalesced=gradient.is_coalesced(), check_invariants=False
    )


def touched_only(gradient: torch.Tensor, dims: int) -> torch.Tensor:
    """Return a dense gradient as a sparse one of its touched places.

    Args:
        gradient: with -0.0 where nobody touched it.
        dims: leading dimensions that a place has, at most those of the gradient; 0: it stays dense.
    """
    if not dims:
        return gradient
    dims = min(dims, gradient.ndim)
    is_touched = (gradient != 0) | ~torch.signbit(gradient)
    places = is_touched.reshape(*gradient.shape[:dims], -1).any(-1).nonzero(as_tuple=True)
    return torch.sparse_coo_tensor(
        torch.stack(places), gradient[places], gradient.shape, is_coalesced=True, check_invariants=False
    )
