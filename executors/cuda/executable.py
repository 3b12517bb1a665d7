"""A program on a GPU: arrays of any framework in, arrays of the same framework out."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ir.errors import UnsupportedError
from ..base import Executable
from ..replay.counters import Counting, Stats
from ..replay.executable import ReplayExecutable
from ..replay.options import ReplayOptions
from .arrays import DeviceArray
from .device import CudaDevice
from .eager import CudaEagerExecutable
from .frameworks import HOST_ARRAYS, framework_of
from .profile import Profile
from .profiling import profile
from .shortcut import Shortcut, shortcut_for


class CudaExecutable:
    """Calls of `inner`, which reads and gives `DeviceArray`s, as their callers see them.

    It may be called from several threads: calls wait for each other.
    """

    def __init__(self, inner: Executable, eager: CudaEagerExecutable, device: CudaDevice) -> None:
        self._inner = inner
        self._eager = eager
        self._device = device
        self._driver = device.driver
        self._shortcut: Shortcut | None = None
        self._lock = threading.RLock()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        with self._lock:
            if self._driver.is_active():
                return self._run(inputs)
            with self._driver.active:
                return self._run(inputs)

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._shortcut is not None:
                results = self._shortcut.run(inputs)
                if results is not None:
                    return results
            return self._run_carefully(inputs)
        except self._device.failures as error:
            raise self._device.driver.explained(error) from error

    def _run_carefully(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        device = self._device
        self._drop_shortcut()
        device.driver.check()
        name = self._framework(inputs)
        device.enter(name)
        if name == HOST_ARRAYS:
            return self._inner.run(inputs)
        wrapped = self._wrapped(inputs)
        results = self._inner.run(wrapped)
        if isinstance(self._inner, ReplayExecutable):
            self._shortcut = shortcut_for(self._inner, device, wrapped, tuple(results))
        return {key: self._native(each) for key, each in results.items()}

    def _drop_shortcut(self) -> None:
        if self._shortcut is not None:
            self._shortcut.close()
        self._shortcut = None

    def _framework(self, inputs: Mapping[str, Any]) -> str:
        """That of the first array which is not NumPy's."""
        for given in inputs.values() if isinstance(inputs, Mapping) else ():
            name = framework_of(given)
            if name != HOST_ARRAYS:
                return name
        return HOST_ARRAYS

    def _wrapped(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._wrapped_one(given) for name, given in inputs.items()}

    def _wrapped_one(self, given: Any) -> Any:
        name = framework_of(given)
        if name == HOST_ARRAYS:
            return given
        framework = self._device.framework_named(name)
        wrapped = framework.wrap(given)
        return self._device.apart(wrapped, framework) if isinstance(wrapped, DeviceArray) else wrapped

    def _native(self, result: Any) -> Any:
        if isinstance(result, DeviceArray):
            return result.native
        framework = self._device.framework
        if framework is not None and isinstance(result, np.ndarray) and not result.dtype.hasobject:
            return framework.from_host(result)
        return result

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
                self._drop_shortcut()
                device.driver.check()
                device.enter(self._framework(inputs))
                given = self._inner.complete(inputs) if isinstance(self._inner, ReplayExecutable) else inputs
                wrapped = self._wrapped(given)
                self._eager.run(wrapped)
                return profile(self._eager.bound_for(wrapped))
            except device.failures as error:
                raise device.driver.explained(error) from error

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        with self._lock:
            self._count()
            own = () if self._shortcut is None else tuple(self._shortcut.remarks())
            return (*getattr(self._inner, "remarks", ()), *own, *self._device.remarks())

    def stats(self) -> Stats:
        """See `Counting.stats`. Raises `UnsupportedError` for a program that records nothing."""
        if not isinstance(self._inner, Counting):
            raise UnsupportedError("eager execution counts nothing", remedy='use executor="graph"')
        self._count()
        return self._inner.stats()

    def _count(self) -> None:
        with self._lock:
            if self._shortcut is not None:
                self._shortcut.count()

    def close(self) -> None:
        """See `Executable.close`."""
        with self._lock, self._device.driver.active:
            self._drop_shortcut()
            self._inner.close()
            self._eager.close()
            self._device.close()
