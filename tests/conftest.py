"""Lets tests of a folder share modules that lie beside them."""

import sys
from pathlib import Path

for folder in ("runtime", "view"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
