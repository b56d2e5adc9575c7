"""Lets a process that runs or plans for a test measure only for a moment.

What is planned here would be planned whatever operators take. What a user's run measures with is left as it is where
a test is about what was measured, and in the run that test_printed_and_left.py looks at.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

BRIEFLY_S = 0.05


def measure_briefly(put: Callable[[Any, str, Any], None]) -> None:
    """Shorten what a rank measures of the program and its node.

    Args:
        put: `setattr`, or what undoes it later.
    """
    from nfold.profiling import node_measuring, recall
    from nfold.verbs.ranks import toolbox

    put(recall, "APART", inf)  # what is measured so briefly, or beside other tests, says little

    put(node_measuring, "_BUDGET_S", BRIEFLY_S)
    put(toolbox, "PROFILE_S", 2 * BRIEFLY_S)
    put(toolbox, "Toolbox", partial(toolbox.Toolbox, pace_s=BRIEFLY_S))


def probe_briefly(put: Callable[[Any, str, Any], None]) -> None:
    """The same for links, where nothing is asked of them.

    Args:
        put: `setattr`, or what undoes it later.
    """
    from nfold.verbs.ranks import toolbox

    put(toolbox, "probe_pair", partial(toolbox.probe_pair, budget_s=BRIEFLY_S))
