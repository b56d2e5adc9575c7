"""A ResourceManager in a thread, as far as the manager asks it."""

import json
import sys
from pathlib import Path

import pytest

from nfold.hosts.manager import Call

sys.path.append(str(Path(__file__).parent))
from stub_server import StubServer

QUEUES = {
    "type": "capacityScheduler",
    "queueName": "root",
    "queues": {
        "queue": [
            {"queueName": "default", "maximumApplicationLifetime": -1, "defaultApplicationLifetime": -1},
            {
                "queueName": "research",
                "queues": {"queue": [{"queueName": "short", "maximumApplicationLifetime": 600}]},
            },
        ]
    },
}


class FakeYarn(StubServer):
    """Answers as YARN 3.4.2 does. `grant` plays the scheduler."""

    def __init__(self, folder: Path) -> None:
        self.settings = {
            "yarn.webapp.api-service.enable": "true",
            "yarn.resourcemanager.placement-constraints.handler": "scheduler",
            "fs.defaultFS": "file:///",
            "yarn.service.base.path": folder.as_uri(),
        }
        self.nodes = ["n1", "n2", "n3"]
        self.services = {}
        self.asked = []
        self.diagnostics = "waiting for AM container to be allocated"
        self.log = ""
        self.refusing = {}
        """Status and text by the beginning of a request."""
        super().__init__()

    def answer(self, method, path, body, query):
        body = body.decode()
        self.asked.append((method, path, body, query))
        for beginning, refusal in self.refusing.items():
            if f"{method} {path}".startswith(beginning):
                return refusal
        status, answer = self.handle(method, path, json.loads(body) if body[:1] == "{" else body, query)
        return status, answer if isinstance(answer, str) else json.dumps(answer)

    def handle(self, method, path, body, query):
        parts = path.strip("/").split("/")
        if path == "/conf":
            return 200, {"properties": [{"key": key, "value": value} for key, value in self.settings.items()]}
        if path == "/ws/v1/cluster/scheduler":
            return 200, {"scheduler": {"schedulerInfo": QUEUES}}
        if path == "/ws/v1/cluster/metrics":
            return 200, {"clusterMetrics": {"activeNodes": len(self.nodes)}}
        if path == "/ws/v1/cluster/nodes":
            address = self.base.partition("//")[2]
            return 200, {"nodes": {"node": [{"nodeHostName": n, "nodeHTTPAddress": address} for n in self.nodes]}}
        if path.startswith("/ws/v1/cluster/scheduler/app-activities/"):
            allocation = {"requests": [{"allocationAttempts": [{"diagnostic": "unsatisfied PC expression"}]}]}
            return 200, {"appActivities": {"allocations": [allocation]}}
        if path.startswith("/ws/v1/cluster/apps/"):
            return 200, {"app": {"diagnostics": self.diagnostics}}
        if path.startswith("/ws/v1/node/containers/"):
            return 200, self.log
        return self.handle_service(method, parts[3:], body)

    def handle_service(self, method, parts, body):
        if method == "POST":
            self.services[body["name"]] = {**body, "id": "application_1", "state": "ACCEPTED", "granted": {}, "next": 0}
            return 202, {"diagnostics": "Application ID: application_1"}
        service = self.services.get(parts[0])
        if service is None:
            return 404, {"diagnostics": f"Service {parts[0]} not found"}
        if method == "DELETE":
            del self.services[parts[0]]
        elif method == "PUT" and len(parts) == 3:
            service["components"][0]["number_of_containers"] = body["number_of_containers"]
        elif method == "PUT":
            for name in body["components"][0]["decommissioned_instances"]:
                service["granted"].pop(name, None)
                service["components"][0]["number_of_containers"] -= 1
        return 200, {**service, "components": [{"name": "agent", "containers": list(service["granted"].values())}]}

    def grant(self, name, count, state="READY"):
        """Have the service's master run, and so many more containers with it."""
        service = self.services[name]
        service["state"] = "STARTED"
        for _ in range(count):
            instance = f"agent-{service['next']}"
            service["granted"][instance] = {
                "component_instance_name": instance,
                "id": f"container_{service['next']}",
                "bare_host": self.nodes[service["next"] % len(self.nodes)],
                "state": state,
            }
            service["next"] += 1

    def changes(self):
        """Return the requests that change something, without their texts."""
        return [f"{method} {path}" for method, path, _, _ in self.asked if method != "GET"]


@pytest.fixture
def yarn(tmp_path):
    fake = FakeYarn(tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def call():
    return Call(addresses=(("10.0.0.1", 7000),), token="sesame", interpreter="/opt/py/bin/python")
