"""Where the job's token waits for containers: a file of its own in the cluster's file system.

What stands in a service's text (command, environment, contents of files) can be read by everybody who can ask the
ResourceManager for it. A file that the text only names is read by YARN in the name of its owner.
"""

import contextlib
import urllib.parse
from pathlib import Path
from typing import Protocol

from nfold.errors import ClusterError
from nfold.hosts.managers.yarn.cluster_facts import ClusterFacts
from nfold.hosts.managers.yarn.hadoop_rest import HadoopRest
from nfold.transport.connecting.token_file import write_token


class TokenFile(Protocol):
    """One file that only its owner can read."""

    uri: str
    """By which YARN finds it."""

    def write(self, token: str) -> None:
        """Make it.

        Raises:
            ClusterError: it cannot be written.
        """
        ...

    def remove(self) -> None:
        """Delete it. Safe to call again; raises as `write`."""
        ...


def token_file(facts: ClusterFacts, user: str, name: str) -> TokenFile:
    """Return the file for a service's token; nothing is written yet.

    Args:
        facts: of the cluster.
        user: who owns the file.
        name: of the service.

    Raises:
        ClusterError: the cluster keeps its files where nfold cannot write.
    """
    files = urllib.parse.urlsplit(facts.files)
    if files.scheme == "hdfs":
        return HdfsFile(facts.files.rstrip("/"), f"{facts.homes}/{user}/{name}.token", facts.name_nodes, user)
    if files.scheme == "file":
        folder = urllib.parse.unquote(urllib.parse.urlsplit(facts.services_folder).path)
        return SharedFile(Path(folder or Path.home()) / f"{name}.token")
    raise ClusterError(
        f"the job's token must wait for containers in the cluster's file system, {facts.files}, and nfold writes to "
        f"HDFS and to shared folders (file:) only. Start agents by hand: --listen"
    )


class SharedFile:
    """A file in a folder that this machine, the ResourceManager and all nodes see."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.uri = path.as_uri()

    def write(self, token: str) -> None:
        """Make it."""
        try:
            write_token(self._path, token)
        except OSError as error:
            raise ClusterError(
                f"cannot write the job's token to {self._path}: {error.strerror}. This cluster keeps its files in a "
                f"shared folder (fs.defaultFS is file:), which must be there on this machine, too, for you to write to"
            ) from error

    def remove(self) -> None:
        """Delete it."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise ClusterError(f"cannot delete the job's token, {self._path}: {error.strerror}. Delete it") from error


class HdfsFile:
    """A file in HDFS, by WebHDFS."""

    def __init__(self, files: str, path: str, name_nodes: tuple[str, ...], user: str) -> None:
        """Name it.

        Args:
            files: the file system, as in `hdfs://nn:8020`.
            path: in it.
            name_nodes: web addresses; the first active one serves.
            user: who owns it.
        """
        self.uri = f"{files}{path}"
        self._path = f"/webhdfs/v1{urllib.parse.quote(path)}"
        self._servers = [HadoopRest(each, user, "HDFS's NameNode") for each in name_nodes]

    def write(self, token: str) -> None:
        """Make it: the NameNode says which DataNode takes it."""
        server = self._active()
        where = server.ask("PUT", self._path, op="CREATE", permission="600", overwrite="false", noredirect="true")
        server.send("PUT", where["Location"], f"{token}\n".encode(), kind="application/octet-stream")

    def remove(self) -> None:
        """Delete it."""
        self._active().ask("DELETE", self._path, op="DELETE")

    def _active(self) -> HadoopRest:
        """Return the NameNode that serves: another one refuses, or is gone."""
        for server in self._servers[:-1]:
            with contextlib.suppress(ClusterError):
                server.ask("GET", "/webhdfs/v1/", op="GETFILESTATUS")
                return server
        return self._servers[-1]
