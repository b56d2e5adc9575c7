"""Averages are those of torch's AveragedModel over the weights that steps leave, bit for bit, wherever they lie."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from harness import CPU, graph_of, make_plan, placed_plan, play, random_owners, read_checkpoint, with_more
from nets import program
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph, Parameter
from nfold.core.options.averages import Averages
from nfold.core.placement import Placement
from nfold.errors import ProgramError
from nfold.planning.reductions.buckets import buckets_of
from nfold.runtime.checkpoint.checkpoint_format import Offer, StatePart
from nfold.runtime.checkpoint.weight_averages import WeightAverages
from nfold.runtime.parameters.weights import Weights

STEPS, CHUNKS = 5, 4
WISHES = {
    "ema": Averages(decay=0.7),
    "swa": Averages(kind="swa", start_step=1),
    "ema with buffers": Averages(decay=0.7, every=2, use_buffers=True),
    "swa with buffers": Averages(kind="swa", use_buffers=True),
    "swa of epochs": Averages(kind="swa", every="epoch"),
}
PER_EPOCH = 3


def averaging(wish, net="residual"):
    return replace(program(net), averages=WISHES[wish])


@pytest.fixture(scope="module")
def graphs():
    return cache(lambda net: graph_of(averaging("ema", net)))


def plan_of(way, mine, graph):
    strategy, _, number = way.partition(" ")
    if strategy in ("single", "ring", "ps"):
        workers, servers = map(int, number.split("+"))
        return make_plan(mine, graph, strategy, workers, servers, CHUNKS)
    owners = random_owners(graph, CHUNKS, 3, int(number))
    placement = Placement(num_chunks=CHUNKS, world_size=3, owners=owners)
    return placed_plan(mine, owners, 3, buckets_of(graph, placement, "ring", 2048))


def average_of(checkpoint, names):
    found = read_checkpoint(checkpoint)
    return {name: found.average(name, 0, found.model([name])[name].numel()) for name in names}


@cache
def weights_after(graph, way, net, steps):
    """What the steps leave where nothing is averaged."""
    mine = program(net)
    return play(mine, graph, plan_of(way, mine, graph), steps).state


def expected(graph, wish, way, net, steps=STEPS):
    averages, own = WISHES[wish], build_model(program(net), CPU)
    ema = get_ema_multi_avg_fn(averages.decay) if averages.kind == "ema" else None
    model = AveragedModel(own, multi_avg_fn=ema, use_buffers=averages.use_buffers)
    for step in range(1, steps + 1):
        if averages.is_due(step, PER_EPOCH):
            own.load_state_dict(weights_after(graph, way, net, step))
            model.update_parameters(own)
    return model.module.state_dict()


def check_equal(found, wanted):
    for name, tensor in wanted.items():
        assert torch.equal(found[name].view(tensor.shape), tensor), name


@pytest.mark.parametrize("way", ["single 1+0", "ring 3+0", "ps 2+1", "placed 1"])
@pytest.mark.parametrize("wish", with_more(("ema",), ("ema", "swa with buffers")))
def test_averages_are_torchs_of_the_weights_that_steps_leave(graphs, wish, way):
    mine, graph = averaging(wish), graphs("residual")
    played = play(mine, graph, plan_of(way, mine, graph), STEPS)
    check_equal(played.state, weights_after(graph, way, "residual", STEPS))
    check_equal(average_of(played.checkpoint, played.state), expected(graph, wish, way, "residual"))


@pytest.mark.parametrize(
    ("wish", "net"), [*((wish, "residual") for wish in WISHES), ("ema", "tied"), ("ema", "unused")]
)
def test_every_wish_is_kept(graphs, wish, net):
    mine, graph = averaging(wish, net), graphs(net)
    way = "ring 3+0" if net == "residual" else "placed 2"
    played = play(mine, graph, plan_of(way, mine, graph), STEPS)
    check_equal(average_of(played.checkpoint, played.state), expected(graph, wish, way, net))


@pytest.mark.parametrize("wish", ["ema", "swa with buffers", "swa of epochs"])
def test_a_run_goes_on_with_its_averages_on_other_ranks_too(graphs, wish):
    mine, graph = averaging(wish), graphs("residual")
    same = plan_of("ring 2+0", mine, graph)
    whole = play(mine, graph, same, STEPS)
    stopped = play(mine, graph, same, 3)
    names = whole.state.keys()
    gone_on = play(mine, graph, same, STEPS, checkpoint=stopped.checkpoint)
    check_equal(average_of(gone_on.checkpoint, names), average_of(whole.checkpoint, names))

    held = play(mine, graph, plan_of("placed 3", mine, graph), 3, checkpoint=stopped.checkpoint)
    check_equal(average_of(held.checkpoint, names), average_of(stopped.checkpoint, names))
    more = play(mine, graph, plan_of("placed 3", mine, graph), STEPS, checkpoint=stopped.checkpoint)
    found, wanted = average_of(more.checkpoint, names), average_of(whole.checkpoint, names)
    assert all(torch.allclose(found[name], wanted[name], rtol=1e-9, atol=1e-12) for name in names)


def test_before_the_first_average_a_checkpoint_has_none(graphs):
    mine = replace(averaging("ema"), averages=Averages(start_step=4))
    graph = graphs("residual")
    plan = plan_of("ring 2+0", mine, graph)
    stopped = play(mine, graph, plan, 4)
    assert read_checkpoint(stopped.checkpoint).average("fc.weight", 0, 1) is None
    gone_on = play(mine, graph, plan, 5, checkpoint=stopped.checkpoint)
    check_equal(average_of(gone_on.checkpoint, gone_on.state), gone_on.state)


def test_a_checkpoint_without_averages_is_refused(graphs):
    plain, mine = program("residual"), averaging("ema")
    stopped = play(plain, graphs("residual"), plan_of("single 1+0", plain, graphs("residual")), 2)
    with pytest.raises(ProgramError, match=r"step 2 has no average of .*Begin a new run"):
        play(
            mine, graphs("residual"), plan_of("single 1+0", mine, graphs("residual")), 3, checkpoint=stopped.checkpoint
        )


# In the place of the weights


class Constant(torch.nn.Module):
    """A buffer with one element in memory, and one that forward puts another in the place of."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.register_buffer("ones", torch.ones(1).expand(5))
        self.register_buffer("seen", torch.zeros(2))


