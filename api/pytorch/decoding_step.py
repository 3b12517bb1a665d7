"""One step of generation as a program, traced by torch.export: for all texts of the same shapes that a model writes.

A step follows tensors: those of other texts and caches take the place of the ones that it was traced with. Steps are
held as long as their model lives. They hold its weights and the latest cache, but not the model.
"""

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from ..frontends.torch.rounding import asked_tf32
from ..ir.errors import CapgraphError, UnsupportedError
from ..ir.notices import Notices
from ..optimization import optimize
from .backend import note_live
from .program import TorchProgram
from .weights import HeldWeights

OPTIONS: dict[str, Any] = {
    "executor": "graph",
    "capture": {"beyond": "exact", "copy_outputs": False, "inputs": {"": "rerecord"}},
}
"""Of a step's program: what it reads and writes lies where it did for the token before."""

MOST_STEPS = 16
"""How many are held for one model; of more the oldest goes."""

_WRITTEN = ("tokens", "count", "longest", "are_open")
_READ = ("mask", "padding", "ends", "pad", "sampling")
_PLAIN = (bool, int, float, str, type(None))
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")

Function = Callable[[Any, Any, Any], None]
"""What a step does with a model, its cache, and the texts."""


def step_for(function: Function, model: Any, cache: Any, texts: Any) -> "DecodingStep | None":
    """The step of these shapes; None where torch.export does not take it, or would not see what Python counts."""
    counts = any(type(each).__name__ != "StaticLayer" for each in cache.layers)  # as those of sliding windows do
    if counts or torch.is_autocast_enabled(texts.tokens.device.type):
        return None
    with _LOCK:
        if model in _REFUSED:
            return None
        steps = _STEPS.get(model)
        if steps is None or not steps.fit(model):
            steps = _STEPS[model] = _Steps(model)
        try:
            return steps.step(function, model, cache, texts)
        except CapgraphError as error:
            _REFUSED.add(model)
            Notices(type(model).__name__).say(
                "step", f"a token is traced by torch.compile, which takes longer: {error.message}", error.remedy or ""
            )
            return None


class DecodingStep:
    """One step's program, which takes its tensors from the texts, and the cache, that it is called with."""

    def __init__(self, function: Function, model: Any, cache: Any, texts: Any) -> None:
        states = _states(cache, texts)
        program = optimize(
            DecodingModule(function, model, cache, texts), args=tuple(getattr(texts, each) for each in _READ), **OPTIONS
        )
        assert isinstance(program, TorchProgram)  # as the module is PyTorch's
        if program.states.keys() != states.keys():
            strays = ", ".join(sorted(program.states.keys() ^ states.keys()))
            raise UnsupportedError(f"a step writes to more or less than its cache and texts: {strays}")
        self._program = program
        self._texts = texts
        self._given = _inputs(texts)
        self._lock = threading.Lock()
        note_live(self)

    @property
    def programs(self) -> list[TorchProgram]:
        """The one that it has."""
        return [self._program]

    def __call__(self, cache: Any, texts: Any) -> None:
        """Writes the next token of each text."""
        with self._lock:
            if texts is not self._texts:
                self._turn_to(cache, texts)
            if self._program.run_alike(self._given) is None:
                self._program.run(dict(zip(self._program.order, self._given, strict=True)))

    def _turn_to(self, cache: Any, texts: Any) -> None:
        held, wanted = self._program.states, _states(cache, texts)
        moved = {name: tensor for name, tensor in wanted.items() if tensor.data_ptr() != held[name].data_ptr()}
        if moved and not self._program.move_states(wanted):
            raise UnsupportedError(
                "the cache begins where no recording can write",
                remedy="let transformers make it, or leave out decoding_loop",
            )
        self._texts, self._given = texts, _inputs(texts)


