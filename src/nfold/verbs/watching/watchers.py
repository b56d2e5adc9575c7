"""Who watches a run, as its options say."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from nfold.verbs.jobs.live_run import Watcher
from nfold.verbs.options.addresses import read_address
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder


class Watching(Watcher, Protocol):
    """A watcher, and how long it is there."""

    def opened(self, note: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Be there until the end of a block; `note` takes lines for the user.

        Raises:
            NfoldError: that cannot be.
        """
        ...


def watchers_of(options: Options, folder: RunFolder, *, goes_on: bool) -> list[Watching]:
    """Return those that a run is to have; nothing of them is there yet.

    Args:
        options: of the run.
        folder: of the run.
        goes_on: whether it has been there before.
    """
    watchers: list[Watching] = []
    if options.prometheus is not None:
        from nfold.verbs.watching.prometheus import Prometheus

        address = read_address(options.prometheus, "--prometheus")
        watchers.append(Prometheus(address, f"--prometheus {options.prometheus}", os.path.realpath(folder.path)))
    if options.tensorboard is not None:
        from nfold.verbs.watching.tensorboard import TensorBoard

        name = os.path.basename(os.path.realpath(folder.path))
        watchers.append(TensorBoard(Path(options.tensorboard), name, goes_on=goes_on))
    if options.dashboard is not None:
        from nfold.verbs.watching.dashboard import Dashboard

        watchers.append(Dashboard(options.dashboard, folder.path))
    return watchers


@contextlib.contextmanager
def watching(watchers: Sequence[Watching], note: Callable[[str], None]) -> Iterator[None]:
    """Have all of them there until the end of a block.

    Raises:
        NfoldError: one of them cannot be; none is left.
    """
    with contextlib.ExitStack() as ending:
        for each in watchers:
            ending.enter_context(each.opened(note))
        yield
