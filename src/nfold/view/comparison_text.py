"""A Comparison as sentences: who wins where, and where another takes over. The same in a terminal and on a page."""

from collections.abc import Sequence
from textwrap import fill

from nfold.analysis.measured.winners import TIE
from nfold.core.findings.comparison import Compared, Comparison, Crossover, Winner
from nfold.core.text.units import figure, link_rate, seconds
from nfold.view.rendering import NONE, PLAIN, Look, or_none, render
from nfold.view.tables import run_name


def conclusion_text(comparison: Comparison, *, look: Look = PLAIN) -> str:
    """Return what each run costs until it has learnt, and who wins where."""
    sentences = [*winner_sentences(comparison), *takeover_sentences(comparison), *left_out_sentences(comparison)]
    return "\n".join([_race_table(comparison, look), *(fill(sentence, look.width) for sentence in sentences)]) + "\n"


def _race_table(comparison: Comparison, look: Look) -> str:
    """Return epochs, their cost and the time to a loss; a figure that no run has takes no column."""
    target = "" if comparison.target_loss is None else f"to loss {figure(comparison.target_loss)}"
    columns = {
        "an epoch": [or_none(run.epoch_s, seconds) for run in comparison.runs],
        "costs": [or_none(run.cost_per_epoch) for run in comparison.runs],
        target: [_to_loss(run) for run in comparison.runs],
    }
    kept = [head for head, cells in columns.items() if head and any(cell != NONE for cell in cells)]
    rows = [[run.name, *(columns[head][row] for head in kept)] for row, run in enumerate(comparison.runs)]
    return render(["", *kept], rows, look, numeric=True) if kept else ""


def _to_loss(run: Compared) -> str:
    return "never" if run.time_to_loss_s is None else seconds(run.time_to_loss_s)


def winner_sentences(comparison: Comparison) -> list[str]:
    """Return a sentence for each link, who wins at which measured sizes; then if any of it pays, who learns first."""
    measured = [winner for winner in comparison.winners if winner.origin == "measured"]
    sentences = []
    for link in dict.fromkeys(winner.link_bytes_per_s for winner in measured):
        wins = ", ".join(_win(winner) for winner in measured if winner.link_bytes_per_s == link)
        sentences.append(f"{_place(link)}: {wins}.")
    return [*sentences, *_plain_is_faster(comparison), *_races(comparison)]


def _races(comparison: Comparison) -> list[str]:
    """Say for each link who reached the loss first, the plain run among them: what asynchronous runs are judged by."""
    if comparison.target_loss is None:
        return []
    sentences = []
    plain = [run for run in comparison.runs if run.report.workers == 1]
    for link in dict.fromkeys(run.link_bytes_per_s for run in comparison.runs if run.report.workers > 1):
        spread = [run for run in comparison.runs if run.report.workers > 1 and run.link_bytes_per_s == link]
        times = sorted((run.time_to_loss_s, run_name(run.report)) for run in (*plain, *spread) if run.time_to_loss_s)
        if len(times) > 1:
            (first_s, first), (second_s, second) = times[:2]
            sentences.append(
                f"{_place(link)}, {first} is the first to reach a loss of {figure(comparison.target_loss)}: "
                f"{seconds(first_s)}; then {second}, {seconds(second_s)}."
            )
    return sentences


def _plain_is_faster(comparison: Comparison) -> list[str]:
    """Say so where no number of workers pays; of asynchronous ones only the time to a loss could say it."""
    runs = [run.report for run in comparison.runs if not run.is_asynchronous]
    plain = max((report.samples_per_s for report in runs if report.workers == 1), default=0.0)
    spread = max((report.samples_per_s for report in runs if report.workers > 1), default=plain)
    if spread >= plain:
        return []
    them = "them" if len(runs) == len(comparison.runs) else "the synchronous ones"
    return [
        f"One worker alone is faster than all of {them}: {figure(plain)} samples/s against {figure(spread)} at best."
    ]


def takeover_sentences(comparison: Comparison) -> list[str]:
    """Return a sentence for each size at which another architecture takes over, or one where none does; and one about
    those who could not be predicted."""
    taken = [_takeover(takeover) for takeover in comparison.takeovers] or _never(comparison)
    return [*taken, *_unpredicted(comparison)]


def left_out_sentences(comparison: Comparison) -> list[str]:
    """Say of each run that is missing why it is."""
    return [f"Without {each.name}: {each.why}" for each in comparison.left_out]


def _never(comparison: Comparison) -> list[str]:
    """Say that one always wins, up to the largest size where all that were ranked anywhere were ranked."""
    by_link: dict[float | None, list[Winner]] = {}
    for winner in comparison.winners:
        by_link.setdefault(winner.link_bytes_per_s, []).append(winner)
    compared = [_all_ranked(winners) for winners in by_link.values()]
    clear = {winner.architecture for winners in compared for winner in winners if winner.lead >= TIE}
    if len(clear) != 1 or any(len(winners) < 2 for winners in compared):
        return []
    most = min(max(winner.workers for winner in winners) for winners in compared)
    within = [winner for winners in compared for winner in winners if winner.workers <= most]
    origin = " (predicted)" if any(winner.origin == "predicted" for winner in within) else ""
    return [f"Nothing takes over from {clear.pop()} up to {most} workers{origin}."]


def _all_ranked(winners: Sequence[Winner]) -> list[Winner]:
    """Return the sizes at which every architecture of these links has a figure."""
    every = {name for winner in winners for name in winner.ranked}
    return [winner for winner in winners if set(winner.ranked) == every]


def _unpredicted(comparison: Comparison) -> list[str]:
    """Say whom the sizes beyond the measured ones leave out."""
    predicted = {point.architecture for point in comparison.predicted}
    measured = dict.fromkeys(
        name for winner in comparison.winners if winner.origin == "measured" for name in winner.ranked
    )
    missing = [name for name in measured if name not in predicted]
    if not missing or not predicted:
        return []
    return [f"Not predicted beyond the sizes that were measured, so not ranked there: {', '.join(missing)}."]


def _win(winner: Winner) -> str:
    servers = f" and {winner.servers} more for servers" if winner.servers else ""
    workers = f"{winner.workers} workers{servers}"
    if not winner.second:
        return f"{winner.architecture} with {workers} (no other synchronous run)"
    if winner.lead < TIE:
        return f"{winner.architecture} and {winner.second} are even with {workers}"
    return f"{winner.architecture} with {workers} ({winner.lead:.2f}x {winner.second})"


def _takeover(takeover: Crossover) -> str:
    where = f"{_place(takeover.link_bytes_per_s)}, {takeover.winner} takes over from {takeover.loser}"
    if takeover.workers == takeover.last_workers + 1:
        return f"{where} at {takeover.workers} workers ({takeover.origin})."
    return f"{where} between {takeover.last_workers} and {takeover.workers} workers ({takeover.origin})."


def _place(link_bytes_per_s: float | None) -> str:
    return f"At {link_rate(link_bytes_per_s)}" if link_bytes_per_s else "On these links"
