"""Compares what distributed runs learn with what one plain PyTorch loop over the same chunks learns."""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from parts import stamped, summary, told
from spreading import ROOT, State, Sweep, difference, measure, subject_of

import nfold
from nfold.errors import PlanError

sys.path.insert(0, str(ROOT / "benchmarks"))
from environment import known, stamp, write
from programs.zoo import ZOO, Style

SCRIPT = Path(__file__).parent / "scripts.py"
IN_PROCESSES = ("plain", "residual", "gpt", "integers")
LAYOUTS = tuple((name, ranks) for name in ("ring", "ps", "pipeline", "hybrid", "hypergraph") for ranks in (2, 3))
SPINE = ("plain", "residual", "inception", "tied", "integers")
"""Convolutions, batch norm with skips, dropout, tied weights, and sums without rounding."""
PARTS = ("spine", "zoo", "foreign", "processes")
SWEEPS = {
    "spine": Sweep(steps=20, ranks=(2, 3), strategies=("ring", "ps")),
    "zoo": Sweep(steps=10, ranks=(2, 3, 4), placements=3, parts=2),
    "foreign": Sweep(steps=10, ranks=(3,), placements=3, parts=2),
}
"""Foreign nets are captured by torch.export, seconds for each rank."""
STEPS_IN_PROCESSES = 10


def spread(name: str, style: Style, sweep: Sweep) -> dict[str, Any]:
    """Measure one program under every layout; print a line."""
    found = {**stamp(), **measure(style, sweep)}
    worst = "refused everywhere" if found["worst"] is None else f"worst {found['worst']:.1e}"
    refused = sum("refused" in row for row in found["runs"])
    size = f"{found['capture']:6} {found['operators']:3} operators"
    runs = f"{len(found['runs']) - refused:3} layouts, {refused} refused"
    print(f"{name:16} {size}  {runs}  {worst}  {'ok' if found['ok'] else 'WRONG'}", flush=True)
    return found


def foreign() -> dict[str, Style]:
    """Return the nets of the package transformers; none where it is not installed."""
    if importlib.util.find_spec("transformers") is None:
        print("transformers is not installed, so its nets are left out: pip install -e '.[zoo]'")
        return {}
    from programs.foreign import FOREIGN

    return FOREIGN


def in_process(name: str) -> dict[str, Any]:
    """Train one program with real ranks, over TCP."""
    subject, rows = subject_of(ZOO[name], STEPS_IN_PROCESSES), []
    for strategy, workers in LAYOUTS:
        row = {"layout": strategy, "ranks": workers}
        try:
            error = difference(_trained(name, strategy, workers), subject.reference)
        except PlanError as refusal:
            rows.append({**row, "refused": str(refusal), "ok": True})
            continue
        ok = error <= ZOO[name].tolerance
        rows.append({**row, "relative_error": error, "ok": ok})
        print(f"{name:16} {strategy} on {workers} processes  {error:.1e}  {'ok' if ok else 'WRONG'}", flush=True)
    return {**stamp(), "against": subject.against, "ok": all(row["ok"] for row in rows), "runs": rows}


def _trained(name: str, strategy: str, workers: int) -> State:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return nfold.train(
            f"{SCRIPT}:{name}", workers=workers, strategy=strategy, steps=STEPS_IN_PROCESSES, out=out
        ).state_dict()


def styles_of(part: str) -> dict[str, Style]:
    """Return the programs that a part plays on threads."""
    if part == "foreign":
        return foreign()
    return {name: ZOO[name] for name in SPINE} if part == "spine" else ZOO


def played(part: str, net: str) -> dict[str, Any]:
    """Measure all programs of a part, or one."""
    if part == "processes":
        return {name: in_process(name) for name in IN_PROCESSES if net in ("", name)}
    return {name: spread(name, style, SWEEPS[part]) for name, style in styles_of(part).items() if net in ("", name)}


def kept() -> dict[str, Any]:
    """Return the parts that result.json has."""
    before = known(__file__)
    return {part: stamped(before[part]) for part in PARTS if part in before}


def keep(found: dict[str, Any]) -> None:
    """Write all parts, and what they come to."""
    write({"summary": summary(found), **found}, __file__)


def main() -> None:
    """Measure, print, write each part to result.json when it ends, and fail if a promise is broken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=PARTS, help="one part; the others stay in result.json as they were")
    options.add_argument("--net", default="", help="one net of that part; the others stay as they were")
    options.add_argument("--summary", action="store_true", help="say what result.json comes to and measure nothing")
    given = options.parse_args()
    if given.summary:
        print("\n".join(told(part, each) for part, each in summary(kept()).items()))
        return
    torch.set_num_threads(1)
    parts = (given.only,) if given.only else PARTS
    found = kept() if given.only else {}
    for part in parts:
        others = found[part]["nets"] if given.net and part in found else {}
        steps = SWEEPS[part].steps if part in SWEEPS else STEPS_IN_PROCESSES
        found[part] = {**stamp(), "steps": steps, "nets": others | played(part, given.net)}
        keep(found)
        print(told(part, summary(found)[part]), flush=True)
    broken = [name for part in parts for name in summary(found)[part]["broken"]]
    if broken:
        sys.exit(f"differs by more than allowed: {', '.join(broken)}")


if __name__ == "__main__":
    main()
