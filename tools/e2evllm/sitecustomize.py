"""NIXL's progress thread spins (its wrapper sets pthrDelay to 0), which takes a whole core from the engines of a small machine; this lets it
sleep for 1 ms. Python loads this file by its name from PYTHONPATH. Not for GPUs."""

import importlib.abc
import importlib.machinery
import sys


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if not name.startswith("nixl") or not name.endswith("._bindings"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)

            class nixlAgentConfig(module.nixlAgentConfig):
                def __setattr__(self, key, value):
                    super().__setattr__(key, 1000 if key == "pthrDelay" and value == 0 else value)

            module.nixlAgentConfig = nixlAgentConfig

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
