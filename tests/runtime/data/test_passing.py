"""Batches pass between processes with strides and shared memory as they were, and only the bytes that they show."""

import os
import socket

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from nfold.runtime.data.passing import Closed, _packed, receive, send


def passed(value):
    one, other = socket.socketpair()
    with one, other:
        send(one, value)
        return receive(other)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(3),
        torch.zeros(0, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(5).expand(4, 5),
        torch.arange(20)[3:17:2],
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.tensor([True, False]),
        torch.randn(3, requires_grad=True),
        torch.randn(7, dtype=torch.bfloat16)[1:],
    ],
    ids=lambda each: f"{str(each.dtype)[6:]}-{'x'.join(map(str, each.shape))}-{str(each.layout)[6:]}",
)
def test_a_tensor_arrives_as_it_was(tensor):
    found = passed(tensor)
    assert found.layout == tensor.layout
    assert found.dtype == tensor.dtype
    assert found.requires_grad == tensor.requires_grad
    assert torch.equal(found.to_dense(), tensor.to_dense())
    if tensor.layout is torch.strided:
        assert found.stride() == tensor.stride()


def test_what_shares_memory_shares_it_afterwards():
    words = torch.arange(12).reshape(3, 4)
    found = passed({"inputs": words[:, :-1], "targets": words[:, 1:], "same": words})
    found["same"][0, 1] = 99
    assert found["inputs"][0, 1] == found["targets"][0, 0] == 99


def test_structures_pass_as_they_are():
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    found = passed((packed, ["a", None], {"n": 3}))
    assert torch.equal(found[0].data, packed.data)
    assert torch.equal(found[0].batch_sizes, packed.batch_sizes)
    assert found[1:] == (["a", None], {"n": 3})


def test_a_part_of_a_large_tensor_takes_no_more_than_the_part():
    _, memory = _packed(torch.zeros(1 << 20)[1000:1010])
    assert os.fstat(memory).st_size < 256
    os.close(memory)


def test_no_descriptor_is_left():
    before = len(os.listdir("/proc/self/fd"))
    found = [passed(torch.zeros(100)) for _ in range(3)]
    with pytest.raises(AttributeError):
        passed(lambda: 0)
    del found
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_end_that_is_gone_is_told():
    one, other = socket.socketpair()
    other.close()
    with one, pytest.raises(Closed):
        send(one, torch.zeros(3))
    one, other = socket.socketpair()
    one.sendall(b"\0\0\0")
    one.close()
    with other, pytest.raises(Closed):
        receive(other)
