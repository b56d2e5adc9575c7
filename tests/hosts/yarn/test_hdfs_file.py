"""A token in HDFS is written by WebHDFS. HDFS is a stub here, which answers as 3.4.2 does."""

import json

import pytest
from stub_server import StubServer

from nfold.errors import ClusterError
from nfold.hosts.managers.yarn.shared_token import HdfsFile


class FakeHdfs(StubServer):
    """One NameNode, and the DataNode that it sends to."""

    def __init__(self, standby=False):
        self.files, self._standby = {}, standby
        super().__init__()

    def answer(self, method, path, body, query):
        status, answer = self.stands_by() if self._standby else self.handle(method, path, body, query)
        return status, json.dumps(answer)

    def stands_by(self):
        said = "Operation category READ is not supported in state standby"
        return 403, {"RemoteException": {"exception": "StandbyException", "message": said}}

    def handle(self, method, path, body, query):
        if path.startswith("/data"):
            self.files[path.removeprefix("/data")] = (query["permission"], body)
            return 201, {}
        path = path.removeprefix("/webhdfs/v1")
        if query["op"] == "CREATE":
            assert (query["user.name"], query["noredirect"], query["overwrite"], body) == ("ada", "true", "false", b"")
            return 200, {"Location": f"{self.base}/data{path}?permission={query['permission']}"}
        if query["op"] == "DELETE":
            return 200, {"boolean": self.files.pop(path, None) is not None}
        return 200, {"FileStatus": {"type": "DIRECTORY"}}


@pytest.fixture
def hdfs():
    fake = FakeHdfs()
    yield fake
    fake.close()


@pytest.fixture
def standby():
    fake = FakeHdfs(standby=True)
    yield fake
    fake.close()


def test_only_its_owner_reads_it_and_it_goes_again(hdfs):
    file = HdfsFile("hdfs://nn:8020", "/user/ada/job.token", (hdfs.base,), "ada")
    file.write("sesame")
    assert hdfs.files == {"/user/ada/job.token": ("600", b"sesame\n")}
    file.remove()
    file.remove()
    assert hdfs.files == {}


def test_of_two_name_nodes_the_active_one_takes_it(hdfs, standby):
    for servers in ((standby.base, hdfs.base), (hdfs.base, standby.base)):
        HdfsFile("hdfs://both", "/t", servers, "ada").write("sesame")
        assert hdfs.files.pop("/t") == ("600", b"sesame\n")


def test_what_hdfs_says_is_passed_on(standby):
    with pytest.raises(ClusterError, match=r"HDFS's NameNode refuses PUT /webhdfs/v1/t: Operation category READ is"):
        HdfsFile("hdfs://nn", "/t", (standby.base,), "ada").write("sesame")