class DecodingModule(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # PyTorch is not typed here
    """The step as a module: what it writes to are its buffers, what it reads of the texts are its arguments."""

    def __init__(self, function: Function, model: Any, cache: Any, texts: Any) -> None:
        super().__init__()
        self.model = model
        self._parts = function, cache, texts
        for name, tensor in _states(cache, texts).items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, mask: Any, padding: Any, ends: Any, pad: Any, sampling: Any) -> None:
        function, cache, texts = self._parts
        given = {name: getattr(self, name) for name in _WRITTEN}
        own = copy.copy(cache)
        own.layers = [copy.copy(layer) for layer in cache.layers]
        for name, layer, key in _places(own):
            setattr(layer, key, getattr(self, name))
        texts = replace(texts, **given, mask=mask, padding=padding, ends=ends, pad=pad, sampling=sampling)
        facts = _facts(self.model)
        function(self.model, own, texts)
        if _facts(self.model) != facts:
            raise UnsupportedError("the model writes to its own attributes", remedy="leave that out of its forward")


class _Steps:
    """The steps of one model with the weights that it has."""

    def __init__(self, model: Any) -> None:
        weights = _weights(model)
        self._places = _shapes(weights, torch.Tensor.data_ptr)
        self._held = HeldWeights(type(model).__name__, weights, range(len(weights)), most_calls=1)
        self._made: dict[Any, DecodingStep] = {}

    def fit(self, model: Any) -> bool:
        """Whether the weights are the same tensors with the same content."""
        weights = _weights(model)
        return self._places == _shapes(weights, torch.Tensor.data_ptr) and self._held.are_unwritten(weights)

    def step(self, function: Function, model: Any, cache: Any, texts: Any) -> DecodingStep:
        tensors = [*_states(cache, texts).values(), *_inputs(texts)]
        key = (_facts(model), asked_tf32(), _shapes(tensors, torch.Tensor.stride))
        found = self._made.pop(key, None)
        if found is None:
            for oldest in list(self._made)[: 1 - MOST_STEPS]:
                del self._made[oldest]
            found = DecodingStep(function, model, cache, texts)
        self._made[key] = found
        return found


_LOCK = threading.Lock()
_STEPS: "WeakKeyDictionary[Any, _Steps]" = WeakKeyDictionary()
_REFUSED: "WeakSet[Any]" = WeakSet()
"""Models whose steps torch.export does not take."""


def _places(cache: Any) -> Iterator[tuple[str, Any, str]]:
    """The tensors of a cache: a name, the layer, and what it calls the tensor."""
    for index, layer in enumerate(cache.layers):
        for key, value in vars(layer).items():
            if isinstance(value, torch.Tensor):
                yield f"{key}_{index}", layer, key


def _states(cache: Any, texts: Any) -> dict[str, Any]:
    """What a step writes to, by name."""
    of_texts = {name: getattr(texts, name) for name in _WRITTEN}
    return {**of_texts, **{name: getattr(layer, key) for name, layer, key in _places(cache)}}


def _inputs(texts: Any) -> list[Any]:
    """What a step reads only, in the order of the arguments."""
    return [*(getattr(texts, name) for name in _READ[:-1]), *(texts.sampling or ())]


def _weights(model: Any) -> list[Any]:
    return list(itertools.chain(model.parameters(), model.buffers()))


def _shapes(tensors: list[Any], more: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple((each.shape, each.dtype, each.device, more(each)) for each in tensors)


def _facts(model: Any) -> tuple[Any, ...]:
    """What of a model's Python may decide what it computes: classes, numbers, words, functions and hooks."""
    modules = list(model.modules())
    configs = {id(each): each for each in (getattr(module, "config", None) for module in modules) if each is not None}
    plain = (tuple(_plain_facts(each)) for each in (*modules, *configs.values()))
    hooks = (tuple(map(id, getattr(each, kind).values())) for each in modules for kind in _HOOKS)
    return (*plain, *hooks)


def _plain_facts(thing: Any) -> Iterator[Any]:
    yield type(thing)
    for key, value in vars(thing).items():
        if type(value) in _PLAIN:
            yield key, value
        elif isinstance(value, list | tuple) and all(type(each) in _PLAIN for each in value):
            yield key, tuple(value)
        elif callable(value) and not isinstance(value, torch.nn.Module | type):
            yield key, id(value)
