"""What is read and written for YARN, as data."""

from dataclasses import replace

import pytest

from nfold.errors import ClusterError, PlanError
from nfold.hosts.manager import Call
from nfold.hosts.managers.yarn.cluster_facts import read_facts
from nfold.hosts.managers.yarn.hadoop_rest import words
from nfold.hosts.managers.yarn.service import launch_command, short, why_waiting
from nfold.hosts.managers.yarn.shared_token import token_file
from nfold.hosts.managers.yarn.yarn_wishes import YarnWishes, read_wishes

HTTP = "dfs.namenode.http-address"


def facts(settings, scheduler=None):
    conf = {"properties": [{"key": key, "value": value} for key, value in settings.items()]}
    queues = {"scheduler": {"schedulerInfo": scheduler or {"type": "fifoScheduler"}}}
    return read_facts(conf, queues, {"clusterMetrics": {"activeNodes": 3}})


@pytest.mark.parametrize(
    ("where", "wishes"),
    [
        ("http://rm:8088", YarnWishes(base="http://rm:8088")),
        ("https://rm/", YarnWishes(base="https://rm")),
        ("http://rm:8088/root.short", YarnWishes(base="http://rm:8088", queue="root.short")),
        ("http://rm:8088/short?memory=512", YarnWishes(base="http://rm:8088", queue="short", memory_mb=512)),
    ],
)
def test_wishes_are_read(where, wishes):
    assert read_wishes(where, None, None) == wishes
    assert read_wishes(where, 3, 59.5) == replace(wishes, cpus=3, time_s=60)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("rm:8088", r"--on yarn:rm:8088: it must be the ResourceManager's web address, as in yarn:http://RM:8088"),
        ("http://rm?memory=4g", r"memory=4g is nothing to ask for\. It may say as much as yarn:http"),
        pytest.param("http://rm?memory=" + "1" * 5000, r"memory=1+ is nothing", id="memory, 5000 digits"),
        ("http://rm?memory=0", r"memory=0 is nothing"),
        ("http://rm?gpus=1", r"gpus=1 is nothing"),
    ],
)
def test_other_wishes_are_refused(where, said):
    with pytest.raises(PlanError, match=said):
        read_wishes(where, None, None)


@pytest.mark.parametrize(
    ("scheduler", "paths"),
    [
        ({"type": "fifoScheduler"}, ["default"]),
        ({"type": "capacityScheduler", "queueName": "root", "queues": {"queue": {"queueName": "a"}}}, ["root.a"]),
        (
            {
                "type": "fairScheduler",
                "rootQueue": {
                    "queueName": "root",
                    "childQueues": {"queue": [{"queueName": "root.a"}, {"queueName": "root.b", "childQueues": {}}]},
                },
            },
            ["root.a", "root.b"],
        ),
    ],
)
def test_queues_of_each_scheduler_are_found(scheduler, paths):
    assert [queue.path for queue in facts({}, scheduler).queues] == paths


def test_answers_of_another_form_are_refused():
    with pytest.raises(ClusterError, match=r"what nfold cannot read \(KeyError: 'properties'\)\. nfold knows"):
        read_facts({}, {}, {})


@pytest.mark.parametrize(
    ("settings", "web"),
    [
        ({"fs.defaultFS": "hdfs://nn:8020"}, ("http://nn:9870",)),
        ({"fs.defaultFS": "hdfs://nn:8020", HTTP: "0.0.0.0:50070"}, ("http://nn:50070",)),
        (
            {
                "fs.defaultFS": "hdfs://both",
                "dfs.ha.namenodes.both": "a, b",
                f"{HTTP}.both.a": "one:9870",
                f"{HTTP}.both.b": "two:9870",
            },
            ("http://one:9870", "http://two:9870"),
        ),
        ({"fs.defaultFS": "file:///"}, ()),
    ],
)
def test_name_nodes_are_found(settings, web):
    assert facts(settings).name_nodes == web


def test_a_token_in_hdfs_lies_in_the_users_home():
    file = token_file(facts({"fs.defaultFS": "hdfs://nn:8020"}), "ada", "job")
    assert file.uri == "hdfs://nn:8020/user/ada/job.token"


def test_an_agent_is_told_what_was_granted():
    call = Call(addresses=(("h", 1),), token="t", interpreter="/py")
    command = launch_command(call, YarnWishes(base="http://rm", cpus=3, memory_mb=512), 0)
    assert " --cores 3 --memory-mib 448 --place " in command


def test_a_command_that_yarn_would_read_otherwise_is_refused():
    call = Call(addresses=(("h", 1),), token="t", interpreter="/a$b/python")
    with pytest.raises(ClusterError, match=r"between double quotes, so \$ cannot stand in it: '/a\$b/python'"):
        launch_command(call, YarnWishes(base="http://rm"), 0)


def test_of_why_it_waits_the_newest_is_told_once():
    attempt, nothing = {"diagnostic": "no room"}, {"diagnostic": "Request does not need more resource"}
    newest = {"requests": [{"allocationAttempts": [attempt, attempt, nothing]}], "diagnostic": "skipped"}
    assert why_waiting({"appActivities": {"allocations": [newest, {"diagnostic": "old"}]}}) == "skipped; no room"
    assert why_waiting({"appActivities": {"diagnostic": "Not Capacity Scheduler"}}) == ""


def test_of_an_application_the_figures_are_left_out():
    said = "[Thu Nov 26 01:36:39 +0000 2026] Application is Activated. Details : AM Partition = <DEFAULT>"
    assert short(said) == "Application is Activated."
    assert short("killed by user") == "killed by user"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"diagnostics": "unknown queue: nosuch"}', "unknown queue: nosuch"),
        ('{"RemoteException": {"exception": "AccessControlException", "message": "denied"}}', "denied"),
        ("<html><head><title>Error 404 Not Found</title></head></html>", "Error 404 Not Found"),
        ("gone", ""),
    ],
)
def test_refusals_are_read(text, said):
    assert words(text) == said
