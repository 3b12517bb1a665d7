"""Imports of every model of the sweep, small, as a trace on a GPU gives it: `make test-ops`.

    python -m tests.frontends.torch.models_on_cuda [NAME ...] [--dtype float16]

A line for each: its nodes, and operators that stay foreign. The exit status is 1 when an import fails, but for what
torch.export itself refuses.
"""

import argparse
import sys
import warnings
from typing import Any

import torch
from capgraph.frontends.torch import from_torch
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.program import foreign_nodes

from benchmarks.gpu.sweep.subject import Subject
from benchmarks.gpu.sweep.table import SUBJECTS
from tests.frontends.torch.fake_cuda import fake_cuda, module_on_cuda, on_cuda

REFUSED = "torch.export refuses"


def graph_on_cuda(subject: Subject, dtype: Any) -> Graph:
    """The graph of a small module on a GPU. Raises what the import raises."""
    module = subject.module(small=True, dtype=dtype, device="cpu")
    given = subject.inputs(2, subject.small[0], dtype, "cpu")
    with fake_cuda() as mode:
        return from_torch(module_on_cuda(mode, module), tuple(on_cuda(mode, each) for each in given)).graph


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float16")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    for name in arguments.names or [name for name, subject in SUBJECTS.items() if subject.is_installed]:
        try:
            with warnings.catch_warnings(action="ignore"):
                graph = graph_on_cuda(SUBJECTS[name], getattr(torch, arguments.dtype))
        except Exception as error:  # noqa: BLE001  # a model that fails is a line of the table
            is_refused = isinstance(error, UnsupportedError) and REFUSED in str(error)
            failed += not is_refused
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
            print(f"{name:36} {'refused' if is_refused else 'FAILS'} {said}", flush=True)
            continue
        foreign = {each: len(nodes) for each, nodes in foreign_nodes(graph).items()}
        print(f"{name:36} {len(graph):5} nodes {foreign or ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
