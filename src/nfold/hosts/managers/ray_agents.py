"""Agents as children of Ray's actors: one actor for each, all of a request in one placement group on distinct nodes."""

import importlib
import os
import shlex
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nfold.core.options.whole import read_digits
from nfold.errors import ClusterError, PlanError, one_line
from nfold.hosts.manager import TOKEN_FROM_INPUT, WHILE_INPUT, Call, PlaceState, agent_command
from nfold.hosts.managers.child_agents import ChildAgent

_ANY = "auto"
_CREATED = "CREATED"
_LOOK_S = 0.5
_END_S = 5.0
_FORM = "ray:HOST:6379?gpus=1"


class AgentActor:
    """Runs on a node of Ray and holds the agent there. The token is an argument, which no command of Ray shows."""

    def __init__(self, place: int, command: list[str], token: str) -> None:
        """Start the agent.

        Args:
            place: that it fills.
            command: that runs it.
            token: of the job.
        """
        self._child, self._failed = None, ""
        try:
            self._child = ChildAgent(place, "", command, token, dict(os.environ))
        except OSError as error:
            self._failed = f"cannot be started: {error}"

    def look(self) -> tuple[str, list[str]]:
        """Return how the agent ended (empty: it runs), and its last lines."""
        if self._child is None:
            return self._failed, []
        state = self._child.state
        return (state.reason if state.stage == "ended" else ""), self._child.last_lines()

    def end(self) -> None:
        """End the agent, and what it has started. Safe to call again."""
        if self._child is not None:
            self._child.end()


@dataclass(slots=True)
class _Place:
    state: PlaceState
    actor: Any
    bundle: int
    asked: Any = None
    """What will be its actor's answer to a look; None: it was not asked."""
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """Of one request."""

    handle: Any
    places: list[_Place] = field(default_factory=list)
    removed: bool = False


