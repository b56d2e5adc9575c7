"""What is special about meeting over torch.distributed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nfold.errors import ClusterError, TransportError
from nfold.transport.tcp import Listener
from nfold.transport.torch_distributed import StoreServer, connect_group


def test_the_timeout_names_who_is_missing() -> None:
    server = StoreServer("127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        groups = [pool.submit(connect_group, rank, 3, "127.0.0.1", server.address, "a", 0.5) for rank in (0, 2)]
        for group in groups:
            with pytest.raises(TransportError, match="did not meet rank 1"):
                group.result(10)
    server.close()


def test_ranks_with_another_token_do_not_meet() -> None:
    server = StoreServer("127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        groups = [pool.submit(connect_group, rank, 2, "127.0.0.1", server.address, str(rank), 0.5) for rank in (0, 1)]
        for rank, group in enumerate(groups):
            with pytest.raises(TransportError, match=f"did not meet rank {1 - rank}.*same token"):
                group.result(10)
    server.close()


def test_generations_follow_each_other_on_one_store() -> None:
    server = StoreServer("127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        for token in ("first", "second"):
            groups = [pool.submit(connect_group, rank, 2, "127.0.0.1", server.address, token, 10.0) for rank in (0, 1)]
            transports = [group.result(10) for group in groups]
            list(pool.map(lambda transport: transport.close(), transports))
    server.close()


def test_a_store_that_does_not_answer_is_named() -> None:
    with Listener("127.0.0.1") as listener:
        address = listener.address
    with pytest.raises(TransportError, match=rf"no store answers at 127.0.0.1:{address[1]} within 0.3 s"):
        connect_group(0, 2, "127.0.0.1", address, "a", 0.3)


def test_a_port_in_use_is_named() -> None:
    with Listener("127.0.0.1") as listener, pytest.raises(ClusterError, match=f"port {listener.address[1]}"):
        StoreServer(*listener.address)


def test_nccl_is_refused() -> None:
    with pytest.raises(ClusterError, match="'nccl' is not supported"):
        connect_group(0, 2, "127.0.0.1", ("127.0.0.1", 1), "a", 1.0, backend="nccl")
