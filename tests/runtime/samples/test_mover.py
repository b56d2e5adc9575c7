"""Samples move among nodes: each is there once, as it was, and no message is left that nobody waits for."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moving_nodes import nodes_with

from nfold.core import codec
from nfold.core.residency import SampleMove
from nfold.errors import ClusterError, InternalError, PeerLost, ProgramError, RunError
from nfold.node_data import LocalFiles
from nfold.runtime.rank.sample_moving import SampleMoving
from nfold.runtime.samples import fetching
from nfold.runtime.samples.mover import Mover
from nfold.runtime.samples.sample_store import SampleStore

WAIT_S = 10.0


def items(first, count, width=3):
    return [(torch.full((width,), float(number)), number) for number in range(first, first + count)]


def written(folder, names):
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"in {name}")
    return LocalFiles(folder, list(names), lambda path: (path.read_text(), path.name))


def test_items_are_on_the_other_node_afterwards(tmp_path):
    with nodes_with(tmp_path, items(0, 5), items(5, 3)) as nodes:
        moved = nodes.move([SampleMove(source=0, target=1, spans=((1, 3), (4, 5)))])
        assert nodes.stores[1].numbers() == ((1, 3), (4, 5))
        for number in (1, 2, 4):
            inputs, target = nodes.data[1][number]
            assert (inputs.tolist(), target) == ([float(number)] * 3, number)
        assert nodes.data[1][6][1] == 6
        assert [each.num_received for each in moved] == [0, 3]
        assert moved[0].sent_bytes == moved[1].received_bytes == nodes.stores[1].used_bytes


def test_files_travel_with_their_names(tmp_path):
    mine, others = written(tmp_path / "a", ["1.txt", "2.txt"]), written(tmp_path / "b", [])
    with nodes_with(tmp_path, mine, others) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
        assert [nodes.data[1][number] for number in range(2)] == [("in 1.txt", "1.txt"), ("in 2.txt", "2.txt")]


def test_all_may_send_to_all_at_once_and_in_several_orders(tmp_path):
    with nodes_with(tmp_path, items(0, 40), items(40, 40), items(80, 40)) as nodes:
        for moving in range(2):
            nodes.move(
                [
                    SampleMove(source=source, target=target, spans=((first, first + 10),), epoch=epoch)
                    for source in range(3)
                    for place, target in enumerate(other for other in range(3) if other != source)
                    for epoch, first in [(place, 40 * source + 20 * place + 10 * moving)]
                ],
                moving,
            )
        for node, data in enumerate(nodes.data):
            came = [number for first, end in data.store.numbers() for number in range(first, end)]
            assert len(came) == 40
            assert not {number // 40 for number in came} & {node}
            assert all(data[number][1] == number for number in came)


def test_what_came_is_not_asked_for_again_and_can_be_sent_on(tmp_path):
    with nodes_with(tmp_path, items(0, 10), [], []) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 6),))])
        nodes.begin_anew()
        moved = nodes.move(
            [SampleMove(source=0, target=1, spans=((0, 8),)), SampleMove(source=1, target=2, spans=((0, 4),))]
        )
        assert [each.num_received for each in moved] == [0, 2, 4]
        assert nodes.data[2][3][1] == 3


def test_files_are_sent_on_by_whom_they_came_to(tmp_path):
    mine, none, other = (written(tmp_path / name, names) for name, names in (("a", ["1.txt"]), ("b", []), ("c", [])))
    with nodes_with(tmp_path, mine, none, other) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 1),))])
        nodes.move([SampleMove(source=1, target=2, spans=((0, 1),))], 1)
        assert nodes.data[2][0] == ("in 1.txt", "1.txt")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_moves_bring_each_sample_once(tmp_path_factory, data):
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=2, max_size=4))
    owners = [node for node, count in enumerate(sizes) for _ in range(count)]
    targets = [data.draw(st.integers(0, len(sizes) - 1)) for _ in owners]
    moves = [
        SampleMove(
            source=owner, target=target, spans=((number, number + 1),), epoch=data.draw(st.sampled_from([None, 0, 3]))
        )
        for number, (owner, target) in enumerate(zip(owners, targets, strict=True))
        if owner != target
    ]
    parts = [items(sum(sizes[:node]), count) for node, count in enumerate(sizes)]
    with nodes_with(tmp_path_factory.mktemp("nodes"), *parts) as nodes:
        moved = nodes.move(moves)
        for node, store in enumerate(nodes.stores):
            came = {number for first, end in store.numbers() for number in range(first, end)}
            assert came == {number for number, target in enumerate(targets) if target == node != owners[number]}
            assert moved[node].num_received == len(came)


def test_samples_larger_than_a_piece_come_whole(tmp_path):
    with nodes_with(tmp_path, items(0, 3, width=70_000), []) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 3),))], link_bytes_per_s=1e6)
        assert all(torch.equal(nodes.data[1][number][0], nodes.data[0][number][0]) for number in range(3))


def test_the_next_epoch_is_sent_before_later_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_ASKS", 1)
    monkeypatch.setattr(fetching, "FIRST_COUNT", 1)
    monkeypatch.setattr(fetching, "ASK_FOR_BYTES", 1)
    order = []

    class Read(list):
        def __getitem__(self, index):
            order.append(index)
            return super().__getitem__(index)

    with nodes_with(tmp_path, Read(items(0, 8)), []) as nodes:
        spans = [
            SampleMove(source=0, target=1, spans=((6 - 2 * epoch, 8 - 2 * epoch),), epoch=epoch) for epoch in (3, 1, 2)
        ]
        nodes.move([*spans, SampleMove(source=0, target=1, spans=((6, 8),))])
    assert order == [6, 7, 4, 5, 2, 3, 0, 1]


def test_a_reader_waits_for_a_sample_that_is_on_its_way(tmp_path):
    with nodes_with(tmp_path, items(0, 2), []) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2),))], bytes_per_s=0)
        read, found = threading.Event(), []

        def wait():
            found.append(nodes.data[1][1])
            read.set()

        threading.Thread(target=wait).start()
        assert not read.is_set()
        for mover in movers:
            mover.limit(None)
        assert read.wait(WAIT_S)
        assert found[0][1] == 1
        assert [mover.wait().num_received for mover in movers] == [0, 2]


def test_a_sample_that_nobody_sends_is_our_own_mistake(tmp_path):
    with nodes_with(tmp_path, items(0, 2), []) as nodes, pytest.raises(InternalError, match="sample 1 is neither"):
        nodes.data[1][1]


def test_moves_of_strangers_are_our_own_mistake(tmp_path):
    with nodes_with(tmp_path, items(0, 2), []) as nodes, pytest.raises(InternalError, match="member 5"):
        nodes.movers([SampleMove(source=0, target=5, spans=((0, 2),))])


def test_a_stopped_move_ends_with_nothing_on_its_way(tmp_path):
    with nodes_with(tmp_path, items(0, 2000), []) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2000),))], bytes_per_s=0)
        for mover in movers:
            mover.stop()
            mover.limit(None)
        came = [mover.wait() for mover in movers][1].num_received
        assert came == nodes.stores[1].numbers()[0][1] < 2000


def test_one_ask_is_on_its_way_until_somebody_knows_how_large_samples_are(tmp_path):
    with nodes_with(tmp_path, items(0, 200), []) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 200),))], bytes_per_s=0)
        for mover in movers:
            mover.stop()
        for mover in movers:
            mover.limit(None)
        assert [mover.wait() for mover in movers][1].num_received == fetching.FIRST_COUNT


def test_ranks_that_come_to_rest_do_not_wait_for_what_is_sent_slowly(tmp_path):
    move = SampleMove(source=0, target=1, spans=((0, 50),))
    order = {"members": [0, 1], "moves": [codec.encode(move)], "needed": None, "link_bytes_per_s": None}
    order |= {"num_begun": 50, "brought": []}
    pace = {"move_bytes_per_s": 0, "ahead_bytes": 0, "quiet_s": 0.0, "settle_s": 0.0}
    with nodes_with(tmp_path, items(0, 50), []) as nodes:
        ranks = []
        for transport, data in zip(nodes.transports, nodes.data, strict=True):
            process: Any = SimpleNamespace(
                resident=data,
                orders=SimpleNamespace(fail=lambda error: None),
                channel=SimpleNamespace(send=lambda message: None),
            )
            ranks.append(SampleMoving(process, transport))
            ranks[-1].begin_beside({**order, **pace})
        resting = [threading.Thread(target=rank.rest, daemon=True) for rank in ranks]
        for thread in resting:
            thread.start()
        for thread in resting:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in resting)


def test_a_move_that_begins_when_its_peer_is_lost_fails(tmp_path):
    with nodes_with(tmp_path, items(0, 2), []) as nodes:
        nodes.transports[1].lose(0, "it was killed")
        told = []
        transport, data = nodes.transports[1], nodes.data[1]
        mover = Mover(
            transport, [0, 1], 0, [SampleMove(source=0, target=1, spans=((0, 2),))], data, on_failure=told.append
        )
        with pytest.raises(PeerLost, match="it was killed"):
            mover.wait()
        assert [type(each) for each in told] == [PeerLost]


def test_a_closed_move_lets_go_of_readers(tmp_path):
    with nodes_with(tmp_path, items(0, 2), []) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2),))], bytes_per_s=0)
        raised = threading.Event()

        def wait():
            with pytest.raises(RunError, match="generation ended"):
                nodes.data[1].wait_for_samples([0])
            raised.set()

        threading.Thread(target=wait).start()
        for mover in movers:
            mover.close()
        assert raised.wait(WAIT_S)
        nodes.begin_anew()
        nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
        assert nodes.data[1][1][1] == 1


def test_a_lost_peer_ends_it_and_the_next_generation_goes_on(tmp_path):
    with nodes_with(tmp_path, items(0, 50), []) as nodes:
        told = []
        moves = [SampleMove(source=0, target=1, spans=((0, 50),))]
        movers = nodes.movers(moves, bytes_per_s=0, on_failure=told.append)
        nodes.transports[1].lose(0, "it was killed")
        with pytest.raises(PeerLost, match="it was killed"):
            movers[1].wait()
        movers[0].close()
        assert [type(each) for each in told] == [PeerLost]
        nodes.begin_anew()
        assert nodes.move(moves)[1].num_received == 50


def test_a_loss_is_told_to_steps_and_to_samples(tmp_path):
    with nodes_with(tmp_path, items(0, 5), []) as nodes:
        told = []
        nodes.transports[1].on_failure(told.append)
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 5),))], bytes_per_s=0)
        nodes.transports[1].on_failure(told.append)
        nodes.transports[1].lose(0, "it was killed")
        with pytest.raises(PeerLost):
            movers[1].wait()
        assert len(told) == 1
        movers[0].close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda path: path.write_text("other, and longer"),
            r"2\.txt was written to after .* it had 8 bytes, and has 17",
        ),
        (lambda path: path.unlink(), r"2\.txt cannot be read: No such file"),
        (lambda path: (path.unlink(), path.mkdir()), r"2\.txt is no file"),
    ],
    ids=["changed", "missing", "folder"],
)
def test_files_that_are_others_by_now_are_refused(tmp_path, change, said):
    mine, others = written(tmp_path / "a", ["1.txt", "2.txt"]), written(tmp_path / "b", [])
    with nodes_with(tmp_path, mine, others) as nodes:
        change(tmp_path / "a" / "2.txt")
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2),))])
        with pytest.raises(ProgramError, match=said):
            movers[0].wait()
        movers[1].close()


def test_an_item_that_changes_between_two_targets_is_refused(tmp_path):
    data = items(0, 2)
    with nodes_with(tmp_path, data, [], []) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 2),))])
        data[1][0].add_(1)
        movers = nodes.movers([SampleMove(source=0, target=2, spans=((0, 2),))], 1)
        with pytest.raises(ProgramError, match=r"item 1 of train_data.* is another one"):
            movers[0].wait()
        for mover in movers[1:]:
            mover.close()


class Noisy(list):
    def __getitem__(self, index):
        return torch.rand(2), super().__getitem__(index)


def test_items_that_draw_are_not_sent(tmp_path):
    with nodes_with(tmp_path, Noisy(range(3)), []) as nodes:
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 2),))])
        with pytest.raises(ProgramError, match=r"item 0 of train_data.* draws random numbers"):
            movers[0].wait()
        movers[1].close()


def test_a_full_store_ends_it_with_both_sizes(tmp_path):
    with nodes_with(tmp_path, items(0, 9), []) as nodes:
        nodes.stores[1].close()
        nodes.stores[1] = nodes.data[1].store = SampleStore(tmp_path / "small", most_bytes=100)
        movers = nodes.movers([SampleMove(source=0, target=1, spans=((0, 9),))])
        with pytest.raises(ClusterError, match="it may hold 100 B and holds"):
            movers[1].wait()
        movers[0].close()


def test_files_that_come_to_items_are_refused_when_read(tmp_path):
    with nodes_with(tmp_path, written(tmp_path / "a", ["1.txt"]), items(1, 1)) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 1),))])
        with pytest.raises(ProgramError, match="sample 0 came as a file, and this node's data are list"):
            nodes.data[1][0]


def test_samples_count_as_no_bytes_of_steps(tmp_path):
    with nodes_with(tmp_path, items(0, 9), []) as nodes:
        nodes.move([SampleMove(source=0, target=1, spans=((0, 9),))])
        assert [(each.sent_bytes, each.received_bytes) for each in nodes.transports] == [(0, 0)] * 2
