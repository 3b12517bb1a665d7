"""Programs made from PyTorch modules: tensors in, tensors out, and the module's own buffers as states."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.autograd import forward_ad

from ..executors.base import Executor, Moving, Repeating, is_cuda
from ..executors.replay.options import ReplayOptions
from ..executors.replay.states import StateStore
from ..executors.signature import name_for_code
from ..frontends.torch.dtypes import torch_dtype_of
from ..frontends.torch.model import CheckedOutput, TorchModel
from ..frontends.torch.ops.complex_numbers import content_pairs
from ..frontends.torch.tensors import array_of, tensor_of
from ..ir.errors import CapgraphError, CheckError, InputError, UnsupportedError
from ..ir.types import TensorType, Type
from ..passes.framework.pipeline import PipelineReport
from ..program import REMEDY, Program
from .arguments import Arguments
from .random_numbers import random_source
from .sizes import SizeChecks


def with_states(options: ReplayOptions, model: TorchModel, device: str) -> ReplayOptions:
    """Options in which the tensors that the module writes to are states of a store, over their own memory."""
    if not model.states or options.states is not None:
        return options
    shared = _on_gpu(model.states) if is_cuda(device) else _on_host(model.states)
    return replace(options, states=StateStore.over(shared)) if shared else options


def _on_host(states: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array_of(as_parts(tensor)) for name, tensor in states.items() if _is_sharable(tensor)}


def _on_gpu(states: Mapping[str, Any]) -> dict[str, Any]:
    from ..executors.cuda.run.states import device_state, is_state

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
        self._sizes = SizeChecks(model)
        said = (*notes, *self._sizes.notes)
        super().__init__(model.graph, executor, level=level, strict=strict, notes=said, report=report)
        self._model = model
        self._on_gpu = is_cuda(self.target.device)
        held = getattr(self._executable, "options", None)
        stored = held.states.names if held is not None and held.states is not None else ()
        self._given_states = {name: tensor for name, tensor in model.states.items() if name not in stored}
        self._written_inputs = [name for name in model.state_outputs if name not in model.states]
        self._dtypes = _dtypes(model)
        self._random = random_source(self._executable, self.target.device)
        self.order = tuple(value.name for value in model.graph.inputs if value.name not in stored)
        """The inputs that a call brings, in the order in which `run_alike` takes them."""
        hidden = {model.state_outputs[name] for name in model.states if name in stored}
        self.results = tuple(name for name in model.graph.output_names if name not in hidden)
        """The outputs that a call gives, in the order in which `run_alike` gives them."""
        self._alike = self._executable if self._has_plain_calls and isinstance(self._executable, Repeating) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for its arguments, in tensors.

        Raises `InputError` for others than it was exported with, `UnsupportedError` where gradients would be recorded.
        """
        inputs = self._arguments.inputs(args, kwargs)
        results = self._like_the_one_before(inputs) or self.run(inputs)
        flat = [
            plain if name is None else results[name].item() if name in self._model.numbers else as_tensor(results[name])
            for name, plain in zip(self._model.outputs, self._model.plain, strict=True)
        ]
        return torch.utils._pytree.tree_unflatten(flat, self._model.out_spec)

    @cached_property
    def _arguments(self) -> Arguments:
        return Arguments(self._model)

    @property
    def states(self) -> Mapping[str, Any]:
        """The tensors that the module writes to, by the names of the inputs that stand for their old content."""
        return self._model.states

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, in order; what the module checks is none of them."""
        checks = self._model.checks
        return {name: ty for name, ty in super().outputs.items() if checks is None or name != checks.name}

    def move_states(self, tensors: Mapping[str, Any]) -> bool:
        """Goes over to other tensors for states, by name, of the same shapes and dtypes; recordings are made once more.

        False, and nothing is done, where one cannot be updated in place as the one before was.
        """
        wanted = {name: tensor for name, tensor in tensors.items() if name not in self._given_states}
        shared = (_on_gpu if self._on_gpu else _on_host)(wanted)
        if shared.keys() != wanted.keys():
            return False
        if shared:
            assert isinstance(self._executable, Moving)  # it keeps states
            self._executable.move_states(shared)
        self._model.states.update(tensors)
        self._given_states.update({name: tensors[name] for name in self._given_states if name in tensors})
        return True

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `Program.run`, for tensors as well: then the outputs are tensors.

        Inputs that are tensors are written to as by the module; of an input that is an array, the new content
        is one more output. Raises `UnsupportedError` for a tensor that needs gradients while these are recorded,
        `CheckError` where something does not hold that the module checks.
        """
        inputs = {} if inputs is None else inputs
        if not isinstance(inputs, Mapping):
            raise InputError(
                f"run takes its inputs by name, not a {type(inputs).__name__}",
                remedy="call the program as the module, program(x), or program.run({name: x})",
            )
        given = dict(inputs)
        self._sizes.check(given)
        if self._random is not None:
            self._random.follow()
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        self._check_tensors(tensors)
        speaks_torch = bool(tensors)
        if self._on_gpu and not speaks_torch and any(state.is_cuda for state in self._model.states.values()):
            torch.cuda.synchronize()  # the call runs on another stream than what torch did to the states
        for name in self._model.pairs & given.keys():
            given[name] = as_parts(given[name])
        if not self._on_gpu:
            given = {name: self._array(name, value) for name, value in given.items()}
        given |= {name: self._state(tensor) for name, tensor in self._given_states.items()}
        results = super().run(given)
        if self._model.checks is not None:
            _raise_failed(self._model.checks, results.pop(self._model.checks.name))
        for name in self._model.pairs & results.keys():
            results[name] = _of_parts(results[name])
        for name, tensor in self._given_states.items():
            _write_back(tensor, results.pop(self._model.state_outputs[name]))
        if not speaks_torch:
            return results
        for name in self._written_inputs:
            _write_back(inputs[name], results.pop(self._model.state_outputs[name]))
        tensors = {name: as_tensor(value) for name, value in results.items()}
        for name in self._model.on_host & tensors.keys():
            tensors[name] = tensors[name].cpu()
        return tensors

    @property
    def _has_plain_calls(self) -> bool:
        """Whether a call on a GPU is no more than the executor's, but for checks of what is new in it."""
        model = self._model
        extras = (self._given_states, self._written_inputs, model.pairs, model.checks, model.on_host, self._random)
        return self._on_gpu and not any(extras)

    @cached_property
    def is_plain(self) -> bool:
        """Whether any call on a GPU is no more than the executor's, without states and checks of sizes."""
        return self._has_plain_calls and not self._model.states and not self._sizes.checks_any

    def run_plain(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """As `run`, where `is_plain`, for tensors without gradients whose dtypes and devices are known to be right."""
        return super().run(tensors)

    def run_alike(self, tensors: Sequence[Any]) -> list[Any] | None:
        """The `results` for tensors in the `order` of inputs, if the call is like the one before, else None.

        The caller knows that they need no gradients and are in no transform of torch.func. All else is compared with
        the call before, which has passed every check.
        """
        if self._alike is None:
            return None
        try:
            return self._alike.run_alike(tensors)
        except CapgraphError as error:
            error.of_model(self.graph.name, REMEDY)
            raise

    def _like_the_one_before(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs of a call that `run_alike` serves."""
        if self._alike is None or peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
            return None
        tensors = [inputs.get(name) for name in self.order]
        records = torch.is_grad_enabled()
        if any(not isinstance(each, torch.Tensor) or (records and each.requires_grad) for each in tensors):
            return None
        found = self.run_alike(tensors)
        return None if found is None else dict(zip(self.results, found, strict=True))

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

    def _check_tensors(self, tensors: Mapping[str, Any]) -> None:
        """What of tensors is told in PyTorch's words, or is told nowhere else."""
        _refuse_transforms(tensors)
        if torch.is_grad_enabled():
            for name, tensor in tensors.items():
                if tensor.requires_grad:
                    raise UnsupportedError(
                        f"capgraph is for inference, but input {name!r} needs gradients",
                        remedy=f"call the program under torch.no_grad(), or with {name_for_code(name)}.detach()",
                    )
        if self._on_gpu and self._model.on_gpu:
            self._check_devices(tensors)
        for name, tensor in tensors.items():
            wanted = self._dtypes.get(name, tensor.dtype)
            if tensor.dtype is not wanted:
                raise InputError(
                    f"input {name!r} is a tensor of {tensor.dtype}, but the module was exported with {wanted}",
                    remedy=f"cast it: {name_for_code(name)}.to({wanted})",
                )

    def _check_devices(self, tensors: Mapping[str, Any]) -> None:
        """As PyTorch: beside tensors on the GPU only scalars may lie in main memory, and what was traced there."""
        strays = [name for name in self._model.on_gpu & tensors.keys() if tensors[name].is_cpu and tensors[name].dim()]
        if strays and any(tensor.is_cuda for tensor in tensors.values()):
            raise InputError(
                f"input {strays[0]!r} lies on the CPU, beside others on a GPU",
                remedy=f"move it there: {name_for_code(strays[0])}.to({self.target.device!r})",
            )


def _raise_failed(checks: CheckedOutput, found: Any) -> None:
    held = found.tolist()  # of tensors on a GPU once they are computed
    if not all(held):
        message, where = checks.said[held.index(False)]
        raise CheckError(message, where=where)


def _refuse_transforms(tensors: Mapping[str, Any]) -> None:
    """Raises for what has no content of its own: tensors inside torch.func's transforms, tangents of forward mode."""
    if peek_interpreter_stack() is not None and any(map(is_functorch_wrapped_tensor, tensors.values())):
        raise UnsupportedError(
            "a compiled program cannot run inside vmap, grad and other transforms of torch.func",
            remedy='compile the transformed function: torch.compile(torch.func.vmap(module), backend="capgraph")',
        )
    if forward_ad._current_level >= 0:
        for name, tensor in tensors.items():
            if forward_ad.unpack_dual(tensor).tangent is not None:
                raise UnsupportedError(
                    f"capgraph is for inference, but input {name!r} has a tangent of forward mode",
                    remedy="call the module itself, or compile what calls torch.func.jvp",
                )


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


def _dtypes(model: TorchModel) -> dict[str, Any]:
    """PyTorch's dtypes of the inputs, of complex ones those that they have before their parts are taken."""
    types = {each.name: each.type for each in model.graph.inputs}
    plain = {name: torch_dtype_of(ty.dtype) for name, ty in types.items() if isinstance(ty, TensorType)}
    return {name: dtype.to_complex() if name in model.pairs else dtype for name, dtype in plain.items()}
