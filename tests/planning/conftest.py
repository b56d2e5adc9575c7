"""Lets the tests of this folder share their models and their referee."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
