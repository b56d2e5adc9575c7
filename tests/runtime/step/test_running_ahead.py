"""A frozen front gets no gradient: it waits for the next rank all the same, and keeps nothing for a backward."""

import threading
import weakref
from dataclasses import replace
from functools import cache

from harness import difference, graph_of, placed_plan, plain_loop, play
from nets import program

from nfold.capture.cutting.captured import BoundSegment
from nfold.core.placement import Placement
from nfold.planning.reductions.buckets import buckets_of
from nfold.runtime.step.engine import TAG_WINDOW
from nfold.transport.generations.generation_transport import GenerationTransport

CHUNKS, FRONT, HEAD = 4, 0, 1


@cache
def graph():
    return graph_of(program("unused"))


def frozen_front():
    """All up to the only trained layer on the first rank, the rest on the second."""
    names = [operator.name for operator in graph().operators]
    (head,) = {user for each in graph().trained for user in each.users}
    owners = {name: (HEAD if place >= names.index(head) else FRONT,) * CHUNKS for place, name in enumerate(names)}
    placement = Placement(num_chunks=CHUNKS, world_size=2, owners=owners)
    return placed_plan(program("unused"), owners, 2, buckets_of(graph(), placement, "ring", 1 << 20))


def test_a_frozen_front_is_never_two_steps_ahead(monkeypatch):
    """The head begins when the front waits for it, or has gone through all steps without."""
    steps, gate, begun, leads = TAG_WINDOW + 6, threading.Event(), [0, 0], []
    receive = GenerationTransport.receive

    def posted(transport, *args):
        if transport.rank == FRONT:
            gate.set()
        receive(transport, *args)

    def each_step(rank, step):
        begun[rank] = step
        if rank == FRONT and step == steps - 1:
            gate.set()
        if rank == HEAD:
            assert gate.wait(60)
            leads.append(begun[FRONT] - step)

    monkeypatch.setattr(GenerationTransport, "receive", posted)
    play(program("unused"), graph(), frozen_front(), steps, each_step=each_step)
    assert max(leads) <= 1


def test_a_frozen_front_learns_what_one_device_does_over_short_batches_too():
    """An epoch is two batches of 16 and one of 2 samples: half of its chunks are empty."""
    mine = replace(program("unused"), train_data=lambda: [program("unused").train_data()[index] for index in range(34)])
    played = play(mine, graph(), frozen_front(), 7)
    assert difference(played.state, plain_loop(mine, 7, CHUNKS).state_dict()) <= 1e-9


def test_what_needs_no_backward_is_not_kept(monkeypatch):
    """Between two steps, as while a checkpoint is written, the front has none of the tensors that it made."""
    steps, made, left = 3, [], []
    fronts: set[threading.Thread] = set()
    call = BoundSegment.__call__

    def noted(segment, *values):
        outputs = call(segment, *values)
        if threading.current_thread() in fronts:
            made.extend(weakref.ref(each) for each in outputs)
        return outputs

    def each_step(rank, step):
        if rank == FRONT:
            fronts.add(threading.current_thread())
            left.append(sum(each() is not None for each in made))

    monkeypatch.setattr(BoundSegment, "__call__", noted)
    play(program("unused"), graph(), frozen_front(), steps, each_step=each_step)
    assert len(made) == steps * CHUNKS
    assert left == [0] * steps
