"""What all graphs of one exported model share."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from ....ir.constant import Constant
from ....ir.errors import CapgraphError, UnsupportedError
from ..context.dialect import Dialect
from ..contrib import missing_in
from ..contrib.group import Operator
from ..files.writing import Storage


class NeedsOpset(CapgraphError):
    """A node needs a newer opset than the one being written. Never reaches users."""

    def __init__(self, version: int, message: str) -> None:
        super().__init__(message)
        self.version = version


class LacksKernel(CapgraphError):
    """ONNX Runtime has no kernel for a node at the opset being written. Never reaches users."""

    def __init__(self, op_type: str, last: int) -> None:
        super().__init__(f"ONNX Runtime has no kernel for {op_type} after opset {last}")
        self.last = last


LAST_KERNELS = dict.fromkeys(
    (
        "Bernoulli",
        "GlobalLpPool",
        "MaxRoiPool",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "RoiAlign",
    ),
    21,
)
"""The last opset for whose version of an operator ONNX Runtime 1.31 has a kernel on the CPU or runs the body."""


NEWEST_OPSET, NEWEST_IR = 26, 13
"""The newest versions that ONNX Runtime 1.31 takes."""


@dataclass(frozen=True)
class Large:
    """An initializer that is attached after the check, so that the checker need not copy it."""

    name: str
    content: Constant


class ModelWriter:
    """What all graphs of one exported model share: versions, names that are taken, and storage."""

    def __init__(
        self,
        opset: int,
        storage: Storage,
        value_info: bool,
        dialect: Dialect = Dialect.FAITHFUL,
        operators: Collection[Operator] = (),
    ) -> None:
        self.opset = opset
        self.operators = missing_in(opset, operators) if dialect is Dialect.ORT else frozenset[Operator]()
        self.storage = storage
        self.value_info = value_info
        self.dialect = dialect
        self.versions = {"": opset}
        self.came_at = 0  # the opset of the model that the graph came from; 0 for one from elsewhere
        self.last: int | None = None  # the newest opset that the model may have; None for any
        self.is_fixed = False  # whether the caller chose the opset
        self.wants_kernels = False  # whether every operator is to have a kernel in ONNX Runtime
        self._limits: dict[str, int] = {}
        self.node_names: set[str] = set()
        self.type_texts: dict[str, str] = {}  # of names that stand for no value of the graph
        self.as_parts: Counter[str] = Counter()  # ops whose operator the opset lacks
        self.is_inlined_early = False  # whether some operator is one that ONNX Runtime should run as its body
        self.doubts: list[CapgraphError] = []  # what is wrong if the checker refuses the model
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}

    def reserve(self, name: str) -> str:
        """Takes a name as it is."""
        self._names.add(name)
        return name

    def new_name(self, wish: str) -> str:
        """`wish`, or with a suffix when it is taken: names are unique over all subgraphs."""
        return _unique(wish, self._names, self._suffixes)

    def node_name(self, wish: str) -> str:
        """A name for a node, unique in the model."""
        return _unique(wish, self.node_names, self._suffixes)

    def check_kernel(self, op_type: str, domain: str) -> None:
        """Raises `LacksKernel` where kernels are wanted and an operator has none."""
        last = LAST_KERNELS.get(op_type, self.opset)
        if self.wants_kernels and not domain and last < self.opset:
            raise LacksKernel(op_type, last)

    def use_domain(self, domain: str, version: int, last: int | None = None) -> None:
        """Asks for a version of a domain other than the default one: at least `version`, at most `last`."""
        if not domain:
            return
        limit = min(self._limits.get(domain, last or version), last) if last else self._limits.get(domain)
        chosen = max(version, self.versions.get(domain, 1))
        if limit is not None and chosen > limit:
            raise UnsupportedError(f"the nodes of domain {domain} need versions {chosen} and {limit} at once")
        self.versions[domain] = chosen
        if limit is not None:
            self._limits[domain] = limit


def _unique(wish: str, taken: set[str], suffixes: dict[str, int]) -> str:
    name = wish
    while name in taken:
        suffix = suffixes[wish] = suffixes.get(wish, 0) + 1
        name = f"{wish}_{suffix}"
    taken.add(name)
    return name
