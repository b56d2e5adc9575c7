"""Lets the tests of this folder share what they define."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
