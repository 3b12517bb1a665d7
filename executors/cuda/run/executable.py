"""A program on a GPU: arrays of any framework in, arrays of the same framework out."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import InputError, UnsupportedError
from ...base import Coverage, Covered, Drawing, Executable
from ...replay.counters import Counting, Stats
from ...replay.executable import ReplayExecutable
from ...replay.options import ReplayOptions
from ..arrays.frameworks import HOST_ARRAYS, framework_of, framework_of_call
from ..arrays.protocol import DeviceArray, Framework
from .device import CudaDevice
from .eager import CudaEagerExecutable
from .fast_path import FastPath, fast_path_for
from .profile import Profile, profile


class CudaExecutable:
    """Calls of `inner`, which reads and gives `DeviceArray`s, as their callers see them.

    It may be called from several threads: calls wait for each other.
    """

    def __init__(self, inner: Executable, eager: CudaEagerExecutable, device: CudaDevice) -> None:
        self._inner = inner
        self._eager = eager
        self._device = device
        self._driver = device.driver
        self._fast_path: FastPath | None = None
        self._lock = inner.lock if isinstance(inner, ReplayExecutable) else threading.RLock()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        with self._lock:
            if self._driver.is_active():
                return self._run(inputs)
            with self._driver.active:
                return self._run(inputs)

    def run_alike(self, inputs: Sequence[Any]) -> list[Any] | None:
        """See `Repeating.run_alike`."""
        with self._lock:
            path = self._fast_path
            if path is None or not self._driver.is_active():
                return None
            try:
                return path.serve(inputs)
            except self._device.failures as error:
                raise self._device.driver.explained(error) from error

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._fast_path is not None:
                results = self._fast_path.run(inputs)
                if results is not None:
                    return results
            return self._run_carefully(inputs)
        except self._device.failures as error:
            raise self._device.driver.explained(error) from error

    def _run_carefully(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        device = self._device
        self._drop_fast_path()
        device.driver.check()
        speaker = device.enter(framework_of_call(inputs))
        if speaker is None:
            return self._inner.run(inputs)
        wrapped = self._wrapped(inputs)
        results = self._inner.run(wrapped)
        device.leave()
        if isinstance(self._inner, ReplayExecutable) and not device.followed:
            self._fast_path = fast_path_for(self._inner, device, wrapped, tuple(results))
        return {key: _native(each, speaker) for key, each in results.items()}

    def move_states(self, arrays: Mapping[str, Any]) -> None:
        """See `ReplayExecutable.move_states`. Raises `UnsupportedError` for a program that records nothing."""
        inner, device = self._inner, self._device
        if not isinstance(inner, ReplayExecutable):
            raise UnsupportedError("eager execution keeps no states", remedy='use executor="graph"')
        with self._lock, device.driver.active:
            self._drop_fast_path()
            try:
                inner.move_states(arrays)
            except device.failures as error:
                raise device.driver.explained(error) from error

    @property
    def draws(self) -> int:
        """See `Drawing.draws`."""
        return self._inner.draws if isinstance(self._inner, Drawing) else 0

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        device = self._device
        if not isinstance(self._inner, Drawing):
            return
        with self._lock, device.driver.active:
            try:
                self._inner.set_random_state(state)
            except device.failures as error:
                raise device.driver.explained(error) from error

    def _drop_fast_path(self) -> None:
        if self._fast_path is not None:
            self._fast_path.close()
        self._fast_path = None

    def _wrapped(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, given in inputs.items():
            try:
                found[name] = self._wrapped_one(given)
            except InputError as error:
                error.located(f"input {name!r}")
                raise
        return found

    def _wrapped_one(self, given: Any) -> Any:
        name, device = framework_of(given), self._device
        if name == HOST_ARRAYS:
            return given
        framework = device.framework_named(name)
        wrapped = framework.wrap(given)
        if not isinstance(wrapped, DeviceArray):
            return wrapped
        if framework is not device.framework:
            device.follow(framework)
        return device.apart(wrapped, framework)

    @property
    def options(self) -> ReplayOptions | None:
        """What the user chose for a program that records."""
        return self._inner.options if isinstance(self._inner, ReplayExecutable) else None

    # ---- reports

    def profile(self, inputs: Mapping[str, Any]) -> Profile:
        """The launches of a call with these inputs, each timed by itself. Raises as `run` does."""
        device = self._device
        with self._lock, self._device.driver.active:
            try:
                self._drop_fast_path()
                device.driver.check()
                device.enter(framework_of_call(inputs))
                given = self._inner.complete(inputs) if isinstance(self._inner, ReplayExecutable) else inputs
                wrapped = self._wrapped(given) if isinstance(given, Mapping) else given
                self._eager.run(wrapped)
                bound = self._eager.bound_for(wrapped)
                found = profile(bound, lambda: self._eager.load(bound, wrapped))
                device.leave()
                return found
            except device.failures as error:
                raise device.driver.explained(error) from error

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        with self._lock:
            self._count()
            own = () if self._fast_path is None else tuple(self._fast_path.remarks())
            return (*getattr(self._inner, "remarks", ()), *own, *self._device.remarks())

    def stats(self) -> Stats:
        """See `Counting.stats`. Raises `UnsupportedError` for a program that records nothing."""
        if not isinstance(self._inner, Counting):
            raise UnsupportedError("eager execution counts nothing", remedy='use executor="graph"')
        self._count()
        return self._inner.stats()

    def coverage(self) -> Coverage:
        """See `Covered.coverage`."""
        assert isinstance(self._inner, Covered)  # recorded or eager, it is one
        return self._inner.coverage()

    def _count(self) -> None:
        with self._lock:
            if self._fast_path is not None:
                self._fast_path.count()

    def close(self) -> None:
        """See `Executable.close`."""
        with self._lock, self._device.driver.active:
            self._drop_fast_path()
            self._inner.close()
            self._eager.close()
            self._device.close()


def _native(result: Any, speaker: Framework) -> Any:
    """A result as an array of the framework that the call speaks."""
    if isinstance(result, DeviceArray):
        return result.native
    if isinstance(result, np.ndarray) and not result.dtype.hasobject:
        return speaker.from_host(result)
    return result
