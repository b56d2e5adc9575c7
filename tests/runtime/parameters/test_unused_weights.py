"""What a rank of a cut model does not need takes no memory, and shows if it is used after all."""

import torch
from torch import nn

from nfold.core.graph import ModelGraph, Operator, Parameter, Rows, Tensor
from nfold.runtime.parameters.unused_weights import free_unused


def graph(*parameters: Parameter) -> ModelGraph:
    operator = Operator(name="A", kind="A", inputs=("input",), outputs=("loss",), parameters=())
    loss = Tensor(name="loss", producer="A", consumers=(), bytes_per_sample=0.0)
    return ModelGraph(operators=(operator,), tensors=(loss,), parameters=parameters, capture="fx")


def described(name: str, rows: Rows | None = None) -> Parameter:
    return Parameter(name=name, num_elements=1, num_bytes=4, dtype="float32", trainable=True, users=("A",), rows=rows)


def storage_bytes(model: nn.Module) -> int:
    return sum(
        {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in model.parameters()}.values()
    )


def test_a_foreign_parameter_keeps_its_shape_and_identity_and_reads_as_not_a_number():
    model = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Linear(100, 10, bias=False))
    before = dict(model.named_parameters())
    kept = before["1.weight"].detach().clone()
    free_unused(model, graph(described("0.weight"), described("1.weight")), before, frozenset({"0.weight"}))
    after = dict(model.named_parameters())
    assert all(after[name] is before[name] for name in before)
    assert after["0.weight"].shape == (100, 100)
    assert torch.equal(after["1.weight"], kept)
    assert storage_bytes(model) == 4 * (1 + 1000)
    assert model(torch.ones(2, 100)).isnan().all()


def test_of_a_parameter_in_parts_the_own_rows_stay():
    model = nn.Sequential(nn.Linear(10, 100, bias=False))
    whole = model[0].weight
    first, second = Rows(parameter="0.weight", start=0, stop=40), Rows(parameter="0.weight", start=40, stop=100)
    parts = {"0.weight[0]": nn.Parameter(whole.data[:40]), "0.weight[1]": nn.Parameter(whole.data[40:])}
    kept = whole.detach()[:40].clone()
    described_parts = (described("0.weight[0]", first), described("0.weight[1]", second))
    free_unused(model, graph(*described_parts), parts, frozenset({"0.weight[1]"}))
    assert torch.equal(parts["0.weight[0]"], kept)
    assert parts["0.weight[0]"].untyped_storage().nbytes() == 4 * 400
    assert parts["0.weight[1]"].isnan().all()
    assert storage_bytes(model) == 4


def test_a_frozen_table_of_whole_numbers_is_let_go_too():
    model = nn.Module()
    model.table = nn.Parameter(torch.arange(50), requires_grad=False)
    free_unused(model, graph(described("table")), dict(model.named_parameters()), frozenset({"table"}))
    assert (model.table.shape, model.table.untyped_storage().nbytes()) == ((50,), 8)
