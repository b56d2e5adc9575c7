"""What ranks hold becomes one file, and the parts are let go on the way."""

import torch
from torch import nn

from nfold.core.graph import ModelGraph, Operator, Parameter, Tensor
from nfold.core.placement import Reduction
from nfold.runtime.state import contribution, join, read_checkpoint
from nfold.runtime.weights import Weights


def test_parts_are_let_go_while_they_are_joined():
    model = nn.Linear(2, 3)
    operator = Operator(name="A", kind="A", inputs=("input",), outputs=("loss",), parameters=("weight", "bias"))
    loss = Tensor(name="loss", producer="A", consumers=(), bytes_per_sample=0.0)
    sizes = {"weight": 6, "bias": 3}
    graph = ModelGraph(
        operators=(operator,),
        tensors=(loss,),
        parameters=tuple(
            Parameter(name=name, num_elements=size, num_bytes=4 * size, dtype="float32", trainable=True, users=("A",))
            for name, size in sizes.items()
        ),
        capture="fx",
    )
    reductions = tuple(
        Reduction(
            name=name,
            parameters=(name,),
            num_elements=size,
            dtype="float32",
            item_bytes=4,
            members=(rank,),
            route="local",
        )
        for rank, (name, size) in enumerate(sizes.items())
    )
    weights, other = Weights(model, graph), nn.Linear(2, 3)
    parts = [
        contribution(0, reductions, {}, weights, ()),
        contribution(1, reductions, {}, Weights(other, graph), ()),
    ]
    whole = join(parts, weights, 5, 2)
    assert parts == []
    found = read_checkpoint(whole)
    assert (found.step, found.chunks, found.optimizer.tensors) == (5, 2, {})
    assert torch.equal(found.model["weight"], model.weight)
    assert torch.equal(found.model["bias"], other.bias), "which rank 1 updates"
