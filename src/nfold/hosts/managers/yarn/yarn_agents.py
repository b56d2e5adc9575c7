"""The manager for Hadoop YARN: one service, one container for each agent."""

import getpass
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nfold.errors import ClusterError, one_line
from nfold.hosts.manager import Call, PlaceState
from nfold.hosts.managers.yarn.cluster_facts import ClusterFacts, read_facts
from nfold.hosts.managers.yarn.hadoop_rest import HadoopRest, Refused
from nfold.hosts.managers.yarn.node_log import last_lines_of
from nfold.hosts.managers.yarn.service import (
    COMPONENT,
    ServiceState,
    given_back,
    more_containers,
    read_service,
    service_text,
    short,
    why_waiting,
)
from nfold.hosts.managers.yarn.shared_token import TokenFile, token_file
from nfold.hosts.managers.yarn.yarn_wishes import YarnWishes, read_wishes

_SERVICES = "/app/v1/services"
_GIVEN_BACK = "was given back"
_NOT_FOUND = 404
_TOGETHER = (
    "this YARN keeps no containers apart (yarn.resourcemanager.placement-constraints.handler is off): two agents may "
    "share a host"
)


@dataclass(slots=True)
class _Service:
    """One service, and how much of what is wanted of it YARN was told: it takes no orders before its master runs."""

    name: str
    first: int
    """The place of its container 0. YARN counts containers on, and never gives a number twice."""
    wanted: int
    told: int
    """Of `wanted`."""
    back: set[int] = field(default_factory=set)
    """Numbers of containers that were given back."""
    told_back: set[int] = field(default_factory=set)
    """Of `back`: those that YARN was told to end."""
    seen: ServiceState = field(default_factory=lambda: ServiceState(application="", state="ACCEPTED", containers={}))
    why: str = ""
    """Why something waits, or why all is over."""
    deleted: bool = False

    @property
    def path(self) -> str:
        return f"{_SERVICES}/{self.name}"

    @property
    def ended(self) -> set[int]:
        return {number for number, container in self.seen.containers.items() if container.stage == "ended"}

    @property
    def waiting(self) -> set[int]:
        return set(range(self.told)) - self.seen.containers.keys() - self.back

    def state_of(self, number: int) -> PlaceState:
        container = self.seen.containers.get(number)
        state = PlaceState(place=self.first + number, name=container.host if container else "", stage="ended")
        if container and container.stage == "ended":
            return replace(state, reason=f"ended (YARN says {container.state})")
        if number in self.back:
            return replace(state, reason=_GIVEN_BACK)
        if self.seen.is_over:
            return replace(state, reason=f"was ended by YARN: {self.why or self.seen.state}")
        if self.deleted:
            return replace(state, reason=_GIVEN_BACK)
        return replace(state, stage="running") if container else replace(state, stage="waiting", reason=self.why)


