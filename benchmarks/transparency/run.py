"""Compares what distributed runs learn with what one plain PyTorch loop over the same chunks learns."""

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from spreading import ROOT, State, difference, measure, subject_of

import nfold

sys.path.insert(0, str(ROOT / "benchmarks"))
from environment import write
from programs.zoo import ZOO, Style

SCRIPT = Path(__file__).parent / "scripts.py"
IN_PROCESSES = ("plain", "residual", "gpt", "integers")
LAYOUTS = (("ring", 2), ("ring", 3), ("ps", 2), ("ps", 3))
PARTS = ("zoo", "foreign", "processes")
RANKS = {"zoo": (2, 3, 4), "foreign": (3,)}
"""Foreign nets are captured by torch.export, seconds for each rank."""


def spread(name: str, style: Style, num_steps: int, numbers: tuple[int, ...], placements: int) -> dict[str, Any]:
    """Measure one program under every layout; print a line."""
    found = measure(style, num_steps, numbers, placements)
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


def in_process(name: str, num_steps: int) -> dict[str, Any]:
    """Train one program with real ranks, over TCP."""
    subject, rows = subject_of(ZOO[name], num_steps), []
    for strategy, workers in LAYOUTS:
        error = difference(_trained(name, strategy, workers, num_steps), subject.reference)
        ok = error <= ZOO[name].tolerance
        rows.append({"layout": strategy, "ranks": workers, "relative_error": error, "ok": ok})
        print(f"{name:16} {strategy} on {workers} processes  {error:.1e}  {'ok' if ok else 'WRONG'}", flush=True)
    return {"against": subject.against, "ok": all(row["ok"] for row in rows), "runs": rows}


def _trained(name: str, strategy: str, workers: int, num_steps: int) -> State:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return nfold.train(
            f"{SCRIPT}:{name}", workers=workers, strategy=strategy, steps=num_steps, out=out
        ).state_dict()


def played(part: str, num_steps: int, placements: int, net: str) -> dict[str, Any]:
    """Measure all programs of a part, or one."""
    if part == "processes":
        return {name: in_process(name, num_steps) for name in IN_PROCESSES if net in ("", name)}
    styles = ZOO if part == "zoo" else foreign()
    return {
        name: spread(name, style, num_steps, RANKS[part], placements)
        for name, style in styles.items()
        if net in ("", name)
    }


def known() -> dict[str, Any]:
    """Return the parts that result.json has."""
    path = Path(__file__).with_name("result.json")
    return (
        {part: found for part, found in json.loads(path.read_text()).items() if part in PARTS} if path.exists() else {}
    )


def main() -> None:
    """Measure, print, write each part to result.json when it ends, and fail if a promise is broken."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--placements", type=int, default=3, help="random ones for each number of ranks")
    options.add_argument("--only", choices=PARTS, help="one part; the others stay in result.json as they were")
    options.add_argument("--net", default="", help="one net of that part; the others stay as they were")
    given = options.parse_args()
    torch.set_num_threads(1)
    parts = (given.only,) if given.only else PARTS
    found = known() if given.only else {}
    for part in parts:
        others = found[part]["nets"] if given.net else {}
        nets = others | played(part, given.steps, given.placements, given.net)
        found[part] = {"steps": given.steps, "nets": nets}
        write(found, __file__)
    broken = [name for part in parts for name, each in found[part]["nets"].items() if not each["ok"]]
    if broken:
        sys.exit(f"differs by more than allowed: {', '.join(broken)}")


if __name__ == "__main__":
    main()
