"""NaN, infinities and zeros of either sign in what sorts, chooses and compares: PyTorch's rules."""

import re
import warnings
from typing import Any

import capgraph
import pytest
import torch
from torch import nn

INF, NAN = float("inf"), float("nan")
ROWS = [
    [1, NAN, -INF, INF, 0.0, -0.0, NAN, 2],
    [INF, INF, -INF, -INF, 0, 1, -1, INF],
    [NAN] * 8,
    [-INF] * 8,
    [-INF, -INF, NAN, -INF, 3, NAN, INF, 1],
    [5, 4, 3, 2, 1, 0, -1, -2],
]


class Choices(nn.Module):
    def forward(self, x: Any) -> Any:
        other = x.flip(-1)
        edges = torch.tensor([-1.0, 0.0, 1.0]).to(x.dtype)
        return (
            *torch.sort(x, stable=True),
            *torch.sort(x, descending=True, stable=True),
            *(torch.topk(x, 3, largest=largest).values for largest in (True, False)),
            x.gather(-1, torch.topk(x, 3).indices),
            *(x.argmax(-1), x.argmin(-1), x.argmax()),
            *(*x.max(-1), *x.min(-1), x.amax(-1), x.amin(-1), x.max(), x.min()),
            *(torch.maximum(x, other), torch.minimum(x, other), torch.fmax(x, other), torch.fmin(x, other)),
            *(x.clamp(-1, 1), x.clamp(min=0), torch.relu(x)),
            *(torch.cummax(x, -1).values, torch.cummin(x, -1).values),
            *(x.median(-1).values, x.median(), x.nanmedian(-1).values, x.nanmedian(), x.kthvalue(2).values),
            *(torch.searchsorted(edges, x), torch.searchsorted(edges, x, right=True), torch.bucketize(x, edges)),
            torch.nn.functional.max_pool1d(x[:, None], 3),
            torch.zeros_like(x).scatter_reduce(1, torch.zeros_like(x, dtype=torch.int64), x, "amax"),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_choices_are_pytorchs(dtype: Any) -> None:
    x = torch.tensor(ROWS).to(dtype)
    program = capgraph.optimize(Choices(), args=(x,), executor="graph")
    with torch.no_grad():
        expected = Choices()(x)
        for _ in range(2):  # eagerly, and replayed
            for index, (old, new) in enumerate(zip(expected, program(x), strict=True)):
                assert (old.dtype, old.shape) == (new.dtype, new.shape)
                assert torch.equal(old.isnan(), new.isnan()), index
                assert torch.equal(old[~old.isnan()], new[~new.isnan()]), index


class Greatest(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.topk(x, 5), torch.topk(x, 5, largest=False), torch.topk(x.T, 2, dim=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_greatest_few_are_pytorchs_in_onnx_runtime(dtype: Any) -> None:
    x = torch.tensor([*ROWS, [INF, torch.finfo(dtype).max, NAN, 3, -INF, -torch.finfo(dtype).max, 1, 2]]).to(dtype)
    program = capgraph.optimize(Greatest(), args=(x,), executor="ort")
    for (values, places), wanted in zip(program(x), Greatest()(x), strict=True):
        torch.testing.assert_close(values, wanted.values, rtol=0, atol=0, equal_nan=True)
        rows = x if values.shape[1] == 5 else x.T
        torch.testing.assert_close(rows.gather(-1 if rows is x else 0, places), values, rtol=0, atol=0, equal_nan=True)


class Spread(nn.Module):
    def forward(self, x: Any, places: Any) -> Any:
        zeros = torch.zeros_like(x)
        nothing = places[:0, 0]
        return (
            *(zeros.scatter_reduce(1, places, x, how) for how in ("amax", "amin", "sum")),
            x[0].gather(0, nothing),
            x.gather(1, nothing),
            x[0].index_copy(0, torch.tensor(2), torch.tensor(7.0)),
        )


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_what_is_spread_over_places(executor: str) -> None:
    x = torch.tensor(ROWS)
    places = torch.arange(8).remainder(3).repeat(len(ROWS), 1)
    program = capgraph.optimize(Spread(), args=(x, places), executor=executor)
    for one, other in zip(program(x, places), Spread()(x, places), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


class Apart(nn.Module):
    """What holds a NaN or an infinity keeps it to itself."""

    def forward(self, x: Any) -> Any:
        grid = x.view(1, 1, 6, 8)
        F = nn.functional
        return (
            *(F.adaptive_avg_pool1d(x, size) for size in (1, 2, 3, 5, 12)),
            *(F.adaptive_avg_pool2d(grid, size) for size in ((4, 3), (5, 8), (9, 11))),
            F.adaptive_avg_pool3d(grid, (1, 4, 5)),
            F.interpolate(grid, (4, 5), mode="area"),
            *(F.softshrink(x), F.hardshrink(x)),
            torch.addmm(torch.ones(8), torch.ones(6, 6), x, alpha=0),
            torch.addmm(x, torch.ones(6, 6), torch.ones(6, 8), beta=0),
        )


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_parts_without_nan_stay_so(executor: str) -> None:
    x = torch.arange(48.0).view(6, 8)
    x[1, 2], x[3, 3], x[4, 7] = NAN, INF, -INF
    program = capgraph.optimize(Apart(), args=(x,), executor=executor)
    for index, (one, other) in enumerate(zip(program(x), Apart()(x), strict=True)):
        torch.testing.assert_close(one, other, equal_nan=True, msg=lambda text, index=index: f"{index}: {text}")


class Distinct(nn.Module):
    def forward(self, x: Any) -> Any:
        return *torch.unique(x, return_inverse=True, return_counts=True), torch.unique(x)


@pytest.mark.parametrize("executor", ["ort", "eager", "graph"])
def test_no_nan_is_another(executor: str) -> None:
    rows = torch.export.Dim("rows", min=0, max=9)
    example = torch.ones(4, 8, dtype=torch.float64)
    program = capgraph.optimize(Distinct(), args=(example,), dynamic_shapes=({0: rows},), executor=executor)
    for x in (torch.tensor(ROWS), torch.full((2, 8), NAN), torch.empty(0, 8), torch.tensor([[0.0, -0.0] * 4])):
        distinct, places, *others = program(x.double())
        wanted, wanted_places, *wanted_others = Distinct()(x.double())
        torch.testing.assert_close([distinct, *others], [wanted, *wanted_others], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(places[~x.isnan()], wanted_places[~x.isnan()])  # PyTorch has NaN in no order
        assert torch.equal(places[x.isnan()].sort()[0], wanted_places[x.isnan()].sort()[0])


class DistinctSlices(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Any) -> Any:
        return torch.unique(x, return_inverse=True, return_counts=True, dim=self.dim)


@pytest.mark.parametrize("executor", ["ort", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("dim", [0, 1])
def test_distinct_slices_are_those_of_pytorch_beside_nan(dim: int, dtype: torch.dtype, executor: str) -> None:
    rows = torch.tensor([[1, NAN], [1, NAN], [0, 2], [-0.0, 2], [NAN, 1], [1, 2], [NAN, 1], [-0.0, 1], [1, 2]])
    if not dtype.is_floating_point:
        rows = rows.nan_to_num(nan=3)
    module, x = DistinctSlices(dim), rows.to(dtype)
    found = capgraph.optimize(module, args=(x,), executor=executor)(x)
    torch.testing.assert_close(found, module(x), rtol=0, atol=0, equal_nan=True)
    if dtype.is_floating_point:
        assert torch.equal(found[0].signbit(), module(x)[0].signbit())


def test_distinct_slices_without_elements_are_refused_as_by_pytorch() -> None:
    x = torch.zeros(3, 0, dtype=torch.int64)
    with pytest.raises(capgraph.CapgraphError, match="0 sized dimensions"):
        capgraph.optimize(DistinctSlices(0), args=(x,), executor="eager")(x)


@pytest.mark.parametrize(
    ("function", "x"),
    [(torch.max, torch.ones(0, 3)), (torch.min, torch.ones(0, dtype=torch.int64)), (torch.argmax, torch.ones(3) > 0)],
)
@pytest.mark.filterwarnings("ignore::capgraph.CapgraphWarning")
def test_extremes_that_pytorch_refuses_are_refused(function: Any, x: torch.Tensor) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        function(x)
    compiled = torch.compile(function, backend="capgraph", options={"executor": "eager"})
    with torch.no_grad(), pytest.raises(capgraph.CapgraphError, match=re.escape(str(expected.value))):
        compiled(x)


class Nothing(nn.Module):
    def forward(self, x: Any, count: Any) -> Any:
        return x.median(), x.nanmedian(), count.median(), torch.tensor(2.0).var(-1), torch.tensor(2.0).std(0)


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_the_middle_and_the_spread_of_nothing(executor: str) -> None:
    args = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        wanted = Nothing()(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = capgraph.optimize(Nothing(), args=args, executor=executor)(*args)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


class Places(nn.Module):
    def forward(self, rows: Any, x: Any) -> Any:
        return torch.searchsorted(rows, x), torch.bucketize(x, rows, right=True), torch.bucketize(1.5, rows)


@pytest.mark.parametrize(
    "dtypes", [(torch.int64, torch.float32), (torch.uint8, torch.int32), (torch.int32, torch.float16)]
)
def test_places_in_rows_of_another_dtype(dtypes: Any) -> None:
    rows = torch.tensor([0, 1, 1, 3, 7]).to(dtypes[0])
    x = torch.tensor([0.5, -2, 1, 2.75, 100]).to(dtypes[1])
    program = capgraph.optimize(Places(), args=(rows, x), executor="ort")
    for found, wanted in zip(program(rows, x), Places()(rows, x), strict=True):
        assert torch.equal(found, wanted)
