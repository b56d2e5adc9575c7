"""Results of benchmarks, as they are written and read."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from environment import known, write


def test_what_was_written_beside_a_script_is_known_there(tmp_path):
    script = str(tmp_path / "run.py")
    assert known(script) == {}
    write({"rows": [1, 2]}, script)
    assert known(script)["rows"] == [1, 2]
    assert known(script)["environment"]["cores"] > 0
