"""Which operators PyTorch takes apart before they are imported: all but its core set and what the IR has whole."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

from .fast_paths import FAST_PATHS

KEPT = (
    *("linear", "matmul", "scaled_dot_product_attention", "layer_norm", "rms_norm", "group_norm", "instance_norm"),
    *("native_layer_norm", "native_group_norm", "batch_norm", "gelu", "silu", "mish", "hardswish", "hardsigmoid"),
    *("leaky_relu", "elu", "celu", "selu", "relu6", "hardtanh", "softplus", "prelu", "hardshrink", "softshrink"),
    *("log_sigmoid_forward", "glu", "softmax", "log_softmax", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("native_channel_shuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d", "upsample_nearest1d", "upsample_nearest2d"),
    *("upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "addmm"),
    *("addmv", "addr", "addbmm", "baddbmm", "unbind", "split", "tril", "triu", "roll", "stack", "logaddexp", "frac"),
    *(
        "masked_fill",
        "where",
        "masked_scatter",
        "unfold",
        "diagonal",
        "diag_embed",
        "aminmax",
        "xlogy",
        "special_xlogy",
    ),
    *(
        "lerp",
        "index_copy",
        "index_add",
        "index_fill",
        "select_scatter",
        "slice_scatter",
        "isfinite",
        "std",
        "var_mean",
        "std_mean",
        "trunc",
        "square",
    ),
    *("count_nonzero", "linspace", "eye", "one_hot", "narrow", "movedim", "repeat_interleave", "clamp", "take"),
    *("addcmul", "addcdiv", "rad2deg", "deg2rad", "logit", "nan_to_num", "sinc", "special_sinc"),
    *("searchsorted", "bucketize", "median", "argsort", "kthvalue", "isinf", "isneginf", "isposinf", "copysign"),
    *("norm", "linalg_vector_norm", "logsumexp", "cumprod", "lstm", "gru", "rnn_tanh", "rnn_relu"),
)
"""ATen operators with a lowering that says more than their decomposition."""


def decompositions(graph: Any = None) -> Any:
    """The table for `ExportedProgram.run_decompositions` of a program with this graph."""
    table = torch.export.default_decompositions()
    apart = _norms_with_statistics() if graph is not None and any(map(updates_statistics, graph.nodes)) else ()
    for overload in _kept_overloads():
        if overload not in apart:
            table.pop(overload, None)
    table.update(FAST_PATHS)
    table.update(_of_lists())
    overload = torch.ops.aten.unfold_backward.default
    table[overload] = partial(_unfold_backward, table[overload])
    return table


def _unfold_backward(summed: Any, windows: Any, size: Sequence[int], dim: int, length: int, step: int) -> Any:
    """What was written to windows, where it lies: `summed` is PyTorch's rule, a sum from 0, which makes 0.0 of -0.0."""
    if step < length or not size:
        return summed(windows, size, dim, length, step)
    axis = dim % len(size)
    places = torch.arange(size[axis], device=windows.device).unfold(0, length, step).flatten()
    parts = windows.movedim(-1, axis + 1).flatten(axis, axis + 1)
    return torch.index_copy(windows.new_zeros(size), axis, places, parts)


@cache
def _of_lists() -> dict[Any, Any]:
    """The operators of lists of tensors (`_foreach_add`, say), which optimizers are made of, element by element."""
    table = {}
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        one = _ONE_OF_LIST.get(packet) or getattr(torch.ops.aten, packet.removeprefix("_foreach_"), None)
        is_functional = not packet.endswith("_") and "out" not in overload
        if one is not None and is_functional and name.startswith("aten::_foreach_"):
            whole = getattr(getattr(torch.ops.aten, packet), overload or "default")
            lists = tuple(str(argument.type).startswith("List[") for argument in whole._schema.arguments)
            if "scalars" not in {a.name for a in whole._schema.arguments} or lists[-1]:  # not: numbers in one tensor
                table[whole] = partial(_for_each, one, lists)
    return table


def _for_each(one: Any, lists: Sequence[bool], *args: Any, **kwargs: Any) -> list[Any]:
    count = next(len(given) for given, is_list in zip(args, lists, strict=False) if is_list)
    return [
        one(*(given[index] if is_list else given for given, is_list in zip(args, lists, strict=False)), **kwargs)
        for index in range(count)
    ]


_ONE_OF_LIST = {
    "_foreach_addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "_foreach_addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
    "_foreach_maximum": torch.ops.aten.clamp_min,
    "_foreach_minimum": torch.ops.aten.clamp_max,
    "_foreach_norm": lambda x, order=2, dtype=None: torch.linalg.vector_norm(x, order, dtype=dtype),
}
"""What those do to one element that are not the operator of the same name with the same arguments."""


@cache
def _kept_overloads() -> tuple[Any, ...]:
    packets = [getattr(torch.ops.aten, name) for name in KEPT if hasattr(torch.ops.aten, name)]
    return tuple(getattr(packet, overload) for packet in packets for overload in packet.overloads())


