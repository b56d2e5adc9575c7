"""Rules for operators that look up: embeddings, gathers, scatters, indices and masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nfold.capture.proof.rules.calls import Call, real_dim
from nfold.capture.proof.rules.kinds import SHARED, Kind, SampleRows, Sum, moved, plain, worst
from nfold.capture.proof.rules.pointwise import combined
from nfold.capture.proof.rules.rule_registry import rule

_PICKS = "picks samples of the batch by an index"
_MASKED = "a mask leaves another number of values in each batch"


@rule("embedding")
def embeds(call: Call) -> Kind:
    """(m, k) and indices (..) to (.., k)."""
    table, indices = call.kind("weight"), call.kind("indices")
    if bad := worst([table, indices]):
        return bad
    if call["scale_grad_by_freq"]:
        return call.mixed("divides gradients by how often a word is in the batch (scale_grad_by_freq)")
    if isinstance(indices, Sum):
        return call.mixed("looks up a sum over the samples")
    return call.unknown(_PICKS) if table != SHARED else (plain(indices) if isinstance(indices, SampleRows) else indices)


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embeds_bags(call: Call) -> Kind:
    """Bags that all hold as many indices begin at multiples of that."""
    table, indices, offsets = call.kind("weight"), call.kind("indices"), call.kind("offsets")
    weights = call.kind("per_sample_weights")
    if bad := worst([table, indices, offsets, weights]):
        return bad
    if table != SHARED or not (isinstance(indices, SampleRows) and isinstance(offsets, SampleRows)):
        return call.unknown("bags of unlike lengths are looked up")
    if call["scale_grad_by_freq"]:
        return call.mixed("divides gradients by how often a word is in the batch (scale_grad_by_freq)")
    even = offsets.index == indices.inner and indices.dim == 0 and weights in (SHARED, indices, plain(indices))
    even = even and call.samples.multiple(call["indices"].shape[0]) == indices.inner and not call["include_last_offset"]
    return SampleRows(dim=0) if even else call.unknown("bags of unlike lengths are looked up")


@rule("gather", "take_along_dim")
def gathers(call: Call) -> Kind:
    """Look up along one dimension, in the same place of all others."""
    source, index = call.kind("self"), call.kind("index")
    if bad := worst([source, index]):
        return bad
    dim = real_dim(call["dim"], call["index"].ndim)
    if isinstance(index, SampleRows) and index.index:
        return call.unknown("samples are looked up by their place in the batch")
    if isinstance(source, SampleRows) and source.dim == dim:
        return call.unknown(_PICKS)
    if isinstance(source, SampleRows) and isinstance(index, SampleRows):
        same = (source.dim, source.inner) == (index.dim, index.inner)
        return plain(source) if same else call.mixed("compares every sample with every other")
    if isinstance(index, SampleRows):
        return index if index.dim == dim else call.unknown(_PICKS)
    return call.unknown() if source != SHARED else SHARED


@rule("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
def scatters(call: Call) -> Kind:
    """Write along one dimension, in the same place of all others."""
    given = [call["self"], call["index"], call.get("src", call.get("source", call.get("value")))]
    kinds = [call.kind_of(each) for each in given]
    if bad := worst(kinds):
        return bad
    dim = real_dim(call["dim"], call["self"].ndim)
    rows = [kind for kind in kinds if isinstance(kind, SampleRows)]
    if not rows:
        return SHARED if all(kind == SHARED for kind in kinds) else call.unknown()
    if call.name.startswith("index"):
        return _scatters_alike(call, kinds, dim)
    same = len({(kind.dim, kind.inner) for kind in rows}) == 1 and not any(kind.index for kind in rows)
    fits = same and rows[0].dim != dim and all(isinstance(kind, SampleRows) for kind in kinds[:2])
    return plain(rows[0]) if fits else call.unknown(_PICKS)


def _scatters_alike(call: Call, kinds: Sequence[Kind], dim: int) -> Kind:
    """Write in the same places of each sample."""
    target, index, source = kinds
    if index != SHARED or not isinstance(target, SampleRows) or target.dim == dim:
        return call.unknown(_PICKS)
    fits = source == SHARED or (
        isinstance(source, SampleRows) and (source.dim, source.inner) == (target.dim, target.inner)
    )
    return plain(target) if fits else call.unknown(_PICKS)


@rule("index_select")
def picks(call: Call) -> Kind:
    """Look up entries of one dimension."""
    source, index = call.kind("self"), call.kind("index")
    if bad := worst([source, index]):
        return bad
    dim = real_dim(call["dim"], call["self"].ndim)
    if isinstance(source, SampleRows):
        return source if index == SHARED and source.dim != dim else call.unknown(_PICKS)
    return moved(plain(index), dim) if isinstance(index, SampleRows) and source == SHARED else index


@rule("masked_select", "nonzero", "masked_scatter", "nonzero_static", "unique_consecutive", "_unique2", "unique_dim")
def selects_by_value(call: Call) -> Kind:
    """Select by value."""
    kinds = [call.kind_of(tensor) for tensor in call.tensors()]
    return worst(kinds) or (SHARED if all(kind == SHARED for kind in kinds) else call.unknown(_MASKED))


@dataclass(frozen=True, slots=True)
class _Lookup:
    """An index in brackets: what each dimension is looked up by."""

    call: Call
    source: torch.Tensor
    indices: Sequence[torch.Tensor | None]

    @property
    def used(self) -> list[tuple[int, torch.Tensor]]:
        return [(dim, index) for dim, index in enumerate(self.indices) if index is not None]

    def kind(self) -> Kind:
        """Return the kind of what is found."""
        kinds = [self.call.kind_of(index) for _, index in self.used]
        source = self.call.kind_of(self.source)
        if bad := worst([source, *kinds]):
            return bad
        if any(index.dtype in (torch.bool, torch.uint8) for _, index in self.used):
            return (
                SHARED
                if source == SHARED and not any(isinstance(kind, SampleRows) for kind in kinds)
                else self.call.unknown(_MASKED)
            )
        if isinstance(source, Sum) or any(isinstance(kind, Sum) for kind in kinds):
            return self.call.unknown()
        places = self._places(kinds)
        if len(places) > 1:
            return self.call.mixed("compares every sample with every other")
        return self._found(source, kinds, next(iter(places), None))

    def _places(self, kinds: Sequence[Kind]) -> set[tuple[int, int]]:
        """Return where the indices, broadcast together, count samples: from the end, and the inner entries."""
        return {
            (kind.dim - index.ndim, kind.inner)
            for (_, index), kind in zip(self.used, kinds, strict=True)
            if isinstance(kind, SampleRows)
        }

    def _found(self, source: Kind, kinds: Sequence[Kind], place: tuple[int, int] | None) -> Kind:
        dims = [dim for dim, _ in self.used]
        broadcast = max(index.ndim for _, index in self.used)
        together = dims == list(range(dims[0], dims[0] + len(dims)))
        first = dims[0] if together else 0
        own = {dim for dim, kind in zip(dims, kinds, strict=True) if isinstance(kind, SampleRows) and kind.index == 1}
        if isinstance(source, SampleRows) and source.dim in dims:
            fits = source.dim in own and source.inner == 1 and place is not None and place[1] == 1
            is_other = any(dim in own for dim in dims if dim != source.dim)
            if not fits or is_other or place is None:
                return self.call.unknown(_PICKS)
            return SampleRows(dim=first + broadcast + place[0])
        if own or any(isinstance(kind, SampleRows) and kind.index for kind in kinds):
            return self.call.unknown("something is looked up by a sample's place in its batch")
        if isinstance(source, SampleRows):
            if place is not None:
                return self.call.mixed("compares every sample with every other")
            before = sum(dim < source.dim for dim in dims)
            at = source.dim - before + (broadcast if not together or dims[0] < source.dim else 0)
            return moved(plain(source), at)
        return SHARED if place is None else SampleRows(dim=first + broadcast + place[0], inner=place[1])


@rule("index", "_unsafe_index")
def indexes(call: Call) -> Kind:
    """Look up in brackets."""
    return _Lookup(call, call["self"], call["indices"]).kind()


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def index_puts(call: Call) -> Kind:
    """Write in brackets: by a mask in its own place, or where the samples are not looked up."""
    source, indices, values = call["self"], call["indices"], call["values"]
    kinds = [call.kind_of(each) for each in (source, values, *(index for index in indices if index is not None))]
    if bad := worst(kinds):
        return bad
    if all(kind == SHARED for kind in kinds):
        return SHARED
    masks = [index for index in indices if index is not None and index.dtype == torch.bool]
    if masks and len(indices) == 1 and kinds[1] == SHARED and _is_scalar(values):
        kind = kinds[2]
        if isinstance(kind, SampleRows) and isinstance(kinds[0], SampleRows):
            return plain(kinds[0]) if (kind.dim, kind.inner) == (kinds[0].dim, kinds[0].inner) else call.unknown()
    found = _Lookup(call, source, indices).kind() if not masks else call.unknown(_MASKED)
    if bad := worst([found]):
        return bad
    value = kinds[1]
    if not isinstance(found, SampleRows) or not isinstance(kinds[0], SampleRows):
        return call.unknown()
    if isinstance(value, SampleRows):
        ndim = _found_ndim(source, indices)
        if (value.dim - values.ndim, value.inner) != (found.dim - ndim, found.inner):
            return call.unknown()
    return plain(kinds[0]) if not isinstance(value, Sum) else combined(call, [values, source])


def _is_scalar(values: torch.Tensor) -> bool:
    return values.ndim == 0 or all(not isinstance(size, torch.SymInt) and size == 1 for size in values.shape)


def _found_ndim(source: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> int:
    used = [index for index in indices if index is not None]
    return source.ndim - len(used) + max(index.ndim for index in used)
