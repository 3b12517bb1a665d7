"""The arguments of a call of a PyTorch module, as they were when it was exported, and which inputs they stand for."""

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..frontends.torch.model import TorchModel
from ..frontends.torch.tensors import tensor_of
from ..ir.errors import InputError

_DICTS = (dict, OrderedDict)
_AS_EXPORTED = "pass arguments in the structure that they had at the export"


class Arguments:
    """What a module was exported with: by position, by name, in which structure, and what is fixed of it."""

    def __init__(self, model: TorchModel) -> None:
        self._model = model
        self._spec = model.in_spec
        args, kwargs = self._spec.children()
        self._count = len(args.children())
        self._names: list[str] = list(kwargs.context or ())
        self._signature = _plain_signature(model)
        parameters = list(self._signature.parameters) if self._signature is not None else []
        known = parameters if len(parameters) >= self._count else range(self._count)
        self._positions = [str(each) for each in known[: self._count]]
        self._places = [
            place
            for name, spec in zip([*self._positions, *self._names], self._children(), strict=True)
            for place in _leaf_places(spec, name)
        ]
        self._may_be_positional = _may_be_positional(self._signature)
        names = [*self._positions, *self._names] if self._is_flat() else []
        pairs = zip(names, self._model.inputs, strict=False)
        self._flat = {name: given for name, given in pairs if given is not None}

    def _is_flat(self) -> bool:
        """Whether each argument is a tensor by its name, and stands for an input: none is nested, fixed, or a size."""
        inputs = self._model.inputs
        stand = all(name is not None and name not in self._model.sizes for name in inputs)
        return self._signature is not None and stand and all(child.is_leaf() for child in self._children())

    def _children(self) -> list[Any]:
        return [child for each in self._spec.children() for child in each.children()]

    def inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The graph's inputs by name. Raises `InputError` where a call is not that of the exported module."""
        model = self._model
        if self._flat and len(args) + len(kwargs) == len(self._flat):
            values = dict(zip(self._may_be_positional, args, strict=False), **kwargs)
            if values.keys() == self._flat.keys() and all(isinstance(each, torch.Tensor) for each in values.values()):
                return {name: values[argument] for argument, name in self._flat.items()}
        leaves = self._leaves(args, kwargs)
        given: dict[str, Any] = {}
        for name, fixed, place, leaf in zip(model.inputs, model.fixed, self._places, leaves, strict=True):
            if name is None:
                _check_fixed(place, fixed, leaf)
            else:
                given[name] = _size_carrier(place, leaf) if name in model.sizes else _tensor(place, leaf)
        return given

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        ordered = self._as_exported(args, kwargs)
        leaves, found = pytree.tree_flatten(ordered)
        if found == self._spec:
            return list(leaves)
        values = [*ordered[0], *ordered[1].values()]
        named = zip([*self._positions, *self._names], values, self._children(), strict=True)
        return [leaf for name, value, spec in named for leaf in _leaves_like(value, spec, name)]

    def _as_exported(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, by position and by name those that were so at the export."""
        if len(args) == self._count and kwargs.keys() == set(self._names):
            return tuple(args), {name: kwargs[name] for name in self._names}
        given = self._by_name(args, kwargs)
        taken = [*self._positions, *self._names]
        for name in given.keys() - taken:
            self._check_left_out(name, given[name])
        missing = next((name for name in taken if given.get(name, Parameter.empty) is Parameter.empty), None)
        if missing is not None:
            raise InputError(f"argument {missing} is missing, but the module was exported with it", remedy="pass it")
        return tuple(given[name] for name in self._positions), {name: given[name] for name in self._names}

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._signature is None:
            raise InputError(
                f"the module is called with {_counted(len(args), kwargs)}, but was exported with "
                f"{_counted(self._count, self._names)}",
                remedy="pass arguments as at the export, by position or by name",
            )
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(
                f"the module cannot be called so: {error}", remedy=f"call it as its forward{self._signature}"
            ) from error
        bound.apply_defaults()
        return dict(bound.arguments)

    def _check_left_out(self, name: str, value: Any) -> None:
        """Refuses an argument that the export left out, unless it is the default that the export saw."""
        default = self._signature.parameters[name].default if self._signature is not None else Parameter.empty
        if not _is_same(value, default):
            raise InputError(
                f"argument {name} is {_described(value)}, but the module was exported without it",
                remedy="export it again with this argument",
            )


def _plain_signature(model: TorchModel) -> Any:
    """How the module's forward is called; None where that is not known, or takes any number of arguments."""
    found = model.signature
    parameters = found.parameters.values() if found is not None else ()
    is_open = any(each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for each in parameters)
    return None if is_open else found


def _may_be_positional(signature: Any) -> list[str]:
    """The arguments that may be given by position as well as by name, in order; none where one may only be so."""
    parameters = signature.parameters.values() if signature is not None else ()
    if any(each.kind is Parameter.POSITIONAL_ONLY for each in parameters):
        return []
    return [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]


def _counted(count: int, names: Any) -> str:
    return f"{count} arguments by position and by name {', '.join(map(str, names)) or 'none'}"


# ---- structure


def _leaf_places(spec: Any, place: str) -> Iterator[str]:
    """What each leaf of an argument is called: `x`, `x['key']`, `x[0]`."""
    if spec.is_leaf():
        yield place
        return
    keys = spec.context if spec.type in _DICTS else range(len(spec.children()))
    for key, child in zip(keys, spec.children(), strict=True):
        yield from _leaf_places(child, f"{place}[{key!r}]")


def _leaves_like(value: Any, spec: Any, place: str) -> list[Any]:
    """The leaves of an argument in the order of the exported one, in which dicts may have had another order."""
    leaves, found = pytree.tree_flatten(value)
    if found == spec:
        return list(leaves)
    if spec.type in _DICTS and isinstance(value, Mapping) and value.keys() == set(spec.context):
        parts = {key: value[key] for key in spec.context}
    elif spec.type in (list, tuple) and type(value) is spec.type and len(value) == len(spec.children()):
        parts = dict(enumerate(value))
    else:
        raise InputError(
            f"argument {place} is {_described(value)}, but was {_structure_text(spec)} at the export",
            remedy=_AS_EXPORTED,
        )
    pairs = zip(parts.items(), spec.children(), strict=True)
    return [leaf for (key, part), child in pairs for leaf in _leaves_like(part, child, f"{place}[{key!r}]")]


def _structure_text(spec: Any) -> str:
    if spec.is_leaf():
        return "a single value"
    if spec.type in _DICTS:
        return f"a dict with {', '.join(map(repr, spec.context)) or 'nothing'}"
    return f"a {spec.type.__name__} of {len(spec.children())}"


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor) or _is_array(value):
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    spec = pytree.tree_flatten(value)[1]
    return repr(value) if spec.is_leaf() else _structure_text(spec)


