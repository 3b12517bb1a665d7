"""Programs made from PyTorch modules: tensors in, tensors out, and the module's own buffers as states."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .executors.base import Executor
from .executors.replay.options import ReplayOptions
from .executors.replay.states import StateStore
from .frontends.torch.complex_numbers import content_pairs
from .frontends.torch.model import TorchModel
from .frontends.torch.tensors import array_of, tensor_of
from .ir.dims import SymDim
from .ir.errors import InputError
from .passes.pipeline import PipelineReport
from .program import Program
from .selection import is_cuda


def with_states(options: ReplayOptions, model: TorchModel, device: str) -> ReplayOptions:
    """Options in which the tensors that the module writes to are states of a store, over their own memory."""
    if not model.states or options.states is not None:
        return options
    shared = _on_gpu(model.states) if is_cuda(device) else _on_host(model.states)
    return replace(options, states=StateStore.over(shared)) if shared else options


def _on_host(states: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array_of(as_parts(tensor)) for name, tensor in states.items() if _is_sharable(tensor)}


def _on_gpu(states: Mapping[str, Any]) -> dict[str, Any]:
    from .executors.cuda.states import device_state, is_state

    return {name: device_state(tensor) for name, tensor in states.items() if is_state(tensor)}


def _is_sharable(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu" and tensor.is_contiguous())


class TorchProgram(Program):
    """A program of a PyTorch module. It is called with the module's arguments and gives what the module gives.

    `run` takes and gives tensors by name. Buffers that the module writes to are updated in place, as by the module.
    """

    def __init__(
        self,
        model: TorchModel,
        executor: Executor,
        *,
        level: int = 0,
        strict: bool = False,
        notes: Sequence[str] = (),
        report: PipelineReport | None = None,
    ) -> None:
        super().__init__(model.graph, executor, level=level, strict=strict, notes=notes, report=report)
        self._model = model
        self._on_gpu = is_cuda(self.target.device)
        held = getattr(self._executable, "options", None)
        stored = held.states.names if held is not None and held.states is not None else ()
        self._given_states = {name: tensor for name, tensor in model.states.items() if name not in stored}
        self._written_inputs = [name for name in model.state_outputs if name not in model.states]
        self._ranged = _ranged_axes(self)
        self._told = _told_sizes(self)
        self._guards = [guard for guard in model.guards if guard.symbols <= self._told.keys()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for its arguments. Raises `InputError` for others than it was exported with."""
        leaves = self._leaves(args, kwargs)
        given = {
            name: _size_carrier(leaf) if isinstance(leaf, int) else leaf
            for name, leaf in zip(self._model.inputs, leaves, strict=True)
            if name is not None
        }
        self._check_fixed(leaves)
        results = self.run(given)
        flat = [
            plain if name is None else results[name].item() if name in self._model.numbers else results[name]
            for name, plain in zip(self._model.outputs, self._model.plain, strict=True)
        ]
        return torch.utils._pytree.tree_unflatten(flat, self._model.out_spec)

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        spec = self._model.in_spec
        expected = spec.children()[1].context if spec.children()[1].num_leaves else []
        ordered = {name: kwargs[name] for name in expected if name in kwargs}
        leaves, found = torch.utils._pytree.tree_flatten((tuple(args), {**ordered, **kwargs}))
        if found != spec:
            raise InputError(
                f"{self.graph.name} is called with {_spec_text(found)}, but was exported with {_spec_text(spec)}",
                remedy="pass arguments as at the export: by position or by name, with the same structure",
            )
        return list(leaves)

    def _check_fixed(self, leaves: Sequence[Any]) -> None:
        for name, fixed, leaf in zip(self._model.inputs, self._model.fixed, leaves, strict=True):
            if name is None and not isinstance(leaf, torch.Tensor) and leaf != fixed:
                raise InputError(
                    f"an argument is {leaf!r}, but the module was exported with {fixed!r}",
                    remedy="what is no tensor is fixed when a module is exported: export it again",
                )

    @property
    def states(self) -> Mapping[str, Any]:
        """The tensors that the module writes to, by the names of the inputs that stand for their old content."""
        return self._model.states

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `Program.run`, for tensors as well: then the outputs are tensors.

        Inputs that are tensors are written to as by the module; of an input that is an array, the new content
        is one more output.
        """
        inputs = {} if inputs is None else inputs
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"run takes its inputs by name, not a {type(inputs).__name__}",
                remedy="call the program as the module, program(x), or program.run({name: x})",
            )
        given = dict(inputs)
        self._check_ranges(given)
        if self._guards:
            self._check_guards(given)
        speaks_torch = any(isinstance(value, torch.Tensor) for value in given.values())
        if self._on_gpu and not speaks_torch and self._model.states:
            torch.cuda.synchronize()  # the call runs on another stream than what torch did to the states
        for name in self._model.pairs & given.keys():
            given[name] = as_parts(given[name])
        if not self._on_gpu:
            given = {name: self._array(name, value) for name, value in given.items()}
        given |= {name: self._state(tensor) for name, tensor in self._given_states.items()}
        results = super().run(given)
        for name in self._model.pairs & results.keys():
            results[name] = _of_parts(results[name])
        for name, tensor in self._given_states.items():
            _write_back(tensor, results.pop(self._model.state_outputs[name]))
        if not speaks_torch:
            return results
        for name in self._written_inputs:
            _write_back(inputs[name], results.pop(self._model.state_outputs[name]))
        return {name: as_tensor(value) for name, value in results.items()}

    def _array(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type != "cpu":
            raise InputError(
                f"input {name!r} is on {value.device}, but the program runs on the host",
                remedy='move it with .cpu(), or use device="cuda"',
            )
        return array_of(value)

    def _state(self, tensor: Any) -> Any:
        return as_parts(tensor) if self._on_gpu else array_of(as_parts(tensor))

    def _check_ranges(self, given: Mapping[str, Any]) -> None:
        for name, axis, symbol, low, high in self._ranged:
            shape = _shape_of(given.get(name))
            if len(shape) > axis and not low <= shape[axis] <= (shape[axis] if high is None else high):
                wanted = f"{low} to {high}" if high is not None else f"at least {low}"
                raise InputError(
                    f"input {name!r}: {symbol} is {shape[axis]}, but the module was exported for {wanted}",
                    remedy="export it with a wider range in dynamic_shapes, as far as the module allows",
                )

    def _check_guards(self, given: Mapping[str, Any]) -> None:
        places = self._told.items()
        if any(axis >= len(_shape_of(given.get(name))) for _, (name, axis) in places):
            return  # what is wrong with the inputs is said where their types are checked
        sizes = {symbol: int(given[name].shape[axis]) for symbol, (name, axis) in places}
        broken = next((guard for guard in self._guards if not guard.holds(sizes)), None)
        if broken is not None:
            named = ", ".join(f"{symbol} = {sizes[symbol]}" for symbol in sorted(broken.symbols))
            raise InputError(
                f"the module was exported for sizes with {broken}, but {named}",
                remedy="export it on examples with these sizes as well, and call the program that fits",
            )


def _spec_text(spec: Any) -> str:
    args, kwargs = spec.children()
    names = ", ".join(map(str, kwargs.context)) if kwargs.num_leaves or kwargs.context else "none"
    return f"{len(args.children())} arguments by position and by name {names} ({spec.num_leaves} values)"


def _size_carrier(size: int) -> Any:
    """A size as an input of which nothing but its length counts."""
    return np.broadcast_to(np.zeros((), np.bool_), (size,))


def as_parts(value: Any) -> Any:
    """Complex numbers as pairs of real and imaginary parts along a last axis, over the same memory."""
    if isinstance(value, torch.Tensor):
        return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return content_pairs(value) if np.iscomplexobj(value) else value


def _of_parts(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return torch.view_as_complex(value.contiguous())
    plain = np.ascontiguousarray(value)
    return plain.view(np.complex64 if plain.dtype == np.float32 else np.complex128)[..., 0]


def as_tensor(value: Any) -> Any:
    """A result as a tensor, contiguous as those of nearly all operators."""
    if not isinstance(value, np.ndarray):
        return value
    return tensor_of(value if value.flags.c_contiguous else value.copy())


def _write_back(tensor: Any, content: Any) -> None:
    with torch.no_grad():
        tensor.copy_(as_tensor(content))


def _shape_of(value: Any) -> Sequence[int]:
    """The shape of a tensor or an array; none of anything else."""
    return () if getattr(value, "is_nested", False) else getattr(value, "shape", ())


def _told_sizes(program: TorchProgram) -> dict[str, tuple[str, int]]:
    """The input, and the axis of its shape, that tell a symbolic size."""
    return {
        str(dim): (name, axis)
        for name, ty in program.inputs.items()
        for axis, dim in enumerate(getattr(ty, "shape", None) or ())
        if isinstance(dim, SymDim) and str(dim) in dim.symbols
    }


def _ranged_axes(program: TorchProgram) -> list[tuple[str, int, str, int, int | None]]:
    """Where an input's size is a symbol whose range says something: input, axis, symbol, least, greatest."""
    ranges = {name: limits for name, limits in program._model.ranges.items() if limits != (0, None)}
    return [
        (name, axis, str(dim), *ranges[str(dim)])
        for name, ty in program.inputs.items()
        for axis, dim in enumerate(getattr(ty, "shape", None) or ())
        if isinstance(dim, SymDim) and str(dim) in ranges
    ]