def test_the_model_has_averages_for_a_while_and_then_its_weights_again(graphs):
    model = build_model(program("residual"), CPU)
    averages = WeightAverages(Averages(decay=0.5), PER_EPOCH, Weights(model, graphs("residual")))
    averages.update(1)
    with torch.no_grad():
        model.fc.weight.add_(1.0)
        model.norm.running_mean.add_(1.0)
    averages.update(2)
    own = {name: each.clone() for name, each in model.state_dict().items()}
    memory = model.fc.weight.data_ptr()
    with pytest.raises(ZeroDivisionError), averages.in_place():  # noqa: PT012  it is about what is inside, too
        assert torch.equal(model.fc.weight, own["fc.weight"] - 0.5)
        assert torch.equal(model.norm.running_mean, own["norm.running_mean"]), "buffers are the model's"
        raise ZeroDivisionError
    check_equal(model.state_dict(), own)
    assert model.fc.weight.data_ptr() == memory


def test_buffers_are_those_that_the_model_has_by_now():
    model = Constant()
    parameters = tuple(
        Parameter(name=name, num_elements=each.numel(), num_bytes=0, dtype="float32", trainable=True, users=())
        for name, each in model.named_parameters()
    )
    graph = ModelGraph(operators=(), tensors=(), parameters=parameters, capture="opaque")
    averages = WeightAverages(Averages(every=2, kind="swa"), PER_EPOCH, Weights(model, graph))
    for step in (1, 2, 3):
        model.seen = torch.full((2,), float(step))
        averages.update(step)
    part = StatePart("seen", (2,), 0, model.seen)
    (found,) = averages.instead(Offer([part], [], {})).parts
    assert found.values.tolist() == [2.0, 2.0], "as when the weights were averaged"
    with averages.in_place():
        assert model.seen.tolist() == [2.0, 2.0]
    assert model.seen.tolist() == [3.0, 3.0]
    assert model.ones.stride() == (0,)
