"""Foreign nodes on a framework's own arrays over the plan's memory, on the stream of the call: nothing is copied down.

They end recordings, as what a foreign op does cannot be known. Results are copied to their places; one whose size only
running tells stays the framework's array until the last step that reads it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.errors import cause_of
from ....ir.evaluate import FAILURES, Sizes, as_results, checked, failure
from ....ir.foreign import tensor_meaning_of
from ....ir.graph import Node, Value
from ....ir.plan import View
from ..arrays.protocol import DeviceArray, Framework

if TYPE_CHECKING:
    from .bound_plan import CudaPlan


class TensorSteps:
    """The part of a framework in a bound plan."""

    def __init__(self, bound: "CudaPlan") -> None:
        self._bound = bound

    def run(self, node: Node, dynamic: dict[Value, Any], sizes: Sizes) -> bool:
        """Runs a node, if its framework does here; `dynamic` are values that have no place in the plan.

        Raises what the driver raises, and `ExecutionError` naming the node for what the op raises.
        """
        device = self._bound.device
        meaning, framework = tensor_meaning_of(node), device.framework_of(node)
        if meaning is None or framework is None:
            return False
        with framework.on_stream(device.stream):
            operands = [self._operand(framework, value, dynamic) for value in node.operands]
            try:
                results = as_results(node, tuple(meaning.run(node, operands)))
            except framework.failures:  # the device's: they are put into words where all of them are
                raise
            except FAILURES as error:
                raise failure(node, error) from cause_of(error)
            for value, result in zip(node.outputs, results, strict=True):
                self._keep(framework, value, result, dynamic, sizes)
        return True

    def _operand(self, framework: Framework, value: Value, dynamic: dict[Value, Any]) -> Any:
        if value not in self._bound.plan.dynamic:
            return self._over(framework, self._bound.plan.views[value])
        held = dynamic[value]
        is_native = isinstance(held, DeviceArray) and framework.wraps(held.native)
        return held.native if is_native else framework.from_host(np.asarray(held))

    def _over(self, framework: Framework, view: View) -> Any:
        if any(stride < 0 for stride in view.strides):  # which not every framework has
            return framework.from_host(self._bound.downloaded(view))
        return framework.over(self._bound.placement.start_of(view), view.shape, view.strides, view.dtype.numpy)

    def _keep(self, framework: Framework, value: Value, result: Any, dynamic: dict[Value, Any], sizes: Sizes) -> None:
        array = framework.wrap(result)
        if isinstance(array, DeviceArray):
            checked(value, np.broadcast_to(np.empty((), array.dtype), array.shape), sizes)
        else:  # the op gave an array in main memory
            checked(value, array, sizes)
        if value in self._bound.plan.dynamic:
            dynamic[value] = array
            return
        view = self._bound.plan.views[value]
        if not isinstance(array, DeviceArray):
            self._bound.upload(view, np.ascontiguousarray(array))
        elif array.size:
            device, item = self._bound.device, array.dtype.itemsize
            into = (self._bound.placement.start_of(view), view.strides)
            device.driver.copy_strided(into, (array.address, array.strides), view.shape, item, device.stream)


def has_arrays_for(framework: Framework, node: Node) -> bool:
    """Whether all values of a node may be arrays of a framework."""
    values: Sequence[Value] = (*node.operands, *node.outputs)
    return framework.has_device and all(framework.has_dtype(value.tensor.dtype.numpy) for value in values)
