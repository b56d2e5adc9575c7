"""Asks of each net of the transparency benchmark whether its samples are proved apart, and times proof and trial."""

import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from nfold.capture.example_batches import sample_batches
from nfold.capture.independence.divisible import why_indivisible
from nfold.capture.proof.prove import prove
from nfold.capture.side_effects.module_states import fresh_copies

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import stamp, write
from programs.foreign import FOREIGN
from programs.zoo import ZOO, Style


def judged(style: Style) -> dict[str, Any]:
    """Prove one net, and try it as it would be without a proof."""
    torch.manual_seed(0)
    model, example = style.model().double().train(), sample_batches(style.data())
    fresh = fresh_copies(model, None)
    begin = time.perf_counter()
    proof = prove(fresh(), style.loss, example)
    proved_s, begin = time.perf_counter() - begin, time.perf_counter()
    tried = why_indivisible(fresh, style.loss, example)
    tried_s = time.perf_counter() - begin
    return {
        "verdict": proof.verdict,
        "reason": proof.reason,
        "operators": proof.num_operators,
        "conditions": [condition.why for condition in proof.conditions],
        "proof_s": round(proved_s, 3),
        "trial_s": round(tried_s, 3),
        "tried": tried,
    }


def main() -> None:
    """Measure, print and write result.json; fail if a net is called mixed that a trial calls good."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begin = time.process_time()
    judged(ZOO["plain"])  # loads what following needs
    first_s = time.process_time() - begin
    found = {}
    for name, style in {**ZOO, **FOREIGN}.items():
        found[name] = judged(style)
        print(
            f"{name:20} {found[name]['verdict']:8} {found[name]['proof_s']:6.2f} s  {found[name]['reason']}", flush=True
        )
    verdicts = [each["verdict"] for each in found.values()]
    summary = {
        **{verdict: verdicts.count(verdict) for verdict in ("proved", "mixed", "unknown")},
        "first_processor_s": round(first_s, 2),
        "median_proof_s": statistics.median(each["proof_s"] for each in found.values()),
        "total_proof_s": round(sum(each["proof_s"] for each in found.values()), 1),
        "total_trial_s": round(sum(each["trial_s"] for each in found.values()), 1),
    }
    print(summary)
    write({**stamp(), "summary": summary, "nets": found}, __file__)
    wrong = [name for name, each in found.items() if each["verdict"] == "mixed" and not each["tried"]]
    if wrong:
        sys.exit(f"called mixed, and are not: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
