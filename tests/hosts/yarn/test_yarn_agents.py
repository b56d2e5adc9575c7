"""The manager of YARN asks for what is wanted, gives back all, and passes on what YARN says. YARN is a stub here."""

import json
import stat

import pytest

from nfold.errors import ClusterError
from nfold.hosts.manager import PlaceState
from nfold.hosts.managers.yarn.yarn_agents import YarnAgents
from nfold.hosts.managers.yarn.yarn_wishes import YarnWishes


def agents(yarn, say=None, **wishes):
    return YarnAgents(YarnWishes(base=yarn.base, **wishes), name="job", user="ada", say=say or pytest.fail)


@pytest.fixture
def manager(yarn):
    return agents(yarn)


def stages(manager):
    return [state.stage for state in manager.states()]


def test_it_posts_what_it_shows_and_the_token_stands_in_neither(manager, yarn, call, tmp_path):
    shown = manager.dry_run(call, 2)
    assert yarn.changes() == []
    assert list(tmp_path.iterdir()) == []
    manager.start(call, 2)
    posted = next(body for method, _, body, _ in yarn.asked if method == "POST")
    assert shown.startswith(f"POST {yarn.base}/app/v1/services?user.name=ada\n")
    assert json.loads(shown.partition("\n")[2]) == json.loads(posted)
    assert "sesame" not in str(yarn.asked)


def test_the_token_lies_where_only_its_owner_reads_it_until_all_is_closed(manager, yarn, call, tmp_path):
    manager.start(call, 1)
    file = tmp_path / "job.token"
    assert file.read_text() == "sesame\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert yarn.services["job"]["components"][0]["configuration"]["files"][0]["src_file"] == file.as_uri()
    manager.close()
    manager.close()
    assert not file.exists()
    assert yarn.changes() == ["POST /app/v1/services", "DELETE /app/v1/services/job"]
    assert [state.reason for state in manager.states()] == ["was given back"]


def test_places_wait_with_yarns_reason_then_run_on_hosts(manager, yarn, call):
    manager.start(call, 2)
    waiting = PlaceState(place=0, name="", stage="waiting", reason="waiting for AM container to be allocated")
    assert manager.states()[0] == waiting
    yarn.grant("job", 1)
    assert manager.states() == [
        PlaceState(place=0, name="n1", stage="running"),
        PlaceState(place=1, name="", stage="waiting", reason="unsatisfied PC expression"),
    ]


def test_more_are_asked_for_once_the_master_takes_orders(manager, yarn, call):
    manager.start(call, 1)
    manager.start(call, 1)
    assert yarn.changes() == ["POST /app/v1/services"], "it would refuse"
    yarn.grant("job", 1)
    assert stages(manager) == ["running", "waiting"]
    assert yarn.services["job"]["components"][0]["number_of_containers"] == 2


def test_more_are_asked_for_only_once_those_before_have_come(manager, yarn, call):
    manager.start(call, 2)
    yarn.grant("job", 1)
    manager.start(call, 1)
    assert stages(manager) == ["running", "waiting", "waiting"]
    assert yarn.changes() == ["POST /app/v1/services"], "YARN would forget the one that waits"
    yarn.grant("job", 1)
    manager.states()
    assert yarn.services["job"]["components"][0]["number_of_containers"] == 3


def test_a_place_is_given_back_by_its_name_and_its_number_is_not_used_again(manager, yarn, call):
    manager.start(call, 2)
    yarn.grant("job", 2)
    manager.release(0)
    manager.release(0)
    assert stages(manager) == ["ended", "running"]
    assert yarn.changes().count("PUT /app/v1/services/job") == 1
    manager.start(call, 1)
    assert yarn.services["job"]["components"][0]["number_of_containers"] == 2
    yarn.grant("job", 1)
    assert stages(manager) == ["ended", "running", "running"]


def test_a_place_given_back_before_the_master_runs_is_given_back_then(manager, yarn, call):
    manager.start(call, 2)
    manager.release(1)
    yarn.grant("job", 2)
    assert stages(manager) == ["running", "ended"]
    assert list(yarn.services["job"]["granted"]) == ["agent-0"]


def test_a_container_that_ended_by_itself_is_told_and_need_not_be_ended(manager, yarn, call):
    manager.start(call, 1)
    yarn.grant("job", 1, state="FAILED")
    assert manager.states() == [PlaceState(place=0, name="n1", stage="ended", reason="ended (YARN says FAILED)")]
    manager.release(0)
    assert yarn.changes() == ["POST /app/v1/services"]


def test_after_a_service_is_over_the_next_fills_the_next_places(manager, yarn, call):
    manager.start(call, 2)
    yarn.grant("job", 1)
    assert stages(manager) == ["running", "waiting"]
    yarn.diagnostics = "Application is killed: it has exceeded the lifetime period."
    yarn.services["job"]["state"] = "FAILED"
    assert {state.reason for state in manager.states()} == {f"was ended by YARN: {yarn.diagnostics}"}
    manager.start(call, 1)
    assert list(yarn.services) == ["job-2"], "the first's master would count in the queue for half a minute"
    assert "--place $((2+${COMPONENT_ID}))" in yarn.services["job-2"]["components"][0]["launch_command"]
    yarn.grant("job-2", 1)
    assert stages(manager) == ["ended", "ended", "running"]
    manager.close()
    assert yarn.services == {}


