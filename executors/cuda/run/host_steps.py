"""Steps that no kernel does: operands are copied down, the op's NumPy meaning runs, results are copied up.

Values whose size only running tells, or that are no tensors of numbers, stay on the host between such steps. Elements
that are not zero are searched for where they lie: only what is found is copied down. Foreign nodes whose framework has
arrays on the device run there (`tensor_steps.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import CaptureError, cause_of
from ....ir.evaluate import FAILURES, BoundRegion, Sizes, as_results, bound_attrs, checked, failure, run_meaning
from ....ir.graph import Graph, Node, Value
from ....ir.plan import Step
from ...steps import CompiledRegion, Steps
from ..arrays.protocol import DeviceArray
from ..driver.failures import kept_outside
from ..lower.lowering import is_searched
from .tensor_steps import TensorSteps

if TYPE_CHECKING:
    from .bound_plan import CudaPlan


class HostSteps:
    """The host's part in a bound plan. `values` are those that live on the host."""

    def __init__(self, bound: "CudaPlan") -> None:
        self.values: dict[Value, Any] = {}
        self._bound = bound
        self._sizes: Sizes = {}
        self._ends = bound.plan.dynamic_ends()
        self._bodies: dict[Graph, Steps] = {}
        self._tensors = TensorSteps(bound)

    def start(self) -> None:
        """Forgets the sizes that the last run found."""
        self._sizes = dict(self._bound.plan.sizes)

    def run(self, step: Step, _stream: int) -> None:
        """Does a step. Raises `CaptureError` while a stream is captured, else what the node raises."""
        node = step.node
        if self._bound.is_recording:
            raise CaptureError(
                f"{node.op.name} runs on the host, which cannot be recorded",
                where=node.where(),
                remedy=kept_outside(node.op.name),
            )
        if self._tensors.run(node, self.values, self._sizes):
            return
        results = self._searched(node) if is_searched(self._bound.plan, node) else self._computed(node)
        for value, result in zip(node.outputs, results, strict=True):
            self._keep(value, checked(value, result, self._sizes))

    def end(self, step: Step) -> None:
        """Lets go of the values that end with a step."""
        for value in self._ends.get(step.index, ()):
            self.values.pop(value, None)

    def _searched(self, node: Node) -> tuple[Array]:
        view = self._bound.plan.views[node.operands[0]]
        device, start = self._bound.device, self._bound.placement.start_of(view)
        return (device.driver.non_zero(start, view.shape, view.strides, view.dtype.numpy, device.stream),)

    def _computed(self, node: Node) -> tuple[Any, ...]:
        operands = [None if value is None else self._value(value) for value in node.inputs]
        try:
            with np.errstate(all="ignore"):
                return self._meant(node, operands)
        except FAILURES as error:
            raise failure(node, error) from cause_of(error)

    def _meant(self, node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
        if not node.regions or node.op.is_foreign:  # the meaning of a foreign op runs its own bodies
            return run_meaning(node, operands, self._sizes)
        return as_results(node, node.op.meaning(*operands, **bound_attrs(node, self._sizes, self._region)))

    def _region(self, body: Graph, sizes: Sizes) -> BoundRegion:
        if body not in self._bodies:
            self._bodies[body] = Steps(body)
        return CompiledRegion(body, sizes, self._bodies[body])

    def _value(self, value: Value) -> Any:
        if value in self._bound.plan.dynamic:
            found = self.values[value]
            return np.asarray(found) if isinstance(found, DeviceArray) else found
        return self._bound.downloaded(self._bound.plan.views[value])

    def _keep(self, value: Value, result: Any) -> None:
        if value in self._bound.plan.dynamic:
            self.values[value] = result
        else:
            self._bound.upload(self._bound.plan.views[value], result)
