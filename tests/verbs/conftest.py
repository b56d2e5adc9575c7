"""Lets the tests of the verbs ask the questions that the tests of planning ask."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "planning"))
