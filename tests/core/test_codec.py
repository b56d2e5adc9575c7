"""Every noun survives its JSON form, and nothing else passes for one."""

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core import codec
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.core.plan import Plan, Rejected
from nfold.core.profile import Profile, Timing
from nfold.core.report import Report, Verdict
from nfold.core.schedule import RankSchedule
from nfold.core.trace import StepParts, StepTrace, Trace
from nfold.errors import NfoldError

TIMING = {"schema": "nfold.Timing/1", "median_s": 1.5, "spread_s": 0.0, "repeats": 3}
TEXTS = st.text('aé/\\"\n ', max_size=3)
POSITIVE = st.floats(1e-3, 1e12)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Hints that no noun has yet, or not all at once."""

    counts: dict[int, float] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    anything: Any = None
    either: int | str = 0
    flag: bool = False


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a hint, read as the codec reads it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SPECIAL:
        return SPECIAL[hint]
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(anything(argument) for argument in arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        names = {each.name: anything(hints[each.name]) for each in dataclasses.fields(hint)}
        return st.builds(hint, **{**names, **({"speed": POSITIVE} if hint is Node else {})})
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(anything(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, arguments))
    if origin is dict:
        return st.dictionaries(anything(arguments[0]), anything(arguments[1]), max_size=2)
    return SCALARS[hint]


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    chunks, world = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rank = st.integers(0, world - 1)
    owners = draw(st.dictionaries(TEXTS, st.tuples(*[rank] * chunks), max_size=2))
    return Placement(num_chunks=chunks, world_size=world, owners=owners)


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(10**20), 10**20),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXTS,
    bool: st.booleans(),
    type(None): st.none(),
    Any: st.one_of(st.none(), st.integers(), TEXTS),
}
SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    Placement: placements(),
    Channel: st.builds(
        Channel, latency_s=POSITIVE, bandwidth_bytes_per_s=POSITIVE, origin=st.sampled_from(["measured", "declared"])
    ),
}
NOUNS = (ModelGraph, Profile, Placement, Plan, StepTrace, Trace, Report, Rejected, StepParts, Sample)


@pytest.mark.parametrize("kind", NOUNS, ids=lambda kind: kind.__name__)
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_a_noun_survives_its_json_form(kind, data):
    noun = data.draw(anything(kind))
    assert codec.loads(kind, codec.dumps(noun)) == noun


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_schedule_survives_what_its_rank_is_sent(data):
    schedule = data.draw(anything(RankSchedule))
    assert RankSchedule.from_document(json.loads(json.dumps(schedule.to_document()))) == schedule


def test_a_trace_of_before_activation_gradients_had_their_name_is_read():
    step = {"step": 0, "origin": "measured", "step_s": [1.0]}
    span = {"rank": 0, "kind": "SEND", "name": "gradient a to 1", "start_s": 0, "end_s": 1, "purpose": "gradient"}
    assert codec.decode(StepTrace, {**step, "spans": [span]}).spans[0].purpose == "gradient"


@settings(max_examples=6, deadline=None)
@given(st.lists(anything(typing.get_type_hints(Cluster)["nodes"].__args__[0]), min_size=1, max_size=3))
def test_a_cluster_survives_its_json_form(nodes):
    cluster = Cluster(nodes=tuple(dataclasses.replace(node, name=f"n{index}") for index, node in enumerate(nodes)))
    assert codec.loads(Cluster, codec.dumps(cluster)) == cluster


def test_the_schema_comes_first():
    assert next(iter(codec.encode(codec.decode(Timing, TIMING)))) == "schema"
    assert codec.encode(codec.decode(Timing, TIMING)) == TIMING


def test_a_verdicts_kind_is_called_class_in_json():
    verdict = Verdict(kind="link", place="rank 0", value=1.0, unit="bytes/s", text="slow")
    document = codec.encode(verdict)
    assert document["class"] == "link"
    assert "kind" not in document
    assert codec.decode(Verdict, document) == verdict
    with pytest.raises(codec.CodecError, match="'class' is missing"):
        codec.decode(Verdict, {**{k: v for k, v in document.items() if k != "class"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "Timing: unknown field 'colour'"),
        ({"median_s": None}, r"Timing.median_s: expected float, got None"),
        ({"median_s": "1"}, r"Timing.median_s: expected float, got '1'"),
        ({"median_s": True}, r"Timing.median_s: expected float, got True"),
        ({"median_s": math.nan}, r"Timing.median_s: expected a finite number, got nan"),
        ({"median_s": math.inf}, r"Timing.median_s: expected a finite number, got inf"),
        ({"median_s": 10**400}, r"Timing.median_s: expected a finite number, got 1000"),
        ({"repeats": 1.0}, r"Timing.repeats: expected int, got 1.0"),
        ({"repeats": False}, r"Timing.repeats: expected int, got False"),
        ({"schema": "nfold.Plan/1"}, "expected a document of schema 'nfold.Timing/1', got 'nfold.Plan/1'"),
        ({"schema": "nfold.Timing/0"}, "expected a document of schema 'nfold.Timing/1', got 'nfold.Timing/0'"),
        ({"schema": "nfold.Timing/new"}, "expected a document of schema 'nfold.Timing/1', got 'nfold.Timing/new'"),
        (
            {"schema": "nfold.Timing/12"},
            "this nfold.Timing is of version 12, and this nfold reads versions up to 1: a newer nfold has written it",
        ),
        ({"schema": None}, "expected a document of schema 'nfold.Timing/1', got None"),
    ],
)
def test_what_is_not_the_noun_is_refused_with_its_path(change, message):
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(Timing, {**TIMING, **change})


def test_what_names_no_schema_is_of_the_first_version():
    document = {key: value for key, value in TIMING.items() if key != "schema"}
    assert codec.decode(Timing, document) == codec.decode(Timing, TIMING)


def test_a_missing_field_is_named():
    with pytest.raises(codec.CodecError, match="Timing: the field 'repeats' is missing"):
        codec.decode(Timing, {key: value for key, value in TIMING.items() if key != "repeats"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": {"1.5": 1.0}}, r"Sample.counts: expected keys of type int, got '1.5'"),
        ({"counts": []}, r"Sample.counts: expected an object, got \[\]"),
        ({"counts": {"1": "x"}}, r"Sample.counts.1: expected float, got 'x'"),
        ({"pair": [1]}, r"Sample.pair: expected a list of 2, got \[1\]"),
        ({"pair": "ab"}, r"Sample.pair: expected a list, got 'ab'"),
        ({"pair": [1, 2]}, r"Sample.pair\[1\]: expected str, got 2"),
        ({"either": 1.5}, r"Sample.either: expected int, got 1.5"),
        ({"either": None}, r"Sample.either: expected int, got None"),
        ({"flag": 1}, r"Sample.flag: expected bool, got 1"),
    ],
)
def test_nested_values_are_as_strict(change, message):
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(Sample, {"schema": "nfold.Sample/1", **change})


def test_a_literal_lists_what_it_may_be():
    document = {"schema": "nfold.Channel/1", "latency_s": 0, "bandwidth_bytes_per_s": 1, "origin": "guessed"}
    with pytest.raises(codec.CodecError, match=r"Channel.origin: expected one of 'measured', 'declared'"):
        codec.decode(Channel, document)


def test_whole_numbers_pass_for_floats():
    assert codec.decode(Timing, {**TIMING, "median_s": 2}).median_s == 2.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_json_form(value):
    with pytest.raises(codec.CodecError, match="has no JSON form"):
        codec.dumps(Timing(median_s=value, spread_s=0.0, repeats=1))


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", '{"schema": NaN}', "nonsense"])
def test_text_that_is_no_document_is_refused(text):
    with pytest.raises(codec.CodecError) as caught:
        codec.loads(Timing, text)
    assert isinstance(caught.value, NfoldError)
    assert isinstance(caught.value, ValueError)


def test_saving_and_loading(tmp_path):
    timing = codec.decode(Timing, TIMING)
    codec.save(timing, tmp_path / "timing.json")
    assert codec.load(Timing, tmp_path / "timing.json") == timing
    assert json.loads((tmp_path / "timing.json").read_text()) == TIMING
    assert [path.name for path in tmp_path.iterdir()] == ["timing.json"]


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "timing.json"
    codec.save(codec.decode(Timing, TIMING), path)
    with pytest.raises(codec.CodecError):
        codec.save(Timing(median_s=math.nan, spread_s=0.0, repeats=1), path)
    assert codec.load(Timing, path).median_s == 1.5


def test_a_save_is_never_seen_half_written(tmp_path, monkeypatch):
    path = tmp_path / "timing.json"
    codec.save(codec.decode(Timing, TIMING), path)

    def full_disk(self, text, encoding):
        with open(self, "w", encoding=encoding) as file:
            file.write(text[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        codec.save(Timing(median_s=9.0, spread_s=0.0, repeats=1), path)
    assert codec.load(Timing, path).median_s == 1.5


def test_loading_says_which_file_and_why(tmp_path):
    with pytest.raises(codec.CodecError, match=r"cannot read .*none.json: No such file"):
        codec.load(Timing, tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"schema": "nfold.Plan/1"}')
    with pytest.raises(codec.CodecError, match=r"bad.json: expected a document of schema"):
        codec.load(Timing, tmp_path / "bad.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(codec.CodecError, match=r"binary.json: not text"):
        codec.load(Timing, tmp_path / "binary.json")
