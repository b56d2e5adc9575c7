"""The process that ranks are forked from: `python -m nfold.verbs.ranks.rank_template SCRIPT`, started by a launcher.

It imports what every rank needs, and the libraries that the script imports before anything else. Nothing of the user's
runs in it. A rank is a copy of it as it is then: one thread, no device.
"""

import faulthandler
import gc
import sys
from functools import partial
from pathlib import Path

from nfold.launch.template_process import Kind, be_template
from nfold.runtime.data.torch_compiler import leave_compiler_out
from nfold.verbs.ranks import rank_process
from nfold.verbs.ranks.script_imports import library_imports


def main() -> None:
    """Import, then fork ranks."""
    faulthandler.enable(all_threads=False)
    script, *words = sys.argv[1:]
    sys.argv = [script]  # as its libraries will see it in the ranks
    load_more = partial(_load_libraries, Path(script))
    be_template(Kind(load=_load, load_more=load_more, is_whole=_is_whole, be_member=_be_rank), words)


def _load() -> None:
    leave_compiler_out()
    gc.disable()
    from nfold.verbs.ranks import rank_work  # noqa: F401  # for the ranks

    gc.freeze()


def _load_libraries(script: Path) -> None:
    from nfold.verbs.ranks.rank_work import the_recorder

    with the_recorder().watching():  # as the rank would, whose program hangs on what they read
        for name, taken in library_imports(script):
            __import__(name, fromlist=taken)
    gc.freeze()


def _is_whole() -> bool:
    cuda = sys.modules["torch"].cuda
    return not (cuda.is_initialized() or cuda._is_in_bad_fork())


def _be_rank(words: list[str]) -> None:
    sys.modules["numpy"].random.seed()  # else all ranks would draw alike; Python's own generator does so by itself
    rank_process.be_rank(words, rank_process.tcp_wiring)


if __name__ == "__main__":
    main()
