"""The executor: one session for the whole graph, or pieces where ONNX Runtime cannot run all of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.errors import CapgraphError, ExecutionError, UnsupportedError
from ...ir.graph import Graph, Value
from ...ir.target import Target
from ..signature import Signature
from .library import problem_here

if TYPE_CHECKING:
    from .pieces import Piece
    from .session import Session


class OrtExecutor:
    """Runs graphs through ONNX Runtime on the CPU.

    `strict` refuses a graph that ONNX Runtime cannot run as a whole; otherwise such nodes run eagerly between sessions,
    counted and named in the executable's `remarks`. `threads` bounds the threads within one operator (None: all cores).
    """

    def __init__(self, *, strict: bool = False, threads: int | None = None) -> None:
        self.strict = strict
        self.threads = threads

    def target(self) -> Target:
        """The host, if the package is installed."""
        problem, remedy = problem_here()
        return Target(executor="ort", device="host", problem=problem, remedy=remedy)

    def compile(self, graph: Graph) -> "OrtExecutable":
        """`graph` in a session or in pieces. Raises `UnsupportedError` when `strict` and not all of it can run."""
        # These import onnx, which asking for the target must not.
        from .pieces import cut
        from .session import Session

        try:
            return OrtExecutable(graph, Session(graph, threads=self.threads), ())
        except CapgraphError as error:
            if self.strict:
                raise UnsupportedError(
                    f"ONNX Runtime cannot run the whole graph: {error.message}", remedy="leave strict out"
                ) from error
            return OrtExecutable(graph, None, tuple(cut(graph)), why=error.message)


class OrtExecutable:
    """A graph in ONNX Runtime. It may be called from several threads at once; outputs are the caller's."""

    def __init__(self, graph: Graph, whole: "Session | None", pieces: "tuple[Piece, ...]", *, why: str = "") -> None:
        self._graph = graph
        self._signature = Signature(graph)
        self._whole = whole
        self._pieces = pieces
        self._names = graph.output_names
        self._is_closed = False
        self.remarks = _remarks(pieces, why)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        if self._is_closed:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        values, sizes = self._signature.bind(inputs)
        results = self._whole.run(values) if self._whole is not None else self._run_pieces(values, sizes)
        return dict(zip(self._names, results, strict=True))

    def _run_pieces(self, values: list[Any], sizes: dict[str, int]) -> list[Any]:
        known: dict[Value, Any] = dict(zip(self._graph.inputs, values, strict=True))
        with np.errstate(all="ignore"):
            for piece in self._pieces:
                given = piece.run([known[value] for value in piece.inputs], sizes)
                known.update(zip(piece.outputs, given, strict=True))
        return [_owned(known[value], values) for value in self._graph.outputs]

    def close(self) -> None:
        """Gives back the sessions and their memory."""
        self._whole, self._pieces, self._is_closed = None, (), True


def _owned(result: Any, inputs: list[Any]) -> Any:
    """A result of an eager piece may be a view of an input or of a weight."""
    if not isinstance(result, np.ndarray):
        return result
    shares = not result.flags.writeable or any(result is given or result.base is given for given in inputs)
    return result.copy() if shares else result


def _remarks(pieces: "tuple[Piece, ...]", why: str) -> tuple[str, ...]:
    if not pieces:
        return ("one session of ONNX Runtime runs the whole graph",)
    eager = [piece for piece in pieces if not piece.is_session]
    count = sum(len(piece.reasons) for piece in eager)
    lines = [
        f"ONNX Runtime does not run the graph as a whole ({why})",
        f"{len(pieces) - len(eager)} sessions and {len(eager)} eager pieces; {count} nodes run eagerly:",
    ]
    return (*lines, *(f"  {reason}" for piece in eager for reason in piece.reasons))
