"""A program that replays: inputs are checked, routed to a bucket, padded, run, and the real rows handed out."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from ...ir.constant import Array
from ...ir.dims import evaluate, symbols
from ...ir.errors import CapgraphError, CaptureError, ExecutionError, ResourceError
from ...ir.graph import Graph
from ...ir.types import TensorType, Type
from ..base import Coverage, Executable
from ..signature import Signature
from .bucket import Bucket
from .counters import Counters, Stats
from .dispatcher import Dispatcher, key_text
from .modes import CaptureMode
from .options import ReplayOptions
from .outputs import Generation, StaticOutput
from .recorder import Cut
from .report import remarks_on
from .routing import BucketKey, Route, Router
from .safety import PaddedGraph
from .states import StoredStates
from .strided import StrideTrial

KEPT_ROUTES = 4096
"""For how many sets of sizes the route is kept."""

Shapes = Mapping[int, Cut | None]
"""What outputs are handed out, by index, and the shapes that they are cut to."""


class Served(NamedTuple):
    """The bucket that served a call, and the call's route. Calls of the same `sizes` are served in the same way."""

    bucket: Bucket
    route: Route
    sizes: Mapping[str, int]
    shapes: Shapes


class ReplayExecutable:
    """Calls of one graph, replayed where a bucket serves them and run by `fallback` where none does.

    It may be called from several threads: calls wait for each other, as all buckets share one arena. With static
    outputs (`copy_outputs=False`) threads must wait for each other themselves.
    """

    def __init__(
        self,
        graph: Graph,
        padded: PaddedGraph,
        fallback: Executable,
        router: Router,
        dispatcher: Dispatcher,
        options: ReplayOptions,
        states: StoredStates,
        draws: int = 0,
    ) -> None:
        self._graph = graph
        self._padded = padded
        self._signature = Signature(graph)
        self._fallback = fallback
        self._router = router
        self._dispatcher = dispatcher
        dispatcher.counters.refuted_proofs = len(padded.refuted)
        self._options = options
        self._states = states
        self._output_names = [graph.output_names[index] for index in states.visible]
        self._routes: dict[BucketKey, tuple[Route, Shapes]] = {}
        self._uncut: Shapes = dict.fromkeys(states.visible)
        self._generation = Generation()
        self.draws = draws
        """How many draws of random numbers a call makes."""
        self.latest: Served | None = None
        """What served the latest call, None if it was no bucket."""
        self.lock = states.lock
        """Held during a call: that of the store of states, so that programs which share one wait for each other."""
        self._is_closed = False

    # ---- a call

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        inputs = self._states.with_inputs(inputs)
        values, sizes = self._signature.bind(inputs)
        with self.lock, np.errstate(all="ignore"):  # infinities and NaN are results like any other
            if self._is_closed:
                raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
            self._generation.number += 1
            self._dispatcher.counters.calls += 1
            latest, self.latest = self.latest, None
            if self._padded.real_sizes:
                values = [*values, *self._real_sizes(sizes)]
            served = self._found(sizes) if latest is None or latest.sizes != sizes else latest
            if isinstance(served, Served):
                trial = served.bucket.strided.trial(values)
                results = (
                    self._served(served, inputs, values)
                    if trial is None
                    else self._tried(trial, served, inputs, values)
                )
            else:
                results = self._unserved(served, inputs, values)
        return dict(zip(self._output_names, results, strict=True))

    def move_states(self, arrays: Mapping[str, Any]) -> None:
        """Goes over to other arrays for stored states, of the same shapes: what is recorded is recorded once more.

        Raises `InputError` for a state that is not stored and for an array that does not fit.
        """
        with self.lock:
            self._states.move(arrays)
            self._dispatcher.move_states(arrays)
            self.latest = None

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        with self.lock:
            for held in self._states.own.values():
                held[...] = state

    def _found(self, sizes: Mapping[str, int]) -> Served | Route:
        """What serves calls of these sizes; only their route where nothing has been captured."""
        route, shapes = self._routed(sizes)
        bucket = None if route.key is None else self._dispatcher.find(route.key)
        return route if bucket is None else Served(bucket, route, sizes, shapes)

    def _served(self, served: Served, inputs: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        bucket, route = served.bucket, served.route
        try:
            bucket.run(values if self._options.copy_outputs else bucket.apart(values))
        except (ExecutionError, ResourceError, CaptureError) as error:
            assert route.key is not None  # it has a bucket
            return self._after_failure(inputs, route.key, error)
        self._count(bucket, route)
        results = self._results(bucket, served.shapes)
        self.latest = served
        return results

    def _tried(self, trial: StrideTrial, served: Served, inputs: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        """A call with large strided inputs, which eager may serve better."""
        with trial.timed():
            if not trial.is_eagers_turn:
                return self._served(served, inputs, values)
            return self._states.keep(self._eager(inputs, "a large input is strided, and copying it costs more"))

    def _unserved(self, route: Route, inputs: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        if route.key is None:
            return self._states.keep(self._beyond(inputs, route.reason))
        return self._first_call(inputs, values, route.key)

    def _beyond(self, inputs: Mapping[str, Any], reason: str) -> list[Any]:
        """A call that no bucket serves."""
        if self._options.mode is not CaptureMode.NONE and self._options.beyond == "eager":
            message = f"no recording serves this call: {reason}"
            if self._options.strict:
                raise CaptureError(message, remedy="strict=False runs it eagerly")
            self._dispatcher.notices.say("beyond", f"{message}; it runs eagerly", "program.stats() counts such calls")
        return self._eager(inputs, reason)

    def count_again(self, served: Served, times: int = 1) -> None:
        """Counts calls that an executor served by replaying what served the latest one."""
        self._generation.number += times
        self._dispatcher.counters.calls += times
        served.bucket.calls += times
        self._count(served.bucket, served.route, times)

    def _routed(self, sizes: Mapping[str, int]) -> tuple[Route, Shapes]:
        key = tuple(sizes.items())
        found = self._routes.get(key)
        if found is None:
            route = self._router.route(sizes)
            if len(self._routes) >= KEPT_ROUTES:
                self._routes.clear()
            found = self._routes[key] = (route, self._real_shapes(sizes) if route.padded_rows else self._uncut)
        return found

    def _real_sizes(self, sizes: Mapping[str, int]) -> list[Array]:
        """What the inputs that masks have added take."""
        return [np.asarray(sizes[dim], dtype=np.int64) for dim in self._padded.real_sizes]

    def _real_shapes(self, sizes: Mapping[str, int]) -> Shapes:
        """The shapes to which padded outputs are cut; None for a size that running tells."""
        return {index: _real_shape(self._graph.outputs[index].type, sizes) for index in self._states.visible}

    def _first_call(self, inputs: Mapping[str, Any], values: Sequence[Any], key: BucketKey) -> list[Any]:
        """Eager gives the results, so that nothing which goes wrong while capturing can harm the call."""
        refusal = self._dispatcher.refusal_of(key)
        if refusal is not None:
            return self._states.keep(self._eager(inputs, f"its bucket was refused: {refusal}"))
        results = self._eager(inputs, "first call of its bucket")
        self._dispatcher.capture(key, self._states.copied(values), results)
        return self._states.keep(results)

    def _after_failure(self, inputs: Mapping[str, Any], key: BucketKey, error: CapgraphError) -> list[Any]:
        """Eager decides: when it fails as well the inputs are at fault, else the bucket is.

        Where states live in a store nobody can: the call may have written some of them.
        """
        if self._states.arrays.keys() - self._states.own.keys():
            if not isinstance(error, ExecutionError):
                self._dispatcher.refuse(key, error)
            raise error
        results = self._eager(inputs, "its bucket failed while running")
        self._dispatcher.refuse(key, error)
        return results

    def _eager(self, inputs: Mapping[str, Any], reason: str) -> list[Any]:
        counters = self._dispatcher.counters
        counters.eager_calls += 1
        counters.eager_reasons[reason] += 1
        return list(self._fallback.run(inputs).values())

    def _count(self, bucket: Bucket, route: Route, times: int = 1) -> None:
        counters = self._dispatcher.counters
        if bucket.replays:
            counters.replayed_calls += times
            counters.replays += times * bucket.replays
        else:
            counters.eager_calls += times
            counters.eager_reasons[self._why_eager(bucket)] += times
        counters.rows += times * route.rows
        if route.padded_rows:
            counters.padded_calls += times
            counters.padded_rows += times * route.padded_rows

    def _why_eager(self, bucket: Bucket) -> str:
        if self._options.mode is CaptureMode.NONE:
            return "capture is switched off"
        return "every segment was refused" if bucket.refusals else "nothing in the graph is captured"

    def _results(self, bucket: Bucket, shapes: Shapes) -> list[Any]:
        results = bucket.results(shapes, copies=self._options.copy_outputs)
        if self._options.debug and not self._options.copy_outputs:
            return [self._guarded(result) for result in results]
        return results

    def _guarded(self, result: Any) -> Any:
        return StaticOutput(result, self._generation) if isinstance(result, np.ndarray) else result

    # ---- capturing beforehand

    def capture_all(self) -> None:
        """Captures every allowed bucket, the largest first, on drawn inputs; those that eager refuses are left."""
        buckets = list(self._router.buckets) if self._router.serves_all_dims else []
        for done, sizes in enumerate(buckets):
            key = tuple(sizes.items())
            self._tell(done, len(buckets), key_text(key))
            with self.lock, np.errstate(all="ignore"):
                self.latest = None
                self._capture_drawn(key)
        self._tell(len(buckets), len(buckets), "")

    def _tell(self, done: int, total: int, what: str) -> None:
        if self._options.progress is not None:
            self._options.progress(done, total, what)

    def _capture_drawn(self, key: BucketKey) -> None:
        if self._dispatcher.find(key) is not None or self._dispatcher.refusal_of(key) is not None:
            return
        values = [_drawn(value.type, dict(key)) for value in self._graph.inputs]
        if any(value is None for value in values):
            return  # captured by the first call
        inputs = dict(zip((value.name for value in self._graph.inputs), values, strict=True))
        try:
            expected = list(self._fallback.run(inputs).values())
        except CapgraphError:
            return  # the values of inputs matter; the first call brings better ones
        self._dispatcher.capture(key, [*values, *self._real_sizes(dict(key))], expected)

    def complete(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call and what the store of states holds."""
        return self._states.with_inputs(inputs)

    @property
    def options(self) -> ReplayOptions:
        """What the user chose."""
        return self._options

    # ---- reports

    def stats(self) -> Stats:
        """A snapshot of what was counted."""
        with self.lock:
            dispatcher = self._dispatcher
            counters: Counters = deepcopy(dispatcher.counters)
            refused = tuple(f"{key_text(key)}: {why}" for key, why in dispatcher.refused.items())
            return Stats(
                counters,
                dispatcher.arena_bytes,
                dispatcher.recording_bytes,
                dispatcher.reports(),
                self._padded.lines(),
                refused,
            )

    def coverage(self) -> Coverage:
        """See `Covered.coverage`: recordings, and steps between them; all nodes of a call that no bucket served."""
        with self.lock:
            if self.latest is None:
                return Coverage(0, sum(bool(node.inputs) for node in self._graph.nodes))
            report = self.latest.bucket.report()
        return Coverage(report.segments, report.eager_steps)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        return tuple(remarks_on(self.stats()))

    def close(self) -> None:
        """See `Executable.close`."""
        with self.lock:
            self._is_closed = True
            self.latest = None
            self._dispatcher.close()
            self._fallback.close()


def _real_shape(ty: Type, sizes: Mapping[str, int]) -> Cut | None:
    if not isinstance(ty, TensorType) or ty.shape is None:
        return None
    return tuple([evaluate(dim, sizes) if symbols(dim) <= sizes.keys() else None for dim in ty.shape])


def _drawn(ty: Any, sizes: Mapping[str, int]) -> Array | None:
    """A plausible input: normal floats, integers 0 and 1, which are valid indices almost everywhere."""
    if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype.numpy.hasobject:
        return None
    shape = tuple([evaluate(dim, sizes) for dim in ty.dims])
    random = np.random.default_rng(0)
    if ty.dtype.is_float or ty.dtype.numpy.kind == "c":
        return np.asarray(random.standard_normal(shape)).astype(ty.dtype.numpy)
    return random.integers(0, 2, shape).astype(ty.dtype.numpy)
