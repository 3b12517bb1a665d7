"""Capgraph: models from ONNX or PyTorch as one typed graph, made smaller, planned, and run.

    program = capgraph.optimize("model.onnx")
    outputs = program.run({"input": array})
    print(program.explain())

Names load when they are first used, so that `import capgraph` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .comparing.executor_comparison import compare
    from .executors.replay.options import CaptureOptions
    from .executors.replay.states import StateStore
    from .executors.replay.suggest import suggest_buckets
    from .ir.errors import (
        CapgraphError,
        CaptureError,
        CheckError,
        ExecutionError,
        InputError,
        InternalError,
        InvalidGraphError,
        MiscompiledError,
        MissingPackageError,
        ModelError,
        ParseError,
        ResourceError,
        ShapeError,
        TypeRuleError,
        UnsupportedError,
    )
    from .ir.notices import CapgraphWarning
    from .optimization import optimize
    from .passes.planning.simulation import crossover, simulate
    from .program import Program
    from .pytorch.backend import compile_with as compile
    from .pytorch.generation import decoding_loop
    from .pytorch.program import TorchProgram

__all__ = [
    "CapgraphError",
    "CapgraphWarning",
    "CaptureError",
    "CaptureOptions",
    "CheckError",
    "ExecutionError",
    "InputError",
    "InternalError",
    "InvalidGraphError",
    "MiscompiledError",
    "MissingPackageError",
    "ModelError",
    "ParseError",
    "Program",
    "ResourceError",
    "ShapeError",
    "StateStore",
    "TorchProgram",
    "TypeRuleError",
    "UnsupportedError",
    "__version__",
    "compare",
    "compile",
    "crossover",
    "decoding_loop",
    "optimize",
    "simulate",
    "suggest_buckets",
]

# A module must not bear the name of a function here: importing it would put the module in the function's place.
_HOMES = {
    "CapgraphWarning": ".ir.notices",
    "compare": ".comparing.executor_comparison",
    "optimize": ".optimization",
    "Program": ".program",
    "simulate": ".passes.planning.simulation",
    "crossover": ".passes.planning.simulation",
    "TorchProgram": ".pytorch.program",
    "compile": ".pytorch.backend",
    "decoding_loop": ".pytorch.generation",
    "CaptureOptions": ".executors.replay.options",
    "StateStore": ".executors.replay.states",
    "suggest_buckets": ".executors.replay.suggest",
}

_CALLED = {"compile": "compile_with"}  # what would hide a built-in in its own module has another name there


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(_HOMES.get(name, ".ir.errors"), __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        home = importlib.import_module(".pytorch.missing", __name__)
    found = getattr(home, _CALLED.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
