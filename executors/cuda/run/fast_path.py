"""Calls like the one before: the same sizes, served by one recording, need no look-up, no check of names, no wrapping.

A fast path is made after a call that replayed a whole bucket without padding. It serves the next call if that brings
arrays of the same kind: those in place must be the very arrays, others are copied. Anything else is declined, and takes
the long way, which finds what is wrong or makes another fast path. After some calls the copies become part of the graph
(`graph_with_copies.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ....ir.errors import CapgraphError
from ....ir.plan import Place as Home
from ...memory import size_text
from ...replay.executable import ReplayExecutable, Served
from ...replay.modes import InputPolicy
from ...replay.recorder import Recording
from ..arrays.protocol import DeviceArray, Framework
from .bound_plan import CudaPlan
from .device import CudaDevice
from .graph_with_copies import CallsWithCopies, CopyRecorder, can_hold_copies
from .recorder import CudaRecording

_Input = tuple[str, DeviceArray, int, int]
"""Name, an array like those that are expected, the address to copy to (0: in place), and bytes to copy."""

_Output = tuple[str, DeviceArray]
"""Name, and where the result lies."""

_NEVER = -1

_Made = TypeVar("_Made")


class FastPath:
    """Serves calls in one framework, of the sizes of `served`.

    What it needs is bound when it is made: a call of which the host does little is what recording is for. It is valid
    until a call goes another way, so that nothing which it refers to moves meanwhile.
    """

    def __init__(
        self,
        replay: ReplayExecutable,
        served: Served,
        device: CudaDevice,
        framework: Framework,
        inputs: list[_Input],
        outputs: list[_Output],
    ) -> None:
        self._replay = replay
        self._served = served
        self._device = device
        self._framework = framework
        self.names = [name for name, *_rest in inputs]
        """The inputs, in the order in which `serve` takes them."""
        each = list(enumerate(inputs))
        self._placed = [(index, like, like.address) for index, (_name, like, target, _nbytes) in each if not target]
        self._copied = [(index, like) for index, (_name, like, target, _nbytes) in each if target]
        self._targets = [(target, nbytes) for _name, _like, target, nbytes in inputs if target]
        self._outputs = outputs if replay.options.copy_outputs else []
        self._output_names = [name for name, _array in outputs]
        self._static = [] if replay.options.copy_outputs else [array.native for _name, array in outputs]
        self._launches = [_launch_of(each) for each in served.bucket.recordings]
        bound: CudaPlan = served.bucket.bound  # type: ignore[assignment]  # what this device bound
        self._bound = bound
        self._finish = bound.finish if bound.plan.copies else None
        self._launch_alone = self._found_launch_alone()
        self._address_like = framework.address_like
        self._copy_of = framework.copy_of
        self._stream = framework.stream
        self._copy = device.driver.copy
        self._uncounted = 0
        self._with_copies: CallsWithCopies | None = None
        self._copy_recorder = self._found_copy_recorder()
        self._until_copies = _NEVER if self._copy_recorder is None else device.calls_before_copies

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs by name, None for a call of another kind. Raises what the driver raises."""
        if len(inputs) != len(self.names):
            return None
        results = self.serve([inputs.get(name) for name in self.names])
        return None if results is None else dict(zip(self._output_names, results, strict=True))

    def serve(self, inputs: Sequence[Any]) -> list[Any] | None:
        """As `run`, for inputs in the order of `names`; outputs are in the order of the program's."""
        address_like = self._address_like
        for index, like, address in self._placed:
            if address_like(inputs[index], like) != address:
                return None
        if self._launch_alone is None:
            return self._run_with_copies(inputs)
        stream = self._stream()
        if stream != self._device.stream:
            self._device.use_stream(stream)
        self._launch_alone(stream)
        self._uncounted += 1
        return self._static.copy()

    def _run_with_copies(self, inputs: Sequence[Any]) -> list[Any] | None:
        address_like = self._address_like
        sources: list[int] = []
        for index, like in self._copied:
            source = address_like(inputs[index], like)
            if not source:
                return None
            sources.append(source)
        stream = self._stream()
        if stream != self._device.stream:
            self._device.use_stream(stream)
        copies = self._apart(sources) if self._static else []
        if self._with_copies is None:
            results = self._launched(sources, stream)
        else:
            results = self._with_copies.run(sources, stream)
            if self._with_copies.wanted:
                self._compute_in_place(self._with_copies, sources, results)
            if self._static:
                results = self._static.copy()
        copies.clear()  # what reads them is enqueued
        self._uncounted += 1
        return results

    def _apart(self, sources: list[int]) -> list[DeviceArray]:
        """Copies of inputs that are results of the call before, put among the sources in their stead."""
        device, copies = self._device, list[DeviceArray]()
        for index, ((_index, like), source) in enumerate(zip(self._copied, sources, strict=True)):
            if device.arenas.covers(source):
                given = DeviceArray(source, like.dtype, like.shape, like.strides, None, device.downloaded)
                copies.append(device.apart(given, self._framework))
                sources[index] = copies[-1].address
        return copies

    def _launched(self, sources: list[int], stream: int) -> list[Any]:
        self._enqueue(sources, stream)
        made = [self._copied_result(array) for _name, array in self._outputs]
        results = self._static.copy() or made
        if self._finish is not None:
            self._finish()
        self._until_copies -= 1
        if not self._until_copies:
            self._frame(sources, made)
        return results

    def _copied_result(self, array: DeviceArray) -> Any:
        """A result anew, row by row."""
        return self._copy_of(array) if array.is_contiguous else self._device.copied(array, self._framework).native

    def _enqueue(self, sources: list[int], stream: int) -> None:
        for (target, nbytes), source in zip(self._targets, sources, strict=True):
            self._copy(target, source, nbytes, stream)
        for launch in self._launches:
            launch(stream)

    def count(self) -> None:
        """Tells the program of the calls that were served since it was last told."""
        times, self._uncounted = self._uncounted, 0
        if times:
            self._replay.count_again(self._served, times)

    def remarks(self) -> Iterator[str]:
        """Lines for `explain()`."""
        if self._with_copies is not None:
            nbytes = size_text(self._with_copies.nbytes)
            yield f"calls like the last are copied to and from within one graph: {nbytes} more"

    def close(self) -> None:
        """Counts, and gives back what it has recorded, once that has run."""
        self.count()
        if self._with_copies is not None:
            with suppress(*self._device.failures):  # a failure is told to the next call that waits
                self._device.driver.synchronize(self._device.stream)
            self._with_copies.close()
            self._with_copies = None

    def _found_launch_alone(self) -> Callable[[int], None] | None:
        """What a call consists of where one recording works in place and nothing is copied; None elsewhere."""
        works_in_place = bool(self._static) and not self._copied and self._finish is None
        return self._launches[0] if works_in_place and len(self._launches) == 1 else None

    # ---- copies within the graph

    def _found_copy_recorder(self) -> CopyRecorder | None:
        recordings = self._served.bucket.recordings
        if len(recordings) != 1 or type(recordings[0]) is not CudaRecording:
            return None
        if not can_hold_copies(self._bound, len(self._targets), len(self._outputs)):
            return None
        try:
            return CopyRecorder(self._bound, self._targets, self._outputs, self._framework)
        except CapgraphError as error:
            self._note(error.message)
        return None

    def _frame(self, sources: list[int], results: list[Any]) -> None:
        """Makes a graph with the copies, and serves by it from now on if it gives these `results` again.

        Where calls go other ways again and again, each is to wait for twice as many calls as the one before.
        """
        recorder, device = self._copy_recorder, self._device
        assert recorder is not None  # it is waited for
        device.calls_before_copies *= 2
        made = self._admitted(recorder.record, lambda made: self._problem_with(made, sources, results))
        if made is None and not self._bound.has_states:
            self._enqueue(sources, device.stream)  # results that were handed out in place are there again
        self._with_copies = made

    def _problem_with(self, made: CallsWithCopies, sources: list[int], results: list[Any]) -> str:
        """Whether it gives what this call gave, or with states, which have moved on, what the next one would give."""
        bound, recorder, stream = self._bound, self._copy_recorder, self._device.stream
        assert recorder is not None  # it made what is looked at
        given = self._static or results
        if not bound.has_states:
            return recorder.problem_with(made, sources, given)
        saved = bound.save()
        try:
            self._enqueue(sources, stream)
            expected = given if self._static else [self._copy_of(array) for _name, array in self._outputs]
            return recorder.problem_with(made, sources, expected, lambda: bound.restore(saved))
        finally:
            bound.restore(saved)

    def _compute_in_place(self, copying: CallsWithCopies, sources: list[int], results: list[Any]) -> None:
        """Makes a graph that computes large results where these lie, if it gives them again."""
        recorder, places = self._copy_recorder, copying.wanted
        assert recorder is not None  # it made what is copying
        graph = self._admitted(
            lambda: recorder.record_at(places), lambda made: recorder.problem_at(copying, made, sources, results)
        )
        if graph is None:
            copying.copy_into(recorder.addresses(results), sources, self._device.stream)
        copying.serve(places, graph)

    def _admitted(self, record: Callable[[], _Made], problem_with: Callable[[_Made], str]) -> _Made | None:
        """What `record` makes; None, and a note, where it has a problem."""
        device = self._device
        failures: tuple[type[BaseException], ...] = (CapgraphError, *device.failures)
        try:
            made = record()
            problem = problem_with(made)
        except failures as error:
            problem = str(device.driver.explained(error))
            device.driver.check()  # a device that is lost now gave no results either
        if not problem:
            return made
        self._note(problem)
        return None

    def _note(self, problem: str) -> None:
        first, *_others = problem.splitlines()
        self._device.fallbacks.kernels[f"copies within the graph: {first}"] += 1


