"""The manager of Ray asks for a group and actors, tells what Ray says, and gives back all. Ray is a stub here."""

from types import SimpleNamespace

import pytest

from nfold.errors import ClusterError, PlanError
from nfold.hosts.manager import Call, PlaceState
from nfold.hosts.managers.ray_agents import AgentActor, RayAgents, ray_agents


class RayError(Exception):
    pass


class FakeActor:
    """What a handle of an actor can do: each method gives a reference, which is the answer here."""

    def __init__(self, fake, options, arguments):
        self.options, self.arguments, self.how, self.lines = options, arguments, "", []
        self.look = SimpleNamespace(remote=lambda: (self, "look"))
        self.end = SimpleNamespace(remote=lambda: (self, "end"))
        self.is_there = True
        fake.actors.append(self)


class FakeRay:
    def __init__(self):
        self.exceptions = SimpleNamespace(RayError=RayError)
        strategies = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda **given: given)
        self.util = SimpleNamespace(
            placement_group=self.placement_group,
            placement_group_table=lambda group: group,
            remove_placement_group=lambda group: self.removed.append(group),
            scheduling_strategies=strategies,
        )
        self.is_joined, self.actors, self.removed, self.groups, self.silent = False, [], [], [], set()
        self.failure = None

    def is_initialized(self):
        return self.is_joined

    def init(self, **given):
        if self.failure:
            raise self.failure
        self.is_joined, self.given = True, given

    def shutdown(self):
        self.is_joined = False

    def placement_group(self, bundles, strategy):
        group = {"state": "PENDING", "stats": {"scheduling_state": "NO_RESOURCES"}, "asked": (bundles, strategy)}
        self.groups.append(group)
        return group

    def grant(self, group):
        group["state"] = "CREATED"
        group["bundles_to_node_id"] = {bundle: f"id{bundle}" for bundle in range(len(group["asked"][0]))}

    def nodes(self):
        return [{"NodeID": f"id{n}", "NodeManagerAddress": f"10.0.0.{n}", "Alive": n < 2} for n in range(3)]

    def cluster_resources(self):
        return {"CPU": 8.0}

    def available_resources(self):
        return {"CPU": 1.0}

    def remote(self, kind):
        assert kind is AgentActor
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *given: FakeActor(self, options, given))
        )

    def wait(self, references, num_returns, timeout):
        assert (num_returns, timeout > 0) == (len(references), True)
        return [each for each in references if each[0] not in self.silent], []

    def get(self, reference):
        actor, asked = reference
        assert asked == "look"
        if not actor.is_there:
            raise RayError("The actor died.\nIts node is gone.")
        return actor.how, actor.lines

    def kill(self, actor):
        actor.is_there = False


@pytest.fixture
def ray():
    return FakeRay()


@pytest.fixture
def manager(ray):
    return RayAgents(ray, "auto", {"CPU": 2.0})


@pytest.fixture
def call():
    return Call(addresses=(("10.0.0.9", 7000),), token="sesame", interpreter="/opt/py/bin/python")


def stages(manager):
    return [state.stage for state in manager.states()]


def test_one_actor_for_each_on_distinct_nodes_and_the_token_on_no_command_line(ray, manager, call):
    manager.start(call, 2)
    assert ray.groups[0]["asked"] == ([{"CPU": 2.0}, {"CPU": 2.0}], "STRICT_SPREAD")
    place, command, token = ray.actors[1].arguments
    assert (place, token, command[-7:-1]) == (1, "sesame", ["--token-file", "-", "--place", "1", "--cores", "2"])
    assert "sesame" not in command
    options = ray.actors[1].options
    assert options["scheduling_strategy"] == {"placement_group": ray.groups[0], "placement_group_bundle_index": 1}
    assert (options["num_cpus"], options["num_gpus"], options["max_restarts"]) == (2.0, 0, 0)


def test_a_dry_run_joins_nothing(ray, manager, call):
    shown = manager.dry_run(call, 2).splitlines()
    assert shown[0] == "ray.util.placement_group([{'CPU': 2.0}] * 2, strategy='STRICT_SPREAD')"
    assert shown[2].startswith("actor 1: /opt/py/bin/python -P -m nfold agent --connect 10.0.0.9:7000")
    assert not ray.is_joined