class YarnAgents:
    """Agents in containers of YARN. See `nfold.hosts.manager.Manager`."""

    def __init__(self, wishes: YarnWishes, *, name: str, user: str, say: Callable[[str], None]) -> None:
        """Ask nothing yet.

        Args:
            wishes: where, and how much.
            name: of the service: small letters, digits and hyphens; nobody else's.
            user: in whose name.
            say: is given lines for the user.
        """
        self.title = wishes.title
        self.replaces = True
        self.most_time_s: float | None = wishes.time_s
        self._wishes, self._name, self._user, self._say = wishes, name, user, say
        self._rest = HadoopRest(wishes.base, user, "YARN's ResourceManager")
        self._services: list[_Service] = []
        self._token: TokenFile | None = None

    def dry_run(self, call: Call, count: int) -> str:
        """Return the request that `start` would send."""
        facts = self._checked(count)
        text = self._text(facts, call, self._name, 0, count, token_file(facts, self._user, self._name))
        remark = "" if facts.spreads else f"# {_TOGETHER}\n"
        return f"{remark}POST {self._rest.url(_SERVICES)}\n{json.dumps(text, indent=2)}"

    def start(self, call: Call, count: int) -> None:
        """Ask for so many more containers."""
        self._look()
        latest = self._services[-1] if self._services else None
        facts = self._checked(count + sum(state.stage != "ended" for state in self._known()))
        if not facts.spreads:
            self._say(f"note: {_TOGETHER}")
        if latest is None or latest.seen.is_over:
            self._submit(facts, call, count)
        else:
            latest.wanted += count
            self._catch_up(latest)

    def states(self) -> list[PlaceState]:
        """Return what YARN says of each place; while it cannot be asked, what it said before, and why it cannot."""
        self._look()
        for service in self._services:
            self._catch_up(service)
        return self._known()

    def release(self, place: int) -> None:
        """End one container, by its name."""
        service = next(each for each in reversed(self._services) if each.first <= place)
        service.back.add(place - service.first)
        self._look()
        self._catch_up(service)

    def last_lines(self, place: int) -> list[str]:
        """Return the last lines of a container's log, which its node keeps until the service is over."""
        service = next(each for each in reversed(self._services) if each.first <= place)
        container = service.seen.containers.get(place - service.first)
        return last_lines_of(container, self._rest) if container else []

    def close(self) -> None:
        """Delete the services, with all containers, and the token.

        Raises:
            ClusterError: something may be left; the message says how to find it.
        """
        left = [said for service in self._services if (said := self._delete(service))]
        if self._token is not None:
            self._token.remove()
            self._token = None
        if left:
            raise ClusterError("; ".join(left))

    def _checked(self, count: int) -> ClusterFacts:
        """Ask the cluster what it is, and refuse what cannot come about on it."""
        facts = read_facts(
            self._rest.ask("GET", "/conf"),
            self._rest.ask("GET", "/ws/v1/cluster/scheduler"),
            self._rest.ask("GET", "/ws/v1/cluster/metrics"),
        )
        facts.check(count)
        self.most_time_s = facts.queue(self._wishes.queue).granted_s(self._wishes.time_s)
        return facts

    def _text(self, facts: ClusterFacts, call: Call, name: str, first: int, count: int, file: TokenFile) -> object:
        return service_text(
            call,
            self._wishes,
            name=name,
            first_place=first,
            count=count,
            token_uri=file.uri,
            spread=facts.spreads,
        )

    def _submit(self, facts: ClusterFacts, call: Call, count: int) -> None:
        """Start a service; where one is over, the next, once the master of the first does not linger in its queue."""
        for service in self._services:
            self._delete(service)
        first = sum(each.wanted for each in self._services)
        name = f"{self._name}-{len(self._services) + 1}" if self._services else self._name
        if self._token is None:
            self._token = token_file(facts, self._user, self._name)
            self._token.write(call.token)
        text = self._text(facts, call, name, first, count, self._token)
        self._services.append(_Service(name=name, first=first, wanted=count, told=count))
        try:
            self._rest.ask("POST", _SERVICES, text)
        except Refused:  # after any other end YARN may have it
            self._services.pop()
            raise

    def _look(self) -> None:
        """Ask for the services that go on."""
        for service in self._services:
            if service.deleted or service.seen.is_over:
                continue
            try:
                service.seen = self._merged(service, read_service(self._rest.ask("GET", service.path)))
                service.why = self._why(service)
            except ClusterError as error:
                service.why = str(error)

    def _merged(self, service: _Service, now: ServiceState) -> ServiceState:
        """Keep what was seen of containers that YARN does not tell of any more."""
        return replace(now, containers={**service.seen.containers, **now.containers})

    def _why(self, service: _Service) -> str:
        """Return why something waits or all is over, in YARN's words; empty: nothing does."""
        seen = service.seen
        nothing_waits = len(seen.containers.keys() | service.back) >= service.wanted
        if not seen.application or (nothing_waits and not seen.is_over):
            return ""
        if seen.takes_orders:
            return why_waiting(self._rest.ask("GET", f"/ws/v1/cluster/scheduler/app-activities/{seen.application}"))
        application = self._rest.ask("GET", f"/ws/v1/cluster/apps/{seen.application}")["app"]
        return one_line(short(application.get("diagnostics") or ""))

    def _catch_up(self, service: _Service) -> None:
        """Tell a service's master what it has not been told; what fails is told again at the next look."""
        if not service.seen.takes_orders or service.deleted:
            return
        try:
            self._tell(service)
        except ClusterError as error:
            service.why = str(error)

    def _tell(self, service: _Service) -> None:
        """Tell of more containers first: one that is to end must have been asked for.

        While some are waited for, YARN takes a request for more for a request for those: they would never come.
        """
        if service.told < service.wanted and not service.waiting:
            number = service.wanted - len(service.told_back)
            self._rest.ask("PUT", f"{service.path}/components/{COMPONENT}", more_containers(number))
            service.told = service.wanted
        due = service.back - service.told_back - service.ended
        if due:
            self._rest.ask("PUT", service.path, given_back(service.name, sorted(due)))
            service.told_back |= due

    def _delete(self, service: _Service) -> str:
        """Delete a service; return why that failed, or nothing."""
        if service.deleted:
            return ""
        try:
            self._rest.ask("DELETE", service.path)
        except ClusterError as error:
            if not self._is_gone(service):
                return f"{error}. To end it by hand: yarn app -destroy {service.name}"
        service.deleted = True
        return ""

    def _is_gone(self, service: _Service) -> bool:
        try:
            self._rest.ask("GET", service.path)
        except ClusterError as error:
            return isinstance(error, Refused) and error.status == _NOT_FOUND
        return False

    def _known(self) -> list[PlaceState]:
        return [service.state_of(number) for service in self._services for number in range(service.wanted)]


def yarn_agents(
    where: str,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    cpus: int | None = None,
    time_s: float | None = None,
) -> YarnAgents:
    """Return the manager for what stands behind `--on yarn:`.

    Args:
        where: as typed.
        environment: HADOOP_USER_NAME says who asks, as for Hadoop's own programs; else the user's name does.
        say: is given lines for the user.
        cpus: for each agent; None: as many as usual.
        time_s: for which hosts are wanted; None: as long as the queue gives.

    Raises:
        PlanError: it is no such address.
    """
    user = environment.get("HADOOP_USER_NAME") or getpass.getuser()
    name = f"nfold-{secrets.token_hex(4)}"
    return YarnAgents(read_wishes(where, cpus, time_s), name=name, user=user, say=say)