def _launch_of(recording: Recording) -> Callable[[int], None]:
    """What starts a recording on a stream, which the device uses already."""
    return recording.launch if isinstance(recording, CudaRecording) else lambda _stream: recording.replay()


def fast_path_for(
    replay: ReplayExecutable, device: CudaDevice, inputs: Mapping[str, Any], names: tuple[str, ...]
) -> FastPath | None:
    """A fast path for calls like the latest, whose arrays were wrapped as `inputs`; None where there is none."""
    served, framework = replay.latest, device.framework
    if served is None or framework is None or served.route.padded_rows or replay.options.debug:
        return None
    bound = served.bucket.bound
    if not isinstance(bound, CudaPlan) or not served.bucket.is_recorded_whole or bound.plan.dynamic:
        return None
    if bound.plan.measured.shapes:
        return None  # the host reads sizes before it hands results out
    taken = _inputs_of(bound, served, inputs)
    given = _outputs_of(bound, names, framework, is_copied=replay.options.copy_outputs)
    if taken is None or given is None:
        return None
    return FastPath(replay, served, device, framework, taken, given)


def _inputs_of(bound: CudaPlan, served: Served, inputs: Mapping[str, Any]) -> list[_Input] | None:
    values = bound.plan.graph.inputs
    stored = served.bucket.stored
    if len(values) != len(inputs) + len(stored):
        return None  # defaults, or real sizes
    found: list[_Input] = []
    for index, (value, policy) in enumerate(zip(values, served.bucket.policies, strict=True)):
        if index in stored:
            continue
        given = inputs.get(value.name)
        if not isinstance(given, DeviceArray) or not given.is_contiguous or not given.size:
            return None
        placed = bound.placement.placed.get(value)
        if placed is not None and placed.address != given.address:
            return None
        if placed is None and policy is InputPolicy.REFUSE:
            return None
        target = 0 if placed is not None else bound.placement.start_of(bound.plan.views[value])
        like = given if placed is not None else given.detached()
        found.append((value.name, like, target, given.nbytes))
    return found


def _outputs_of(
    bound: CudaPlan, names: tuple[str, ...], framework: Framework, *, is_copied: bool
) -> list[_Output] | None:
    """Where outputs lie; None for one that is empty or that is not handed out where it lies."""
    found: list[_Output] = []
    by_name = dict(zip(bound.plan.graph.output_names, bound.plan.graph.outputs, strict=True))
    homes = (Home.ARENA, Home.CONSTANT) if is_copied else (Home.ARENA,)
    for name in names:
        value = by_name[name]
        view = bound.plan.views[value]
        if bound.plan.buffers[view.buffer].place not in homes or 0 in view.shape or min(view.strides, default=0) < 0:
            return None
        start, dtype = bound.placement.start_of(view), view.dtype.numpy
        native = framework.over(start, view.shape, view.strides, dtype)
        found.append((name, DeviceArray(start, dtype, view.shape, view.strides, native, bound.device.downloaded)))
    return found
