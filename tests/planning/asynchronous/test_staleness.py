"""The rules of an asynchronous parameter server, event by event and under every order of arrival."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.errors import InternalError
from nfold.planning.asynchronous.held_shard import Cut, HeldShard
from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.planning.asynchronous.staleness import (
    NO_TICKET,
    Allowed,
    Answer,
    Apply,
    Asked,
    Pulled,
    Pushed,
    Refreshed,
    Shard,
    UpdatePart,
)


def asked(worker, clock=0, steps=9):
    return Asked(worker=worker, clock=clock, steps=steps)


def pushed(worker, ticket, version=0, weight=0.5):
    return Pushed(worker=worker, ticket=ticket, version=version, weight=weight)


def answer(worker, ticket, version=0, steps_done=0):
    return Answer(worker=worker, ticket=ticket, version=version, steps_done=steps_done)


def alone(worker, ticket, rate):
    return Apply(parts=(UpdatePart(worker=worker, ticket=ticket, weight=1.0),), rate=rate)


def shard(workers=2, bound=None, aware=False, first_step=0, steps=9):
    made = Shard(workers, bound=bound, staleness_aware=aware, first_step=first_step)
    assert made.handle(Allowed(steps=steps)) == []
    return made


def test_tickets_are_handed_out_in_order_to_whoever_asks():
    each = shard()
    assert each.handle(asked(1)) == [answer(1, 0)]
    assert each.handle(asked(0)) == [answer(0, 1)]
    assert each.handle(pushed(1, 0)) == [alone(1, 0, 0.5)]
    assert each.handle(asked(1, 1)) == [answer(1, 2, version=1)]


def test_a_gradient_weighs_what_its_samples_are_of_the_step_and_counts_the_updates_since_its_values():
    each = shard()
    for worker in (0, 1):
        each.handle(asked(worker))
    assert each.handle(pushed(0, 0, weight=0.75)) == [alone(0, 0, 0.75)]
    assert each.handle(pushed(1, 1, weight=0.25)) == [alone(1, 1, 0.25)]
    assert each.histogram == {0: 1, 1: 1}
    assert (each.version, each.steps_done) == (2, 1)


def test_the_staleness_aware_rate_is_divided_by_the_steps_that_the_gradient_is_old():
    each = shard(aware=True)
    for ticket in range(5):
        each.handle(pushed(0, ticket, version=ticket))
    assert each.handle(pushed(1, 5, version=0)) == [alone(1, 5, 0.5 / 2.5)], "5 updates by 2 workers are 2.5 steps"
    assert each.handle(pushed(1, 6, version=5)) == [alone(1, 6, 0.5)], "an update is half a step: as fresh as can be"


def test_values_wait_for_the_workers_own_last_gradient():
    each = shard()
    assert each.handle(Pulled(worker=0, clock=1, ticket=2)) == []
    assert each.handle(pushed(0, 0)) == [alone(0, 0, 0.5), answer(0, 2, version=1)]


def test_a_worker_ahead_of_the_bound_waits_for_the_slowest():
    each = shard(bound=1)
    for clock in (0, 1):
        assert len(each.handle(asked(0, clock))) == 1
        each.handle(pushed(0, clock, version=clock))
    assert each.handle(asked(0, 2)) == []
    assert each.handle(asked(1)) == [answer(1, 2, version=2, steps_done=1)]
    assert each.handle(pushed(1, 2, version=2)) == [alone(1, 2, 0.5), answer(0, 3, version=3, steps_done=1)]


def test_without_staleness_a_round_is_applied_as_one_in_the_order_of_its_slices():
    each = shard(bound=0)
    assert each.handle(asked(1)) == [answer(1, 0)]
    assert each.handle(pushed(1, 0, weight=0.6)) == []
    assert each.handle(asked(1, 1)) == []
    assert each.handle(asked(0)) == [answer(0, 1)]
    both = Apply(
        parts=(UpdatePart(worker=1, ticket=0, weight=0.6), UpdatePart(worker=0, ticket=1, weight=0.4)), rate=1.0
    )
    assert each.handle(pushed(0, 1, weight=0.4)) == [both, answer(1, 2, version=1, steps_done=1)]
    assert each.histogram == {0: 2}


def test_an_empty_slice_is_counted_and_not_applied():
    each = shard(bound=0)
    each.handle(pushed(0, 0, weight=1.0))
    assert each.handle(pushed(1, 1, weight=0.0)) == [alone(0, 0, 1.0)]
    assert (each.steps_done, each.histogram) == (1, {0: 1})
    each = shard()
    assert each.handle(pushed(1, 1, weight=0.0)) == []


def test_nothing_is_begun_that_was_not_allowed_and_the_end_is_told_when_all_is_applied():
    each = shard(steps=1)
    assert each.handle(asked(0, steps=1)) == [answer(0, 0)]
    assert each.handle(asked(1, steps=1)) == [answer(1, 1)]
    each.handle(pushed(0, 0))
    assert each.handle(asked(0, 1, steps=1)) == [], "another worker is still at it"
    assert each.handle(Refreshed(worker=0, steps=1)) == []
    done = each.handle(pushed(1, 1))
    assert done == [
        alone(1, 1, 0.5),
        answer(0, NO_TICKET, version=2, steps_done=1),
        answer(0, NO_TICKET, version=2, steps_done=1),
    ]
    assert each.handle(asked(1, 1, steps=1)) == [answer(1, NO_TICKET, version=2, steps_done=1)]


def test_nobody_begins_after_a_rest_before_everybody_has_risen():
    each = shard(steps=1)
    for worker in (0, 1):
        each.handle(asked(worker, steps=1))
        each.handle(pushed(worker, worker))
    assert each.handle(asked(0, 1, steps=2)) == [], "this shard's own rank still rests"
    assert each.handle(Allowed(steps=2)) == [], "the other worker still rests"
    assert each.handle(asked(1, 1, steps=1)) == [answer(1, NO_TICKET, version=2, steps_done=1)]
    assert each.handle(asked(1, 1, steps=2)) == [
        answer(0, 2, version=2, steps_done=1),
        answer(1, 3, version=2, steps_done=1),
    ]


def test_a_worker_is_given_nothing_that_its_own_rank_may_not_begin():
    each = shard(steps=2)
    assert each.handle(asked(0, steps=1)) == [answer(0, 0)]
    assert each.handle(asked(1, steps=2)) == [answer(1, 1)]
    each.handle(pushed(1, 1))
    assert each.handle(asked(1, 1, steps=2)) == [answer(1, 2, version=1)]
    each.handle(pushed(1, 2, version=1))
    assert each.handle(pushed(0, 0)) == [alone(0, 0, 0.5)]
    assert each.handle(asked(0, 1, steps=1)) == [answer(0, NO_TICKET, version=3, steps_done=1)]


def test_a_resumed_run_goes_on_with_the_next_ticket():
    each = shard(first_step=3)
    assert each.handle(asked(0)) == [answer(0, 6, steps_done=3)]


# Whole runs: some workers, two shards (of the first and the last worker's rank), messages that arrive in any order


@dataclass
class World:
    """Ranks that do what they are told, over a network that delivers in an order that the test draws."""

    workers: int
    bound: int | None
    rests: list[int]
    """Steps after which all rest; each rank goes on when it likes."""
    weights: list[float]
    mail: dict[tuple[int, int], list] = field(default_factory=dict)
    """By (worker, shard): requests in the order of sending; a worker's own come in order."""
    taken: list[int] = field(default_factory=list)
    applied: Counter = field(default_factory=Counter)
    rhythms: list[int] | None = None
    """For each rest, steps between snapshots on the way to it; None: there are none."""
    lag: int = 0

    def __post_init__(self):
        every = self.rhythms[0] if self.rhythms else 0
        self.steps = [SnapshotSteps(every, 0, self.rests[-1]) for _ in range(2)]
        self.tickets = [set(), set()]
        """Those that each shard has applied."""
        self.cuts = [[], []]
        self.giving = {}
        self.shards = [Shard(self.workers, bound=self.bound, staleness_aware=True) for _ in range(2)]
        self.holds = [HeldShard(self.shards[number], self.workers, self.steps[number]) for number in (0, 1)]
        self.ranks_of_shards = (0, self.workers - 1)
        self.clocks = [0] * self.workers
        self.holding = [{} for _ in range(self.workers)]
        self.resting = [True] * self.workers
        self.stops = [-1] * self.workers
        """Index of the rest that each worker works towards, or is at."""
        self.values_at = [set() for _ in self.rests]
        """What workers took with them into each rest."""

    def options(self):
        """What may happen next: a message arrives, a ticket is computed, a rank goes on after a rest."""
        arrivals = sorted(pair for pair, events in self.mail.items() if events)
        computed = [("finish", worker) for worker in range(self.workers) if self.is_ready(worker)]
        risen = [
            ("rise", worker)
            for worker in range(self.workers)
            if self.resting[worker] and self.stops[worker] + 1 < len(self.rests)
        ]
        return [*arrivals, *computed, *risen, *(("given", number) for number in sorted(self.giving))]

    def is_ready(self, worker):
        held = self.holding[worker]
        return "ticket" in held and len(held["versions"]) == 2

    def play(self, option):
        what, who = option
        if what == "finish":
            self.finish(who)
        elif what == "rise":
            self.rise(who)
        elif what == "given":
            self.holds[who].given(self.giving.pop(who))
            self.play_on(who)
        else:
            self.deliver(what, who)

    def rise(self, worker):
        self.resting[worker] = False
        self.stops[worker] += 1
        for number, rank in enumerate(self.ranks_of_shards):
            if rank == worker:
                if self.rhythms and self.stops[worker]:
                    self.steps[number].change(self.rhythms[self.stops[worker]], self.rests[self.stops[worker] - 1])
                self.handle(number, Allowed(steps=self.rests[self.stops[worker]]))
        self.ask(worker)

    def ask(self, worker):
        steps = self.rests[self.stops[worker]]
        self.send(worker, 0, Asked(worker=worker, clock=self.clocks[worker], steps=steps))

    def send(self, worker, number, event):
        self.mail.setdefault((worker, number), []).append(event)

    def deliver(self, worker, number):
        self.handle(number, self.mail[worker, number].pop(0))

    def handle(self, number, event):
        self.holds[number].take(event)
        self.play_on(number)

    def play_on(self, number):
        while (found := self.holds[number].next()) is not None:
            if isinstance(found, Cut):
                self.cut(number, found.step)
            else:
                self.apply(number, found)
            limits = [limit for each in (0, 1) if (limit := self.limit(each)) is not None]
            done = self.shards[0].steps_done  # which is what workers tell
            assert done <= min(limits, default=done), "so a loss costs no more than was asked for"

    def limit(self, number):
        """Another number of steps between snapshots may make the next one due before buddies must have the last."""
        if number in self.giving:
            return self.giving[number] + self.lag
        return self.steps[number].next_after(self.cuts[number][-1] if self.cuts[number] else 0)

    def cut(self, number, step):
        self.cuts[number].append(step)
        whole = {ticket for ticket in range(step * self.workers) if self.weights[ticket % self.workers]}
        assert self.tickets[number] == whole, "a snapshot has all slices of the steps before it, and no other"
        self.holds[number].give(step, self.lag)
        self.giving[number] = step

    def apply(self, number, event):
        commands = self.shards[number].handle(event)
        self.shards[number].validate()
        for command in commands:
            if isinstance(command, Apply):
                self.applied[number] += len(command.parts)
                self.tickets[number] |= {part.ticket for part in command.parts}
        for command in commands:
            if not isinstance(command, Apply):
                self.take(command, number)

    def take(self, command, number):
        worker = command.worker
        held = self.holding[worker]
        if number == 0 and command.ticket == NO_TICKET:
            self.holding[worker] = {"rest": command.version}
            self.send(worker, 1, Refreshed(worker=worker, steps=command.steps_done))
        elif number == 0:
            assert self.bound is None or self.clocks[worker] - min(self.clocks) <= self.bound
            self.taken.append(command.ticket)
            self.holding[worker] = {"ticket": command.ticket, "versions": {0: command.version}}
            self.send(worker, 1, Pulled(worker=worker, clock=self.clocks[worker], ticket=command.ticket))
        elif "rest" in held:
            self.values_at[self.stops[worker]].add((held["rest"], command.version))
            self.resting[worker] = True
        else:
            held["versions"][1] = command.version

    def finish(self, worker):
        held, self.holding[worker] = self.holding[worker], {}
        weight = self.weights[held["ticket"] % self.workers]
        self.clocks[worker] += 1
        for number in (0, 1):
            version = held["versions"][number]
            self.send(worker, number, Pushed(worker=worker, ticket=held["ticket"], version=version, weight=weight))
        self.ask(worker)


