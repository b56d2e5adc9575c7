"""What the parts of result.json come to: how nets were captured, what was refused, and the worst difference."""

from collections import Counter
from typing import Any

OPAQUE = "opaque"


def stamped(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part whose nets say which code they judge: where they do not, the part does, or nobody knows."""
    of_part = {key: part.get(key, "unknown") for key in ("commit", "date")}
    return {**part, "nets": {name: of_part | net for name, net in part["nets"].items()}}


def summary(parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sum up each part."""
    return {name: summed(part["nets"]) for name, part in parts.items()}


def summed(nets: dict[str, Any]) -> dict[str, Any]:
    """Sum up the nets of a part. What is one opaque operator can only be spread by its batch."""
    runs = [run for net in nets.values() for run in net["runs"]]
    counted = [run for run in runs if "sent_bytes" in run]
    return {
        "nets": len(nets),
        "captured_by": dict(Counter(net["capture"] for net in nets.values() if "capture" in net)),
        "data_parallelism_only": [name for name, net in nets.items() if net.get("capture") == OPAQUE],
        "with_modules_kept_whole": [
            name for name, net in nets.items() if net.get("whole") and net["capture"] != OPAQUE
        ],
        "layouts": len(runs),
        "refused": dict(Counter(run["refused"] for run in runs if "refused" in run)),
        "bytes_equal": sum(run["sent_bytes"] == run["predicted_bytes"] for run in counted),
        "bytes_counted": len(counted),
        "worst_difference": max((run["relative_error"] for run in runs if "relative_error" in run), default=None),
        "broken": [name for name, net in nets.items() if not net["ok"]],
        "commits": sorted({net["commit"] for net in nets.values()}),
    }


def told(part: str, found: dict[str, Any]) -> str:
    """Say it in a line."""
    captured = ", ".join(f"{count} by {how}" for how, count in found["captured_by"].items()) or "nobody noted how"
    opaque, whole = (len(found[key]) for key in ("data_parallelism_only", "with_modules_kept_whole"))
    worst = "unknown" if found["worst_difference"] is None else f"{found['worst_difference']:.1e}"
    return ", ".join(
        [
            f"{part:10} {found['nets']} nets ({captured}; {opaque} by data parallelism only)",
            f"{whole} with modules kept whole",
            f"{found['layouts']} layouts",
            f"{sum(found['refused'].values())} refused",
            f"worst {worst}",
            f"bytes as predicted in {found['bytes_equal']} of {found['bytes_counted']}",
            *([f"WRONG: {', '.join(found['broken'])}"] if found["broken"] else []),
        ]
    )
