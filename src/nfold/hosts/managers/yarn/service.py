"""A YARN service whose containers are agents: the texts that ask for it, and what YARN's answers say of each."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from nfold.errors import ClusterError
from nfold.hosts.manager import Call, agent_command
from nfold.hosts.managers.yarn.yarn_wishes import YarnWishes

COMPONENT = "agent"
AGENT_MIB = 64
"""Of a container's memory, for the agent itself."""
_TOKEN = "token"
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "FAILED_BEFORE_LAUNCH")
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ASKS_NOTHING = "Request does not need more resource"
_NO_LIMIT = "1000000"
_UNQUOTABLE = re.compile(r'["`$\\]')


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What YARN says of one that it granted."""

    id: str
    host: str
    state: str

    @property
    def stage(self) -> Literal["running", "ended"]:
        """In the words of a manager."""
        return "ended" if self.state in _ENDED else "running"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceState:
    """What YARN says of a service."""

    application: str
    """Its id; empty: not known."""
    state: str
    containers: dict[int, Container]
    """By the number of the instance: only what was granted, and not yet given back."""

    @property
    def takes_orders(self) -> bool:
        """Whether its master runs, which starts and ends containers."""
        return self.state not in ("", "ACCEPTED", *_OVER)

    @property
    def is_over(self) -> bool:
        """Whether it starts nothing any more."""
        return self.state in _OVER


def service_text(
    call: Call, wishes: YarnWishes, *, name: str, first_place: int, count: int, token_uri: str, spread: bool
) -> dict[str, Any]:
    """Return what is posted to start a service.

    Args:
        call: what its agents need.
        wishes: queue, cores, memory and time.
        name: of the service.
        first_place: that its first container fills.
        count: of containers.
        token_uri: of the file with the token.
        spread: keep containers on nodes of their own, which some clusters cannot.

    Raises:
        ClusterError: YARN would read the command as another one.
    """
    component: dict[str, Any] = {
        "name": COMPONENT,
        "number_of_containers": count,
        "restart_policy": "NEVER",
        "resource": {"cpus": wishes.cpus, "memory": str(wishes.memory_mb)},
        "launch_command": launch_command(call, wishes, first_place),
        "configuration": {
            # YARN would end them all after a few that failed, and the job decides that.
            "properties": {"yarn.service.container-failure-per-component.threshold": _NO_LIMIT},
            "env": {"PATH": f"{os.path.dirname(call.interpreter)}:{_SYSTEM_PATH}"},  # a container has none
            "files": [{"type": "STATIC", "src_file": token_uri, "dest_file": _TOKEN}],
        },
    }
    if spread:
        apart = {"type": "ANTI_AFFINITY", "scope": "NODE", "target_tags": [COMPONENT]}
        component["placement_policy"] = {"constraints": [apart]}
    return {
        "name": name,
        "version": "1",
        "queue": wishes.queue,
        "configuration": {"properties": {"yarn.service.readiness-check-interval.seconds": "1"}},
        "components": [component],
        **({} if wishes.time_s is None else {"lifetime": wishes.time_s}),
    }


def launch_command(call: Call, wishes: YarnWishes, first_place: int) -> str:
    """Return the command of all containers: YARN puts in each one's number, the shell adds up.

    What an agent keeps in its home goes with the container. YARN sets HOME itself, to a folder that is not there. On
    the host nothing tells how much was granted: YARN watches memory from outside, and cores rarely.

    Raises:
        ClusterError: YARN would read it as another one.
    """
    granted = ["--cores", str(wishes.cpus), "--memory-mib", str(max(1, wishes.memory_mb - AGENT_MIB))]
    command = shlex.join([*agent_command(call, None, _TOKEN), *granted])
    if odd := _UNQUOTABLE.search(command):
        raise ClusterError(
            f"YARN hands a command to its nodes between double quotes, so {odd.group()} cannot stand in it: {command}. "
            f"Use a path of Python without it"
        )
    return f"HOME=$PWD {command} --place $(({first_place}+${{COMPONENT_ID}}))"


def instance_name(number: int) -> str:
    """Return what YARN calls a container, whichever it is."""
    return f"{COMPONENT}-{number}"


def more_containers(number: int) -> dict[str, Any]:
    """Return what is put to have so many containers."""
    return {"name": COMPONENT, "number_of_containers": number}


def given_back(name: str, numbers: list[int]) -> dict[str, Any]:
    """Return what is put to end those very containers of a service."""
    return {
        "name": name,
        "components": [{"name": COMPONENT, "decommissioned_instances": [instance_name(each) for each in numbers]}],
    }


def read_service(answer: Any) -> ServiceState:
    """Read the answer to a question for a service."""
    containers = {}
    for part in answer.get("components") or ():
        for each in part.get("containers") or ():
            number = int(each["component_instance_name"].rpartition("-")[2])
            containers[number] = Container(
                id=each["id"], host=each.get("bare_host") or "", state=each.get("state") or ""
            )
    return ServiceState(application=answer.get("id") or "", state=answer.get("state") or "", containers=containers)


def why_waiting(activities: Any) -> str:
    """Return why the scheduler passed an application over, in its own words; empty: it does not say.

    Args:
        activities: the answer to a question for an application's activities, newest first.
    """
    allocations = (activities.get("appActivities") or {}).get("allocations")
    newest = allocations[:1] if isinstance(allocations, list) else allocations
    return "; ".join(dict.fromkeys(each for each in _diagnostics(newest) if each != _ASKS_NOTHING))


def short(diagnostics: str) -> str:
    """Return what YARN says of an application without when it did, and without the figures of its queue."""
    return re.sub(r"^\[[^]]*\] *", "", diagnostics.partition(" Details : ")[0]).strip()


def _diagnostics(record: Any) -> Iterator[str]:
    if isinstance(record, list):
        for each in record:
            yield from _diagnostics(each)
    elif isinstance(record, dict):
        if text := record.get("diagnostic"):
            yield str(text)
        for each in record.values():
            if isinstance(each, dict | list):
                yield from _diagnostics(each)