@given(
    workers=st.integers(1, 4),
    bound=st.one_of(st.none(), st.integers(0, 3)),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    rhythms=st.one_of(st.none(), st.lists(st.integers(1, 4), min_size=4, max_size=4)),
    lag=st.integers(0, 3),
    empty=st.integers(0, 4),
    choices=st.lists(st.integers(0, 1000), min_size=1, max_size=200),
)
def test_every_ticket_once_within_the_bound_without_deadlock(workers, bound, lengths, rhythms, lag, empty, choices):
    rests = [sum(lengths[: index + 1]) for index in range(len(lengths))]
    weights = [0.0 if 0 < worker <= empty else 1.0 for worker in range(workers)]
    world = World(workers, bound, rests, weights, rhythms=rhythms, lag=min([lag, *(rhythms or ())]))
    turn = 0
    while options := world.options():
        if not all(world.resting) and all(what == "given" for what, _ in options):
            assert any(world.holds[who].waits_for_buddies for _, who in options), "so that it can hurry them"
        world.play(options[choices[turn % len(choices)] % len(options)])
        turn += 1
    assert all(world.resting), "everybody is told of the end"
    assert all(len(values) == 1 for values in world.values_at), "and all rest with the same values"
    assert world.taken == list(range(rests[-1] * workers))
    full = sum(weight > 0 for weight in weights) * rests[-1]
    for number, each in enumerate(world.shards):
        assert each.steps_done == rests[-1]
        assert sum(each.histogram.values()) == world.applied[number] == full
        assert bound != 0 or set(each.histogram) == {0}
        assert world.cuts[number] == list(world.steps[number].within(0, rests[-1]))
        if bound is not None:
            assert max(each.histogram) <= (2 * bound + 1) * (workers - 1)


def test_a_bound_that_is_broken_is_noticed():
    each = shard(bound=0)
    each.handle(pushed(0, 0))
    each.handle(pushed(0, 1))
    with pytest.raises(InternalError, match="further apart"):
        each.validate()


def test_a_shard_waits_for_buddies_where_it_holds_something_back_that_they_must_have_a_snapshot_for():
    held = HeldShard(shard(workers=1), 1, SnapshotSteps(2, 0, 9))
    for ticket in (0, 1):
        held.take(pushed(0, ticket, weight=1.0))
        assert isinstance(held.next(), Pushed)
        held._rules.handle(pushed(0, ticket, weight=1.0))
    assert held.next() == Cut(2)
    held.give(2, 1)
    assert not held.waits_for_buddies
    held.take(pushed(0, 3, weight=1.0))
    assert held.next() is None
    assert held.waits_for_buddies
    held.given(2)
    assert not held.waits_for_buddies
