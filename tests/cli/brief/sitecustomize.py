"""Makes ranks that are processes measure briefly, as soon as they have loaded what measures."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


class Finder:
    """Finds one module, once."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "nfold.verbs.ranks.toolbox":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            from measuring_briefly import measure_briefly

            measure_briefly(setattr)

        spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, Finder())
