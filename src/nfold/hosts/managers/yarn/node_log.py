"""The log of a container, which its node serves as long as the application runs."""

from nfold.errors import ClusterError
from nfold.hosts.managers.yarn.hadoop_rest import HadoopRest
from nfold.hosts.managers.yarn.service import Container

_MOST_LINES = 2
_MOST_BYTES = 4000
_BEGIN = "LogContents:"
_END = "End of LogType"


def last_lines_of(container: Container, manager: HadoopRest) -> list[str]:
    """Return the last lines that a container printed to its standard error; else where they would be, and why not.

    Args:
        container: that was granted.
        manager: knows the nodes' web addresses.
    """
    try:
        address = node_address(manager.ask("GET", "/ws/v1/cluster/nodes"), container.host)
        node = HadoopRest(f"{manager.base.partition(':')[0]}://{address}", manager.user, "YARN's NodeManager")
        path = f"/ws/v1/node/containers/{container.id}/logs/stderr.txt"
        return log_lines(node.read(path, size=str(-_MOST_BYTES)))[-_MOST_LINES:]
    except ClusterError as error:
        return [f"the log of {container.id} cannot be read: {error}"]


def node_address(answer: dict[str, dict[str, list[dict[str, str]]]], host: str) -> str:
    """Return the web address of a node.

    Args:
        answer: to a question for the nodes.
        host: as YARN calls it.

    Raises:
        ClusterError: it is gone.
    """
    for node in (answer.get("nodes") or {}).get("node") or []:
        if node.get("nodeHostName") == host and node.get("nodeHTTPAddress"):
            return node["nodeHTTPAddress"]
    raise ClusterError(f"YARN has lost node {host}")


def log_lines(text: str) -> list[str]:
    """Return the lines of a log, without what YARN writes around them."""
    lines = text.splitlines()
    begin = next((index + 1 for index, line in enumerate(lines) if line.startswith(_BEGIN)), 0)
    end = next((index for index, line in enumerate(lines) if line.startswith(_END)), len(lines))
    return [line.strip() for line in lines[begin:end] if line.strip()]
