"""Generated kernels on a GPU against the reference evaluator: every op, dtype, strategy, and many regions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
from capgraph.executors.cuda.driver.cache import Module
from capgraph.executors.cuda.driver.compiler import build, compiler_version, symbol_of
from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.launch import Argument, Candidate, Kernel, KernelLaunch, Packed, ScalarArgument
from capgraph.executors.cuda.lower.lowering import constant_buffers
from capgraph.executors.host.memory import array_at
from capgraph.ir.constant import Array
from capgraph.ir.plan import Place as Home
from capgraph.ir.plan import Plan

from tests.executors.cuda.codegen.cases import Case, expected_of, is_close
from tests.executors.cuda.codegen.running import Prepared, Values, all_prepared

GROUP = 64
MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
SCALARS = {"int": np.int32, "long long": np.int64, "float": np.float32}


class Functions:
    """Kernels compiled for this device as the executor does it, many in a module."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self.arch = int(cupy.cuda.Device().compute_capability)
        texts = list(dict.fromkeys(kernel.text for kernel in kernels))
        groups = [texts[start : start + GROUP] for start in range(0, len(texts), GROUP)]
        self.failed: dict[str, str] = {}
        self._found: dict[str, Any] = {}
        self._grown: set[str] = set()
        compiler_version()  # loads the compiler before several threads ask for it
        with ThreadPoolExecutor() as pool:
            for group, made in zip(groups, pool.map(lambda group: build(group, self.arch), groups), strict=True):
                self._add(group, made)

    def _add(self, texts: Sequence[str], made: Module | str) -> None:
        if isinstance(made, Module):
            module = cupy.cuda.function.Module()
            module.load(made.code)
            self._found.update({text: module.get_function(symbol_of(text)) for text in texts})
        elif len(texts) == 1:
            self.failed[texts[0]] = made
        else:
            for text in texts:
                self._add([text], build([text], self.arch))

    def __len__(self) -> int:
        return len(self._found)

    def launch(self, kernel: Kernel, arguments: tuple[Any, ...]) -> None:
        """Enqueues a kernel on the current stream."""
        function = self._found[kernel.text]
        if kernel.shared_bytes > 48 * 1024 and kernel.text not in self._grown:
            cupy.cuda.driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED, kernel.shared_bytes)
            self._grown.add(kernel.text)
        function(kernel.grid, kernel.block, arguments, kernel.shared_bytes)


class DevicePlan(Values):
    """The memory of one plan on the device, poisoned, and launches over it."""

    def __init__(self, plan: Plan, functions: Functions) -> None:
        self.plan, self.functions = plan, functions
        self.arena = cupy.full(max(plan.arena_bytes, 1), 0xFF, cupy.uint8)
        self.memory: dict[int, Any] = {}
        for index, content in constant_buffers(plan).items():
            self.memory[index] = cupy.asarray(np.ascontiguousarray(content.array).reshape(-1).view(np.uint8))
        self.packed: list[Any] = []

    def bytes_of(self, index: int) -> Any:
        """The memory of a buffer."""
        buffer = self.plan.buffers[index]
        if buffer.place is Home.ARENA:
            return self.arena[buffer.offset : buffer.end]
        if index not in self.memory:
            self.memory[index] = cupy.full(max(buffer.nbytes, 1), 0xFF, cupy.uint8)
        return self.memory[index]

    def argument(self, argument: Argument) -> Any:
        """What a kernel is given."""
        if isinstance(argument, ScalarArgument):
            return SCALARS[argument.ctype](argument.value)
        if isinstance(argument, Packed):
            self.packed.append(cupy.asarray(packed_bytes(argument)))
            return np.uintp(self.packed[-1].data.ptr)
        return np.uintp(self.bytes_of(argument.buffer).data.ptr + argument.offset)

    def launch(self, candidate: Candidate) -> None:
        """Enqueues all launches of a candidate."""
        for each in candidate.launches:
            assert isinstance(each, KernelLaunch)
            self.functions.launch(each.kernel, tuple(map(self.argument, each.arguments)))

    def read(self, value: Any) -> Array:
        view = self.plan.views[value]
        return array_at(cupy.asnumpy(self.bytes_of(view.buffer)), view).copy()

    def write(self, value: Any, content: Array) -> None:
        view = self.plan.views[value]
        whole = cupy.asnumpy(self.bytes_of(view.buffer))
        array_at(whole, view)[...] = content
        self.bytes_of(view.buffer)[...] = cupy.asarray(whole)


def problems(made: Prepared, functions: Functions) -> list[str]:
    """What is wrong with a case, by every choice of candidates."""
    expected = expected_of(made.case)
    found: list[str] = []
    for choice in range(made.choices):
        device = DevicePlan(made.plan, functions)
        for value, given in zip(made.plan.graph.inputs, made.case.inputs, strict=True):
            device.write(value, given)
        made.run(choice, device.launch, device)
        for value, wanted in zip(made.plan.graph.outputs, expected, strict=True):
            why = is_close(device.read(value), np.asarray(wanted), made.case.graph)
            if why:
                found.append(f"candidate {choice}, {value.name}: {why}")
    return found


def check(cases: Iterable[Case]) -> list[str]:
    """Runs all cases and says what is wrong, a line each; ends when the device is lost."""
    every = all_prepared(cases)
    functions = Functions(kernel for made in every for kernel in made.kernels())
    lines = [f"does not compile: {log[-600:]}" for log in functions.failed.values()]
    for made in every:
        try:
            lines += [f"{made.case.name}: {line}" for line in problems(made, functions)]
            cupy.cuda.runtime.deviceSynchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            lines.append(f"{made.case.name}: {error}; the rest was not run")
            break
        except KeyError as error:
            lines.append(f"{made.case.name}: its kernel is missing: {str(error)[:80]}")
    hosted = Counter(op for made in every for op in made.on_host())
    print(f"{len(every)} cases, {len(functions)} kernels, {len(lines)} wrong, on the host: {dict(hosted)}")
    return lines