class RayAgents:
    """Agents on nodes of a Ray cluster. See `nfold.hosts.manager.Manager`."""

    def __init__(self, ray: Any, address: str, resources: Mapping[str, float]) -> None:
        """Ask nothing yet.

        Args:
            ray: the module.
            address: of the cluster, as for `ray.init`.
            resources: of Ray's for each agent, as in {"CPU": 1}.
        """
        self.title = f"Ray at {address}" if address != _ANY else "Ray"
        self.replaces = True
        self.most_time_s: float | None = None
        self._ray, self._address, self._resources = ray, address, dict(resources)
        self._groups: list[_Group] = []
        self._is_ours = False

    def dry_run(self, call: Call, count: int) -> str:
        """Return what `start` would ask of Ray."""
        group = f"ray.util.placement_group([{self._resources}] * {count}, strategy='STRICT_SPREAD')"
        commands = [f"actor {place}: {shlex.join(self._command(call, place))}" for place in range(count)]
        return "\n".join((group, *commands))

    def start(self, call: Call, count: int) -> None:
        """Ask for a group of so many bundles, and for an actor in each.

        Raises:
            ClusterError: there is no such cluster, or it refuses.
        """
        self._connect()
        first = len(self._places)
        try:
            bundles = [dict(self._resources) for _ in range(count)]
            group = _Group(self._ray.util.placement_group(bundles, strategy="STRICT_SPREAD"))
            self._groups.append(group)
            for bundle in range(count):
                actor = self._actor(call, group, first + bundle, bundle)
                group.places.append(_Place(PlaceState(place=first + bundle, name="", stage="waiting"), actor, bundle))
        except (self._ray.exceptions.RayError, ValueError) as error:
            raise ClusterError(f"{self.title} refuses {count} agents with {self._resources}: {error}") from error

    def states(self) -> list[PlaceState]:
        """Return what Ray and the actors say of each place."""
        self._see_groups()
        self._look()
        return [place.state for place in self._places]

    def release(self, place: int) -> None:
        """End one agent and its actor. Ray keeps its bundle for the group until all of the group is given back."""
        group = next(each for each in self._groups if any(one.state.place == place for one in each.places))
        self._end([one for one in group.places if one.state.place == place], "was given back")
        if all(one.state.stage == "ended" for one in group.places):
            self._remove(group)

    def last_lines(self, place: int) -> list[str]:
        """Return the last lines that an agent printed, as of the last look."""
        return list(self._places[place].lines)

    def close(self) -> None:
        """End all agents, remove the groups, and leave Ray if it was joined for them."""
        self._end([place for place in self._places if place.state.stage != "ended"], "was given back")
        for group in self._groups:
            self._remove(group)
        if self._is_ours:
            self._ray.shutdown()
            self._is_ours = False

    @property
    def _places(self) -> list[_Place]:
        return [place for group in self._groups for place in group.places]

    def _connect(self) -> None:
        """Join the cluster, unless this process has joined it already."""
        if self._ray.is_initialized():
            return
        try:
            self._ray.init(address=self._address, log_to_driver=False, configure_logging=False)
        except (self._ray.exceptions.RayError, ConnectionError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"{self.title} cannot be reached: {one_line(str(error))} Is that its address, as in {_FORM}, and is "
                f"this the version of Ray and Python that runs there?"
            ) from error
        self._is_ours = True

    def _command(self, call: Call, place: int) -> list[str]:
        """Ray counts cores, and nothing on a host tells how many were granted."""
        granted = ["--cores", f"{self._resources['CPU']:g}"]
        return [*agent_command(call, place, TOKEN_FROM_INPUT), *granted, WHILE_INPUT]

    def _actor(self, call: Call, group: _Group, place: int, bundle: int) -> Any:
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            placement_group=group.handle, placement_group_bundle_index=bundle
        )
        options = {"num_cpus": self._resources.get("CPU", 0), "num_gpus": self._resources.get("GPU", 0)}
        actor = self._ray.remote(AgentActor).options(scheduling_strategy=strategy, max_restarts=0, **options)
        return actor.remote(place, self._command(call, place), call.token)

    def _see_groups(self) -> None:
        """Name the hosts of places in groups that Ray has granted, and tell of others why they wait."""
        for group in self._groups:
            waiting = [place for place in group.places if place.state.stage == "waiting"]
            if not waiting or group.removed:
                continue
            table = self._ray.util.placement_group_table(group.handle)
            hosts = self._hosts(table) if table.get("state") == _CREATED else {}
            why = "" if hosts else self._why(table, len(group.places))
            for place in waiting:
                state = replace(place.state, name=hosts.get(place.bundle, ""), reason=why)
                place.state = replace(state, stage="starting") if hosts else state

    def _hosts(self, table: Mapping[str, Any]) -> dict[int, str]:
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes()}
        return {int(bundle): addresses.get(node, "") for bundle, node in table["bundles_to_node_id"].items()}

    def _why(self, table: Mapping[str, Any], count: int) -> str:
        """Return Ray's word for why a group waits, and what it asks for beside what there is."""
        word = (table.get("stats") or {}).get("scheduling_state") or table.get("state") or "PENDING"
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        there, free = self._ray.cluster_resources(), self._ray.available_resources()
        numbers = [f"{free.get(each, 0):g} of {there.get(each, 0):g} {each} free" for each in self._resources]
        wanted = " and ".join(f"{number:g} {each}" for each, number in self._resources.items())
        return f"Ray says {word}: it asks for {count} nodes with {wanted}; there are {len(nodes)}, {', '.join(numbers)}"

    def _look(self) -> None:
        """Ask all actors, and take the answers that come at once; others are waited for at the next look."""
        places = [place for place in self._places if place.state.stage in ("starting", "running")]
        for place in places:
            place.asked = place.asked or place.actor.look.remote()
        asked = [place.asked for place in places]
        here, _ = self._ray.wait(asked, num_returns=len(asked), timeout=_LOOK_S) if asked else ([], [])
        for place in places:
            if place.asked in here:
                self._take(place)

    def _take(self, place: _Place) -> None:
        asked, place.asked = place.asked, None
        try:
            how, place.lines = self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            how = f"was lost with its actor: {one_line(str(error))}"
        place.state = replace(place.state, stage="ended" if how else "running", reason=how)

    def _end(self, places: list[_Place], reason: str) -> None:
        """End agents in order where their actors answer, and then the actors."""
        asked = [place.actor.end.remote() for place in places if place.state.stage in ("starting", "running")]
        if asked:
            self._ray.wait(asked, num_returns=len(asked), timeout=_END_S)
        for place in places:
            self._ray.kill(place.actor)
            if place.state.stage != "ended":
                place.state = replace(place.state, stage="ended", reason=reason)

    def _remove(self, group: _Group) -> None:
        if not group.removed:
            self._ray.util.remove_placement_group(group.handle)
            group.removed = True


def ray_agents(where: str, cpus: int | None, load: Callable[[str], Any] = importlib.import_module) -> RayAgents:
    """Return the manager for what stands behind `--on ray`.

    Args:
        where: `ADDRESS?gpus=1`, or a part of it; without an address: the cluster that runs on this machine.
        cpus: for each agent; None: as many as usual.
        load: imports a module.

    Raises:
        PlanError: it is something else.
        ClusterError: Ray is not installed.
    """
    address, _, query = where.partition("?")
    resources = {"CPU": float(cpus or 1)}
    for name, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if name != "gpus" or not (number := read_digits(text)):
            raise PlanError(f"--on ray:{where}: {name}={text} is nothing to ask for. It may say as much as {_FORM}")
        resources["GPU"] = float(number)
    try:
        ray = load("ray")
        load("ray.util.scheduling_strategies")
    except ImportError as error:
        raise ClusterError(f"--on ray needs Ray, which is not installed ({error}). pip install 'nfold[ray]'") from error
    return RayAgents(ray, address or _ANY, resources)
