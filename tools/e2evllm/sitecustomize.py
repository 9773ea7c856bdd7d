"""Makes vLLM usable on small machines, where several engines share a core. It changes no results, only how processes wait. Python loads a file of this name
from PYTHONPATH. Not for GPUs.

NIXL's progress thread spins (its wrapper sets pthrDelay to 0), which takes a whole core from the engines: it may sleep for 1 ms.

The core of an engine and its worker pass messages through shared memory (shm_broadcast.py). A reader spins for a second after each message, holding
Python's lock, and then sleeps until it is notified; a notification can get lost, and then it sleeps for 5 s. Here it spins for 20 ms and looks again
every 20 ms.

On a CPU, the processes of an engine are spawned, and each imports PyTorch and vLLM again. Here they are forked, as on a GPU: four engines and a reference
then start in two thirds of the time. The core of an engine with LMCache dies without a word if it is forked: TANDEM_SPAWN keeps it as it was.

Mooncake's connector asks for the index of an accelerator, and a CPU has none.
"""

import importlib.abc
import importlib.machinery
import multiprocessing
import os
import sys


def calm_nixl(module):
    class nixlAgentConfig(module.nixlAgentConfig):
        def __setattr__(self, key, value):
            super().__setattr__(key, 1000 if key == "pthrDelay" and value == 0 else value)

    module.nixlAgentConfig = nixlAgentConfig


def calm_readers(module):
    class SpinCondition(module.SpinCondition):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.busy_loop_s = min(self.busy_loop_s, 0.02)

        def wait(self, timeout_ms=None):
            super().wait(20 if timeout_ms is None else min(timeout_ms, 20))

    module.SpinCondition = SpinCondition


def number_cpu(module):
    module.torch.accelerator.current_device_index = lambda: 0


def fork(module):
    module.get_mp_context = lambda: multiprocessing.get_context("fork")


def calms(name):
    """The function that calms the module of that name, or None."""
    if name.startswith("nixl") and name.endswith("._bindings"):
        return calm_nixl
    if name == "vllm.distributed.device_communicators.shm_broadcast":
        return calm_readers
    if name == "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector":
        return number_cpu
    if name == "vllm.utils.system_utils" and "TANDEM_SPAWN" not in os.environ:
        return fork
    return None


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        calm = calms(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if calm else None
        if spec is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            calm(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