def _norms_with_statistics() -> tuple[Any, ...]:
    return (torch.ops.aten.instance_norm.default, torch.ops.aten.batch_norm.default)


def updates_statistics(node: Any) -> bool:
    """Whether a node is a norm that writes to running statistics: as a whole its schema does not tell.

    Only the operators that it is made of let PyTorch see that.
    """
    flags = {"instance_norm": "use_input_stats", "batch_norm": "training"}
    name = getattr(node.target, "__name__", "").removesuffix(".default")
    if node.op != "call_function" or name not in flags:
        return False
    is_python = hasattr(node.target, "__code__")  # torch.nn.functional has the statistics before the weights
    mean, flag = (_given(node, place, of) for place, of in ((1 if is_python else 3, "running_mean"), (5, flags[name])))
    return mean is not None and flag is not False and (flag is not None or name == "instance_norm")


def _given(node: Any, place: int, name: str) -> Any:
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


@cache
def _split_table() -> tuple[Any, Any]:
    """Composite operators that are kept whole, and the decompositions of the others, for tracing by AOT autograd."""
    from torch.export import exported_program

    composites, others = exported_program._split_decomp_table_to_cia_and_python_decomp(decompositions())
    wanted = frozenset(_kept_overloads())
    return {overload: rule for overload, rule in composites.items() if overload in wanted}, others


def aot_decompositions() -> dict[Any, Any]:
    """The table for AOT autograd."""
    return dict(_split_table()[1])


@contextmanager
def composites_kept(module: Any = None) -> Iterator[None]:
    """While active, tracing below autograd keeps the composite operators of `KEPT` as they are.

    Not so where `module` transforms functions (`torch.func`): what is kept has no derivative and no batch there, so
    that gradients would be zeros. Of such a module everything is taken apart, attention too: PyTorch's decomposition
    of its fused kernel gives no logarithms of sums, which its derivative reads.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    has_statistics = any(updates_statistics(node) for graph in _graphs(module) for node in graph.nodes)
    kept = _with_kernels(_kernels_of_kept(), _norms_with_statistics() if has_statistics else ())
    with states_of_lstms(), sdpa_kernel(SDPBackend.MATH) if _transforms_functions(module) else kept:
        yield


@cache
def _kernels_of_kept() -> dict[Any, tuple[dict[Any, Any], Any]]:
    """The kernels that make PyTorch keep each composite operator, and how fake tensors take it.

    Made once: PyTorch makes them anew for each trace, of which a small one takes no longer.
    """
    from torch._subclasses.fake_impls import op_implementations_dict
    from torch.export import exported_program

    override = getattr(exported_program, "_override_composite_implicit_decomp", None)
    if override is None:
        return {}
    composites = _split_table()[0]
    with override(composites):
        return {overload: (dict(overload.py_kernels), op_implementations_dict[overload]) for overload in composites}


@contextmanager
def _with_kernels(made: Mapping[Any, tuple[dict[Any, Any], Any]], but: Sequence[Any]) -> Iterator[None]:
    """While active, operators have these kernels."""
    from torch._subclasses.fake_impls import op_implementations_dict

    made = {overload: each for overload, each in made.items() if overload not in but}
    before = {overload: (dict(overload.py_kernels), op_implementations_dict.get(overload)) for overload in made}

    def put(kernels: Mapping[Any, tuple[dict[Any, Any], Any]]) -> None:
        for overload, (each, rule) in kernels.items():
            overload.py_kernels.clear()
            overload.py_kernels.update(each)
            overload._dispatch_cache.clear()
            if rule is None:
                op_implementations_dict.pop(overload, None)
            else:
                op_implementations_dict[overload] = rule

    put(made)
    try:
        yield
    finally:
        put(before)


def _transforms_functions(module: Any) -> bool:
    """Whether a graph of Dynamo enters a level of functorch: grad, vmap, jvp, functionalize."""
    names = (getattr(node.target, "__name__", "") for graph in _graphs(module) for node in graph.nodes)
    return any(name.endswith("_increment_nesting") for name in names)


def _graphs(module: Any) -> list[Any]:
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    return [each.graph for each in parts if isinstance(each, torch.fx.GraphModule)]


@contextmanager
def states_of_lstms() -> Iterator[None]:
    """While active, tracing gives the last states of an LSTM the shape that running it gives.

    PyTorch 2.11 types them by a decomposition that leaves an axis too many, [layers, 1, B, H], wherever oneDNN is not
    used: on CUDA, and in f16 on the CPU.
    """
    rules = torch._decomp.decompositions
    layer = rules.one_layer_lstm

    def with_shapes(x: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        output, last = layer(x, states, *args, **kwargs)
        return output, tuple(new.reshape(old.shape) for new, old in zip(last, states, strict=True))

    rules.one_layer_lstm = with_shapes
    try:
        yield
    finally:
        rules.one_layer_lstm = layer
