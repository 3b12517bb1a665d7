"""What a step of a plan becomes on CUDA, as plain data: kernel launches, library calls, host calls.

Nothing here holds a pointer. Arguments name memory by buffer of the plan, so that one lowering serves eager runs,
recording, reports and the profiler, and can be made and tested without a GPU.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....ir.constant import Constant
from ....ir.graph import Node
from ....ir.plan import View

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """`offset` bytes into buffer `buffer` of the plan."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant in another layout or dtype, made once per device and shared by all plans.

    `packing` names how (a row of `PACKINGS` in `driver/packing.py`), with its options.
    """

    constant: Constant
    packing: str
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A number passed by value; `ctype` is its C type: "int", "long long", "float", ..."""

    ctype: str
    value: int | float


Argument = BufferPlace | Packed | ScalarArgument


_ALONE = "#define WITHOUT_TRIGGER\n#define begin() begin_alone()\n"
_NO_LONGER_ALONE = "\n#undef begin\n#undef WITHOUT_TRIGGER\n"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated CUDA C++ function: `body`, in which NAME stands for its name, after the shared prelude.

    With `triggers` it lets the next kernel start early, where its body says so (`early_start.py`). Equal texts are one
    function. `grid` counts thread blocks, also where they form clusters; `shared_bytes` is dynamic
    shared memory. What the machine code has to keep: so many loads of constants stand before it waits for its
    predecessor (`early_loads`), and so many blocks find room on a multiprocessor (`together`).
    """

    body: str
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)
    early_loads: int = 0
    together: int = 1
    triggers: bool = True

    @property
    def text(self) -> str:
        """What is compiled."""
        return self.body if self.triggers else f"{_ALONE}{self.body}{_NO_LONGER_ALONE}"


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel with its arguments in the order of its parameters.

    `may_overlap`: it may start while its predecessor runs (programmatic launch), because it waits itself before it
    touches what depends on it. `nbytes` and `flops` are what it has to move and compute at least.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    nbytes: int
    flops: int = 0
    may_overlap: bool = False


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a library that captures: which library, the problem as a frozen descriptor, the memory by role.

    The executor of `library` (a row of `LIBRARIES` in `libraries/base.py`) turns `problem` and an `algorithm` (None:
    its first choice) into one enqueued call. `workspace` is planned scratch of `workspace_bytes` bytes.
    """

    library: str
    problem: Any
    arguments: Mapping[str, Argument]
    nbytes: int
    flops: int = 0
    workspace: BufferPlace | None = None
    workspace_bytes: int = 0
    algorithm: Any = None


@dataclass(frozen=True, slots=True)
class HostCall:
    """The node's NumPy meaning on the host: operands are copied down, results up; it cannot be recorded.

    `reason` says why no kernel did it, for reports.
    """

    reason: str


Launch = KernelLaunch | LibraryCall | HostCall


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate of a step: its launches, in order. `name` says which, for the tuning cache.

    `scratch_bytes` is how much of the step's scratch it uses, workspace of library calls included. `remark` says for
    reports why a better candidate is not among the others, empty where none is missed.
    """

    name: str
    launches: tuple[Launch, ...]
    scratch_bytes: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    """What lowering has to know of a GPU. `arch` is the compute capability without its point, such as 90."""

    arch: int = 90
    multiprocessors: int = 132
    shared_bytes: int = 227 * 1024
    """Dynamic shared memory that one block may have."""


@dataclass(frozen=True, slots=True)
class Task:
    """One step to be lowered: its node, where operands (None: left out) and results lie, and constants by operand.

    Dims in the node's attributes are bound. `scratch` is memory for its own use, of which a candidate may take up to
    `scratch_bytes` bytes. While planning, a step is lowered once before its memory is known, with views that may turn
    out otherwise and more scratch than anybody wants: what its candidates take is what is planned.
    """

    node: Node
    operands: tuple[View | None, ...]
    results: tuple[View, ...]
    constants: Mapping[int, Constant] = field(default_factory=dict[int, Constant])
    chip: Chip = field(default_factory=Chip)
    scratch: BufferPlace | None = None
    scratch_bytes: int = 0
    tf32: bool = False
    """Whether operands of f32 matmuls and convolutions may be rounded to TF32."""


Lowering = Callable[[Task], Iterator[Candidate]]
"""The candidates of one op, best guess first; none where there is no kernel for these dtypes or layouts."""