# ---- leaves


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_same(value: Any, fixed: Any) -> bool:
    """Whether a plain value is the same, by type and bit by bit: NaN is NaN, and 0.0 is not -0.0."""
    if type(value) is not type(fixed) or isinstance(value, torch.Tensor) or _is_array(value):
        return value is fixed
    return repr(value) == repr(fixed) if isinstance(value, float | complex) else bool(value == fixed)


def _check_fixed(place: str, fixed: Any, leaf: Any) -> None:
    if not _is_same(leaf, fixed):
        raise InputError(
            f"argument {place} is {_described(leaf)}, but the module was exported with {fixed!r}",
            remedy="what is no tensor is fixed when a module is exported: export it again",
        )


def _tensor(place: str, leaf: Any) -> Any:
    """A tensor, or an array of another library; one of NumPy as a tensor over its memory."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) is np.ndarray and leaf.dtype.isnative and leaf.dtype.kind not in "OSUTmM":
        return tensor_of(leaf)
    if not _is_array(leaf):
        raise InputError(
            f"argument {place} is {_described(leaf)}, but the module was exported with a tensor",
            remedy="pass a tensor, such as torch.as_tensor(...) of it, or export the module again with such a value",
        )
    return leaf


def _size_carrier(place: str, size: Any) -> Any:
    """A size as an input of which nothing but its length counts."""
    if type(size) is not int or not 0 <= size <= sys.maxsize:
        raise InputError(
            f"argument {place} is {_described(size)}, but the module was exported with a size, an int of 0 or more",
            remedy="pass such an int; for others export the module again",
        )
    return np.broadcast_to(np.zeros((), np.bool_), (size,))
