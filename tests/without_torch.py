"""A plugin for pytest (`-p without_torch`): whoever imports torch fails, so what passes needs none."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]
