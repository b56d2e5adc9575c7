"""Of a cut model, each rank finds at later weights and in rare inputs that samples see each other in its own part."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from harness import CPU, graph_of, make_plan, placed_plan, play
from nets import CLASSES, program
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nfold.capture.capture import recapture
from nfold.capture.example_batches import sample_batches
from nfold.capture.independence.stage_trial import why_stage_unlike
from nfold.capture.program.building import build_model
from nfold.capture.side_effects.module_states import fresh_copies, is_freed
from nfold.core.placement import Placement
from nfold.core.schedule import Segment
from nfold.errors import ProgramError
from nfold.planning.operator_parts.splitting import split_graph
from nfold.planning.reductions.buckets import buckets_of
from nfold.runtime.guards.checked_loss import with_checked_loss
from nfold.runtime.guards.stage_trials import StageFlow, StageTrials

WIDTH, HIDDEN = 6, 9
FOUND = r"Found at step \d+, by comparing the samples of a chunk apart and together; at step \d+ it was still right"


def limited(out):
    """Within a limit that the first weights stay below; by the largest of the batch."""
    largest = float(out.detach().abs().max())
    return out * (8 / largest) if largest > 8 else out


def limited_by_tensor(out):
    """The same; the largest is a value between two operators."""
    largest = out.detach().abs().max()
    return limited_to(out, largest * 1.0)


def limited_to(out, largest):
    if largest > 8:
        out = out * (8 / largest)
    return out


class _Limit(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * min(1.0, 0.3 / float(gradient.abs().max()))


def limited_back(out):
    """The same of what comes back."""
    return _Limit.apply(out) if float(out.detach().abs().max()) > 0 else out


class Deep(nn.Module):
    """Three layers, and what mixes samples after one of them."""

    def __init__(self, after=-1, mixing=limited):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, CLASSES)
        self.after, self.mixing = after, mixing

    def forward(self, x):
        for place, layer in enumerate((self.first, self.middle, self.last)):
            x = layer(x)
            x = self.mixing(x) if place == self.after else x
            x = torch.tanh(x) * 4 if place < 2 else x
        return x


def growing(model, lr=50.0, **changes):
    """Return a program whose weights soon reach the limit."""
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(48, WIDTH, generator=generator), torch.arange(48) % CLASSES)
    fast = replace(program("plain", partial(torch.optim.SGD, lr=lr), 24), epochs=8, train_data=lambda: data)
    return replace(fast, model=model, loss=F.cross_entropy, **changes)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_cut_run_ends_where_the_weights_make_samples_see_each_other(after):
    mine = growing(partial(Deep, after))
    graph = graph_of(mine)
    assert "it decides on values" in graph.unproved
    with pytest.raises(ProgramError, match=rf"depends on the other samples of its batch.*{FOUND}"):
        play(mine, graph, make_plan(mine, graph, "pipeline", 2, 0, chunks=2), 16)


class Shared(Deep):
    """All samples share what one operator makes of a weight."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.last(harmless(self.first(x) * torch.sigmoid(self.scale)))


def test_what_all_samples_share_gets_all_of_its_gradient_in_parts():
    mine = growing(Shared, lr=0.1)
    graph = graph_of(mine)
    owners = {operator.name: (int(operator.name != "sigmoid"),) * 2 for operator in graph.operators}
    placement = Placement(num_chunks=2, world_size=2, owners=owners)
    plan = placed_plan(mine, owners, 2, buckets_of(graph, placement, "ring", 4096))
    assert play(mine, graph, plan, 3).losses == play(mine, replace(graph, unproved=""), plan, 3).losses


def in_parts(mine, graph):
    """Return a plan of two ranks that share each layer."""
    splits = {"first": 3, "middle": 3, "last": 2}
    parts = split_graph(graph, splits)
    owners = {operator.name: (place % 2,) * 2 for place, operator in enumerate(parts.operators)}
    placement = Placement(num_chunks=2, world_size=2, owners=owners)
    return replace(placed_plan(mine, owners, 2, buckets_of(parts, placement, "ring", 4096)), splits=splits)


def test_operators_in_parts_are_tried_with_the_rows_that_a_rank_has():
    mine = growing(partial(Deep, 1))
    graph = graph_of(mine)
    with pytest.raises(ProgramError, match=rf"depends on the other samples of its batch.*{FOUND}"):
        play(mine, graph, in_parts(mine, graph), 16)


def harmless(out):
    return out * 2 if float(out.detach().max()) > -1e9 else out


def test_operators_in_parts_give_no_alarm(monkeypatch):
    mine, found = growing(partial(Deep, 1, harmless), lr=0.1), []
    graph = graph_of(mine)

    def noting(*given):
        found.append("raised")
        found[-1] = why_stage_unlike(*given)
        return found[-1]

    monkeypatch.setattr("nfold.runtime.guards.stage_trials.why_stage_unlike", noting)
    plan = in_parts(mine, graph)
    assert play(mine, graph, plan, 3).losses == play(mine, replace(graph, unproved=""), plan, 3).losses
    assert set(found) == {""}
    assert len(found) > 10


def test_what_a_batch_has_as_a_whole_is_never_sent():
    """It would be another one for parts of the batch, whether samples see each other by it or not."""
    mine = growing(partial(Deep, 1, limited_by_tensor))
    graph = graph_of(mine)
    assert graph.unproved
    assert [tensor.name for tensor in graph.tensors if not tensor.bytes_per_sample] == ["loss"]
    with pytest.raises(ProgramError, match=rf"depends on the other samples of its batch.*{FOUND}"):
        play(mine, graph, make_plan(mine, graph, "pipeline", 2, 0, chunks=2), 16)