def test_while_yarn_cannot_be_asked_places_stay_what_they_were(manager, yarn, call):
    manager.start(call, 2)
    yarn.grant("job", 1)
    manager.states()
    yarn.refusing = {"GET /app": (500, '{"diagnostics": "no master"}')}
    assert [state.stage for state in manager.states()] == ["running", "waiting"]
    assert manager.states()[1].reason.endswith("refuses GET /app/v1/services/job: no master")


def test_the_last_lines_of_a_container_come_from_its_node(manager, yarn, call):
    manager.start(call, 1)
    assert manager.last_lines(0) == []
    yarn.grant("job", 1)
    manager.states()
    yarn.log = "LogType:stderr.txt\nLogContents:\none\ntwo\n\nthree\nfour\n\nEnd of LogType:stderr.txt\n"
    assert manager.last_lines(0) == ["three", "four"]
    yarn.nodes = ["n7"]
    assert manager.last_lines(0) == ["the log of container_0 cannot be read: YARN has lost node n1"]


def test_without_constraints_none_are_asked_for_and_that_is_told(yarn, call):
    said = []
    manager = agents(yarn, said.append)
    yarn.settings["yarn.resourcemanager.placement-constraints.handler"] = "disabled"
    assert manager.dry_run(call, 9).startswith("# this YARN keeps no containers apart")
    manager.start(call, 9)
    assert "placement_policy" not in yarn.services["job"]["components"][0]
    assert [each[:27] for each in said] == ["note: this YARN keeps no co"]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("yarn.webapp.api-service.enable", "false", "has its Services off.*yarn.webapp.api-service.enable to true"),
        ("fs.defaultFS", "s3a://bucket", "the cluster's file system, s3a://bucket, and nfold writes to HDFS and"),
        ("yarn.service.base.path", "file:///nowhere/at/all", "cannot write the job's token to /nowhere/at/all/job.t"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_before_anything_is_posted(manager, yarn, call, setting, value, said):
    yarn.settings[setting] = value
    with pytest.raises(ClusterError, match=said):
        manager.start(call, 1)
    assert yarn.changes() == []


def test_more_agents_than_nodes_are_refused(manager, yarn, call):
    manager.start(call, 2)
    with pytest.raises(ClusterError, match=r"4 agents need 4 nodes, and YARN has 3\. Use --nodes 3"):
        manager.start(call, 2)


def test_what_yarn_refuses_leaves_nothing(manager, yarn, call, tmp_path):
    yarn.refusing = {"POST": (500, '{"diagnostics": "specified memory size (9) is larger than (4)"}')}
    with pytest.raises(ClusterError, match=r"refuses POST /app/v1/services: specified memory size \(9\)"):
        manager.start(call, 1)
    manager.close()
    assert list(tmp_path.iterdir()) == []
    assert manager.states() == []


@pytest.mark.parametrize(
    ("beginning", "status", "text", "said"),
    [
        (
            "GET /conf",
            401,
            "",
            r"HTTP 401 Unauthorized\. It asks for Kerberos, which nfold does not speak: start agents",
        ),
        ("GET /conf", 200, "<html>", r"answers GET /conf with something that is not JSON: <html>\. Is it YARN's"),
        ("POST", 307, "http://rm2:8088/", r"It stands by for another one: use http://rm2:8088/"),
    ],
)
def test_a_server_that_will_not_serve_is_told_with_what_to_do(manager, yarn, call, beginning, status, text, said):
    yarn.refusing = {beginning: (status, text)}
    with pytest.raises(ClusterError, match=said):
        manager.start(call, 1)


def test_what_cannot_be_deleted_is_told_with_how_to_do_it_by_hand(manager, yarn, call):
    manager.start(call, 1)
    yarn.refusing = {"DELETE": (500, '{"diagnostics": "error cleaning up registry"}')}
    with pytest.raises(ClusterError, match=r"error cleaning up registry\. To end it by hand: yarn app -destroy job$"):
        manager.close()
    yarn.refusing = {}
    manager.close()
    assert yarn.services == {}


@pytest.mark.parametrize(
    ("queue", "time_s", "most_s"),
    [("default", None, None), ("default", 90, 90), ("short", None, 600), ("research.short", 90, 90)],
)
def test_the_time_that_is_granted_is_the_users_or_the_queues(yarn, call, queue, time_s, most_s):
    manager = agents(yarn, queue=queue, time_s=time_s)
    manager.start(call, 1)
    assert manager.most_time_s == most_s
    assert yarn.services["job"].get("lifetime") == time_s


@pytest.mark.parametrize(
    ("queue", "time_s", "said"),
    [
        ("long", None, r"YARN has no queue 'long' that takes applications\. It has: default, short\."),
        ("research", None, r"no queue 'research' that takes"),
        ("short", 601, r"--hosts-for 601 is more than YARN's queue short gives: 600 s"),
    ],
)
def test_a_queue_that_is_not_there_or_gives_less_is_refused(yarn, call, queue, time_s, said):
    manager = agents(yarn, queue=queue, time_s=time_s)
    with pytest.raises(ClusterError, match=said):
        manager.start(call, 1)
    assert yarn.changes() == []
