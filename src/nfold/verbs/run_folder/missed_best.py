"""Keeps the best model of a run that was killed after its evaluation and before its model was written.

Ranks wait for that model, and a checkpoint comes before each evaluation: what was missed is the last checkpoint's.
"""

from nfold.core.options.averages import is_averaged
from nfold.core.options.best_model import read_keep
from nfold.runtime.checkpoint.state_file import AVERAGE_PREFIX, MODEL_PREFIX, StoredState
from nfold.verbs.run_folder.files import BEST
from nfold.verbs.run_folder.folder import RunFolder


def keep_missed_best(folder: RunFolder, checkpoint: StoredState) -> None:
    """Write the best model if the last checkpoint's is it, and another one, or none, is there.

    Raises:
        CheckpointError: a file is damaged, or cannot be written.
    """
    wanted = folder.record().keep
    if wanted is None:
        return
    keep, step = read_keep(wanted), checkpoint.step
    values = [line["metrics"].get(keep.metric) for line in folder.history(until=step) if line["step"] == step]
    value = next((each for each in reversed(values) if each is not None), None)
    best = folder.best()
    if value is None or not keep.beats(value, best["value"] if best is not None else None):
        return
    prefix = AVERAGE_PREFIX if is_averaged(keep.metric) and checkpoint.has_averages else MODEL_PREFIX
    facts = {"step": step, "metric": keep.metric, "value": value}
    folder.write_pieces(BEST, checkpoint.model(prefix, facts), f"the best model, of step {step}")