def test_what_comes_back_to_a_stage_is_compared_too():
    mine = growing(partial(Deep, 1, limited_back), lr=1.0)
    graph = graph_of(mine)
    assert graph.unproved
    with pytest.raises(ProgramError, match=r"added up over chunks, the gradient of .* differs.*Found at step"):
        play(mine, graph, make_plan(mine, graph, "pipeline", 2, 0, chunks=2), 16)


class Varied(nn.Module):
    """What is no alarm: layers that draw, normalise, decide on values, and lay samples otherwise."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(2, HIDDEN), nn.BatchNorm1d(HIDDEN)
        self.mix, self.last = nn.Linear(HIDDEN, HIDDEN), nn.Linear(3 * HIDDEN, CLASSES)
        self.scale = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        size, scale = len(x), torch.tanh(self.scale)
        x = torch.relu(self.first(x.reshape(3 * size, 2)))
        x = F.dropout(x + 0.1 * torch.randn_like(x), 0.2)
        x = x * 2 if bool((x.detach() > -1e9).all()) else x
        times_first = x.reshape(size, 3, HIDDEN).transpose(0, 1)
        x = torch.tanh(self.mix(times_first.reshape(3 * size, HIDDEN))) * scale
        x = self.norm(x.reshape(3, size, HIDDEN).permute(1, 2, 0))
        return self.last(x.flatten(1))


class Single(Varied):
    """Computes in one type only."""

    def forward(self, x):
        return super().forward(x) @ torch.eye(CLASSES)


@pytest.mark.parametrize("kind", [Varied, Single])
def test_ordinary_programs_give_no_alarm_and_compute_as_without(kind, monkeypatch):
    mine = growing(kind, lr=0.1)
    graph = graph_of(mine)
    assert graph.unproved
    base = make_plan(mine, graph, "pipeline", 2, 0, chunks=2)
    without = play(mine, replace(graph, unproved=""), base, 5)
    looked = []
    look = StageTrials.look
    monkeypatch.setattr(StageTrials, "look", lambda *given: looked.append(look(*given)))
    assert play(mine, graph, base, 5).losses == without.losses
    assert len(looked) >= 10


def staged(mine, after):
    """Return the model, and trials of the operators from one of them on, with what computes those."""
    graph = graph_of(mine)
    checked = with_checked_loss(mine, graph, 2)
    model, example = build_model(mine, CPU), sample_batches(mine.train_data())
    captured = recapture(model, checked.loss, example, graph)
    names = [operator.name for operator in captured.graph.operators]
    part = names[names.index(after) :]
    inputs, outputs = captured.boundary(part)
    segment = Segment(operators=tuple(part), inputs=inputs, outputs=outputs, backward=True)
    given = (checked, model, captured, [segment], example, CPU)
    return model, segment, StageTrials(*given, parameters=dict(model.named_parameters()), clock=lambda: 0.0)


def flow(segment, step, scale=1.0):
    """What flows into the last layers for a chunk of twelve."""
    generator = torch.Generator().manual_seed(step)
    inputs = {name: torch.randn(12, HIDDEN, generator=generator) for name in segment.inputs}
    inputs |= {"target": torch.arange(12) % CLASSES}
    inputs[segment.inputs[0]][5] *= scale
    return StageFlow(step=step, size=12, inputs=inputs, activation_gradients={}, read=None)


def test_activations_far_from_all_before_are_tried_when_they_come():
    model, segment, trials = staged(growing(partial(Deep, 2)), "last")
    for step in range(6):
        trials.look(model, 0, flow(segment, step))
    with pytest.raises(ProgramError, match=r"operators last \.\. loss compute of a sample depends.*at step 7"):
        trials.look(model, 0, flow(segment, 6, scale=1000.0))


def test_weights_of_other_ranks_are_not_copied():
    mine = growing(Deep)
    model, segment, trials = staged(growing(partial(Deep, 2)), "last")
    first = next(parameter for name, parameter in model.named_parameters() if name == "first.weight")
    first.data = torch.full((), float("nan")).expand(first.shape)
    trials.look(model, 0, flow(segment, 0))
    copied = fresh_copies(model, mine.model)()
    assert [name for name, each in copied.named_parameters() if is_freed(each)] == ["first.weight"]
    assert copied.first.weight is not first
    assert trials.take_notes() == ()
    assert first.dtype == torch.float32


class Sorted(Deep):
    """Samples lie in another order between two operators, and nobody can tell where."""

    def forward(self, x):
        x = self.first(x)
        x = x * 2 if bool((x.detach() > -1e9).all()) else x
        order = x[:, 0].argsort()
        return self.last(torch.tanh(self.middle(x[order])))[order.argsort()]


def test_what_cannot_be_tried_again_is_told_before_the_first_step():
    model, segment, trials = staged(growing(Sorted), "last")
    (note,) = trials.take_notes()
    assert note.startswith("it is not tried again that samples do not see each other in operator ")
    assert "nobody knows where in tanh the samples lie" in note
    trials.look(model, 0, flow(segment, 0))
    assert trials.take_notes() == ()


def test_a_trial_that_fails_is_told_once(monkeypatch):
    model, segment, trials = staged(growing(partial(Deep, 2)), "last")

    def fail(*given):
        raise RuntimeError("no copy today")

    monkeypatch.setattr("nfold.runtime.guards.stage_trials.why_stage_unlike", fail)
    for step in range(4):
        trials.look(model, 0, flow(segment, step))
    (note,) = trials.take_notes()
    assert note.startswith("from step 1 on it could not always be tried again that samples do not see each other: ")
    assert "no copy today" in note
