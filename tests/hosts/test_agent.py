"""What an agent tells of what it cannot do."""

import socket

from nfold.hosts.agent.agent import Agent, AgentSettings
from nfold.runtime.control.channel import SocketChannel


def test_whatever_breaks_while_an_environment_is_made_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    near, far = map(SocketChannel, socket.socketpair())
    agent = Agent(near, ("127.0.0.1", 1), AgentSettings(addresses=(), token="t"))
    agent._wanted = {"lock": {"name": "my.lock", "text": "", "more": ""}}

    agent._make(tmp_path)

    told, _ = far.receive()
    near.close()
    far.close()
    assert told["is"] == "failed"
    assert told["why"].startswith("its environment cannot be made: ")
