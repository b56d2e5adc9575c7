"""How the benchmark of transparency counts its nets."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "transparency"))

from parts import stamped, summary, told

EXACT = {"relative_error": 1e-15, "sent_bytes": 8, "predicted_bytes": 8, "ok": True}


def net(capture, *runs, whole=(), ok=True):
    return {"capture": capture, "whole": list(whole), "ok": ok, "runs": list(runs)}


def test_what_could_not_be_captured_is_counted():
    nets = {
        "a": net("fx"),
        "b": net("fx", whole=["model.pooler"]),
        "c": net("export"),
        "d": net("opaque", whole=["model.pooler"]),
    }
    found = summary({"zoo": stamped({"nets": nets})})["zoo"]
    assert found["captured_by"] == {"fx": 2, "export": 1, "opaque": 1}
    assert found["data_parallelism_only"] == ["d"]
    assert found["with_modules_kept_whole"] == ["b"]
    assert "4 nets (2 by fx, 1 by export, 1 by opaque; 1 by data parallelism only), 1 with modules kept whole" in told(
        "zoo", found
    )


def test_refusals_bytes_and_differences_are_of_all_runs():
    runs = (EXACT, {"refused": "too few"}, {**EXACT, "sent_bytes": 9, "relative_error": 0.1, "ok": False})
    found = summary({"zoo": stamped({"nets": {"a": net("fx", *runs, ok=False), "b": net("fx", EXACT)}})})["zoo"]
    assert (found["layouts"], found["refused"]) == (4, {"too few": 1})
    assert (found["bytes_equal"], found["bytes_counted"]) == (2, 3)
    assert (found["worst_difference"], found["broken"]) == (0.1, ["a"])


def test_a_net_without_a_commit_has_that_of_its_part():
    part = stamped({"commit": "abc", "date": "today", "nets": {"a": net("fx"), "b": {**net("fx"), "commit": "old"}}})
    assert [each["commit"] for each in part["nets"].values()] == ["abc", "old"]
    assert stamped({"nets": {"a": net("fx")}})["nets"]["a"]["commit"] == "unknown"
    assert summary({"zoo": part})["zoo"]["commits"] == ["abc", "old"]
