"""What an import from PyTorch gives: a graph, and how it stands for a module."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import Signature
from typing import Any

import torch

from ...ir.graph import Graph
from .guards import Guard
from .sizes import InFloats


@dataclass(frozen=True)
class CheckedOutput:
    """An output bool[count] that is no result: what has to be true; for each the message otherwise, and its place."""

    name: str
    said: Sequence[tuple[str, str]]


@dataclass
class TorchModel:
    """A graph, and how its inputs and outputs stand for what the module takes and gives.

    `in_spec` and `out_spec` are PyTorch's pytree specs of (args, kwargs) and of the result. `inputs` has for each leaf
    of the former the input's name, None for a leaf that is no tensor, whose value stands in `fixed`. `outputs` has for
    each leaf of the latter the output's name, or None and a plain value in `plain`; those in
    `numbers` are Python numbers. Inputs and outputs in `pairs` are complex, with their parts along a
    last axis. `states` are tensors of the module
    by the name of the input that holds their old content; `state_outputs` names the outputs with the new content.
    `ranges` are those of single sizes, least and greatest (None: no limit), `guards` other relations that every call
    has to keep. `on_gpu` are the inputs that the trace had on a GPU, `on_host` the outputs that it had in main memory,
    where it had any tensor on a GPU. `sizes` are inputs that stand for a size: nothing but their length counts.
    `checks` is the output that tells whether what PyTorch checks at run time holds, None where it checks nothing.
    `signature` says how the module's forward is called, None where that is not known.
    """

    graph: Graph
    in_spec: Any = None
    out_spec: Any = None
    inputs: list[str | None] = field(default_factory=list)
    fixed: list[Any] = field(default_factory=list)
    outputs: list[str | None] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)
    on_gpu: set[str] = field(default_factory=set)
    on_host: set[str] = field(default_factory=set)
    signature: Signature | None = None
    states: dict[str, Any] = field(default_factory=dict)
    state_outputs: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    guards: list[Guard | InFloats] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checks: CheckedOutput | None = None

    def note_input(self, name: str, tensor: Any) -> None:
        """Notes where the trace had an input; `tensor` is its fake."""
        if tensor.is_cuda:
            self.on_gpu.add(name)

    def note_output(self, name: str, node: Any, gpu: str) -> None:
        """Notes where the trace, on the device `gpu` ("" for none), had an output, which a node or a number gives."""
        tensor = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if gpu and isinstance(tensor, torch.Tensor) and tensor.is_cpu:
            self.on_host.add(name)


def gpu_of_trace(graph: Any) -> str:
    """The GPU that a tensor in an fx graph lies on; "" where none does."""
    values = (each for node in graph.nodes for each in _tensors(node.meta.get("val")))
    return next((str(value.device) for value in values if value.is_cuda), "")


def _tensors(meta: Any) -> list[Any]:
    listed = meta if isinstance(meta, list | tuple) else [meta]
    return [each for each in listed if isinstance(each, torch.Tensor)]
