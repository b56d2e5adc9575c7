"""A token in HDFS is written by WebHDFS. HDFS is a stub here, which answers as 3.4.2 does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest

from nfold.errors import ClusterError
from nfold.hosts.managers.yarn.token_file import HdfsFile


class FakeHdfs:
    """One NameNode, and the DataNode that it sends to."""

    def __init__(self, standby=False):
        self.files = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urlsplit(self.path)
                status, answer = (
                    fake.stands_by()
                    if standby
                    else fake.handle(self.command, url.path, body, dict(parse_qsl(url.query)))
                )
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_GET = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

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
