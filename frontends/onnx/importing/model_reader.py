"""What all scopes of one import share."""

from collections.abc import Mapping
from pathlib import Path

from onnx import FunctionProto, GraphProto, ModelProto

from ....ir.analysis.shape_values import ShapeValues
from ....ir.dims import Dim, bind, parse_dim, symbol, symbols
from ....ir.errors import ModelError, ShapeError
from ....ir.op import FRESH
from ..files.loading import opset_versions
from ..files.metadata import read_symbols

MAX_INLINED_NODES = 100_000

MAX_GIVEN_UP = 256
"""How many bodies of functions may turn out wrong: each nested in another is read twice in every one around it."""

UNKNOWN = frozenset(("?", "-1", "None"))
"""Names that exporters give to sizes that they do not know."""

MAX_NAMED = 3
"""How many of the things that a note counts it also names."""


class ModelReader:
    """What all scopes of one import share: versions, functions, the sizes that names mean, and remarks."""

    def __init__(
        self,
        proto: ModelProto,
        folder: Path | None,
        shapes: Mapping[str, tuple[int, ...]],
        ones: frozenset[str] = frozenset(),
    ) -> None:
        self.proto = proto
        self.ones = ones
        self.taken_not_to_be_one: list[str] = []
        """Open sizes of operands of `Squeeze` without axes: each is 1 where it is among `ones`."""
        self.shapes = shapes
        self._sizes = _sizes_of(proto.graph, shapes)
        self.folder = folder
        self.versions = opset_versions(proto)
        self.functions: dict[tuple[str, str], FunctionProto] = {(f.domain, f.name): f for f in proto.functions}
        self.shape_values = ShapeValues()
        self.notes: list[str] = []
        self._remarks: dict[str, dict[str, str]] = {}
        self._plain = _plain_symbols(proto.graph) | read_symbols(proto)
        self._inlined = 0
        self._given_up = 0

    def count_inlined(self, nodes: int) -> None:
        """Counts nodes that functions add: a few functions that call each other twice could fill any memory."""
        self._inlined += nodes
        if self._inlined > MAX_INLINED_NODES:
            raise ModelError(f"the model's functions expand to more than {MAX_INLINED_NODES} nodes")

    def may_give_up(self) -> bool:
        """Counts a body that turned out wrong; whether the node may be read in another way."""
        self._given_up += 1
        return self._given_up <= MAX_GIVEN_UP

    def remark(self, what: str, name: str, words: str) -> None:
        """Remembers that `what` was done about `name`; the notes count each kind and say the first few in `words`."""
        self._remarks.setdefault(what, {}).setdefault(name, words)

    def note_remarks(self) -> None:
        """Adds the remarks to the notes."""
        for what, items in self._remarks.items():
            more = f", and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
            self.notes.append(f"{len(items)} {what}: {'; '.join([*items.values()][:MAX_NAMED])}{more}")

    def dim_of(self, name: str) -> Dim:
        """The dim that a `dim_param` means: an expression over symbols that inputs have, or one symbol of that name.

        A size of its own where the name says that nothing is known.
        """
        if name in UNKNOWN:
            return FRESH
        try:
            dim = parse_dim(name)
        except ShapeError:
            dim = symbol(name)
        return bind(dim if symbols(dim) <= self._plain else symbol(name), self._sizes)


def _sizes_of(proto: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of each name in the shapes of inputs that have fixed ones."""
    return {
        dim.dim_param: size
        for info in proto.input
        for dim, size in zip(info.type.tensor_type.shape.dim, shapes.get(info.name, ()), strict=False)
        if dim.dim_param
    }


def _plain_symbols(proto: GraphProto) -> frozenset[str]:
    dims = (dim for info in proto.input for dim in info.type.tensor_type.shape.dim)
    return frozenset(dim.dim_param for dim in dims if dim.dim_param.isidentifier())