def test_places_wait_with_rays_reason_then_start_and_run_on_hosts(ray, manager, call):
    manager.start(call, 2)
    reason = "Ray says NO_RESOURCES: it asks for 2 nodes with 2 CPU; there are 2, 1 of 8 CPU free"
    assert manager.states()[0] == PlaceState(place=0, name="", stage="waiting", reason=reason)
    ray.grant(ray.groups[0])
    ray.silent = {ray.actors[1]}
    assert manager.states() == [
        PlaceState(place=0, name="10.0.0.0", stage="running"),
        PlaceState(place=1, name="10.0.0.1", stage="starting"),
    ]
    ray.silent = set()
    assert stages(manager) == ["running", "running"]


def test_how_an_agent_ended_is_told_with_its_last_lines(ray, manager, call):
    manager.start(call, 2)
    ray.grant(ray.groups[0])
    ray.actors[0].how, ray.actors[0].lines = "exited with code 3", ["it cannot go on"]
    ray.actors[1].is_there = False
    first, second = manager.states()
    assert (first.stage, first.reason, manager.last_lines(0)) == ("ended", "exited with code 3", ["it cannot go on"])
    assert second.reason == "was lost with its actor: The actor died. Its node is gone."


def test_one_place_is_given_back_and_its_group_with_the_last(ray, manager, call):
    manager.start(call, 2)
    ray.grant(ray.groups[0])
    manager.states()
    manager.release(0)
    manager.release(0)
    assert stages(manager) == ["ended", "running"]
    assert ray.removed == []
    manager.start(call, 1)
    assert [actor.arguments[0] for actor in ray.actors] == [0, 1, 2]
    manager.release(1)
    assert ray.removed == [ray.groups[0]]
    assert stages(manager) == ["ended", "ended", "waiting"]


def test_at_the_end_nothing_is_left_and_only_an_own_connection_is_closed(ray, call):
    for joined_before in (False, True):
        ray.is_joined = joined_before
        manager = RayAgents(ray, "auto", {"CPU": 1.0})
        manager.start(call, 1)
        manager.close()
        manager.close()
        assert ray.is_joined == joined_before
    assert ray.removed == ray.groups
    assert not any(actor.is_there for actor in ray.actors)


def test_no_cluster_is_told_with_what_ray_says(ray, manager, call):
    ray.failure = ConnectionError("Could not find any running Ray instance.")
    with pytest.raises(
        ClusterError, match=r"^Ray cannot be reached: Could not find any running Ray instance\. Is that"
    ):
        manager.start(call, 1)


def test_what_is_typed_is_read(ray, call):
    manager = ray_agents("10.0.0.1:6379?gpus=1", 4, {"ray": ray, "ray.util.scheduling_strategies": None}.get)
    assert manager.title == "Ray at 10.0.0.1:6379"
    manager.start(call, 1)
    assert ray.given["address"] == "10.0.0.1:6379"
    assert ray.groups[0]["asked"][0] == [{"CPU": 4.0, "GPU": 1.0}]


@pytest.mark.parametrize(
    "where", ["?gpus=x", "?gpus=0", pytest.param("?gpus=" + "1" * 5000, id="gpus, 5000 digits"), "h:1?memory=4"]
)
def test_other_wishes_are_refused(where):
    with pytest.raises(PlanError, match=r"is nothing to ask for\. It may say as much as ray:HOST:6379\?gpus=1"):
        ray_agents(where, None)


def test_without_ray_it_is_told_how_to_get_it():
    def load(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    with pytest.raises(ClusterError, match=r"--on ray needs Ray, .*No module named 'ray'.*pip install 'nfold\[ray\]'"):
        ray_agents("", None, load)


def test_an_actor_gives_its_agent_the_token_and_tells_how_it_ended():
    actor = AgentActor(0, ["/bin/sh", "-c", 'read token; echo "$token it cannot go on"; exit 3'], "sesame:")
    while not actor.look()[0]:
        pass
    assert actor.look() == ("exited with code 3", ["sesame: it cannot go on"])
    actor.end()


def test_an_actor_ends_its_agent():
    actor = AgentActor(0, ["/bin/sh", "-c", "read token; read end"], "sesame")
    assert actor.look() == ("", [])
    actor.end()
    assert actor.look()[0]


def test_an_actor_tells_that_there_is_no_such_program():
    actor = AgentActor(0, ["/no/such/python"], "sesame")
    assert actor.look() == ("cannot be started: [Errno 2] No such file or directory: '/no/such/python'", [])
    actor.end()
