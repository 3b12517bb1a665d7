"""Modules as users write them: in-place updates, views, indexing, control flow; and networks of every kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = _block(3, 8), _block(8, 16)
        self.middle, self.up1 = _block(16, 16), _block(24, 8)
        self.grow = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Any) -> Any:
        fine = self.down1(x)
        coarse = self.down2(F.max_pool2d(fine, 2))
        middle = self.middle(F.avg_pool2d(coarse, 2))
        pixels = middle.flatten(2).transpose(1, 2)
        pixels = pixels + self.attention(pixels, pixels, pixels, need_weights=False)[0]
        middle = F.interpolate(pixels.transpose(1, 2).reshape(middle.shape), scale_factor=2, mode="bilinear")
        return self.out(self.up1(torch.cat([self.grow(middle + coarse), fine], 1)))


def _block(inputs: int, outputs: int) -> Any:
    first = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU())
    return nn.Sequential(
        *first, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class InPlace(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.clone()
        y[:, 0] = 0
        y[:, 1:3] += 1
        y.mul_(2)
        y[y > 3] = -1
        y[:, ::2].neg_()
        return y.clamp_(max=2)


class Views(nn.Module):
    def forward(self, x: Any) -> Any:
        halves = x.view(x.shape[0], -1, 2).transpose(1, 2)[..., ::2]
        left, right = x.chunk(2, -1)
        joined = torch.stack([left, right], 1).flatten(1)
        return halves.reshape(x.shape[0], -1), left.unfold(1, 2, 1), joined, x.T.contiguous(), right[1:]


class WritesThroughViews(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.clone()
        y.view(-1, 2, 4)[:, 1].add_(10)
        y.diagonal()[:2].fill_(7)
        part = y.narrow(1, 2, 3)
        part.copy_(part.flip(1))
        return y, part


class WritesItsInput(nn.Module):
    def forward(self, x: Any) -> Any:
        x.add_(1)
        return x * 2


class Indexing(nn.Module):
    def forward(self, x: Any, index: Any) -> Any:
        rows = torch.arange(x.shape[0])[:, None]
        picked = x.gather(1, index[None].expand(x.shape[0], -1))
        return x[index], x[:, index], x[rows, index[None]], x[..., None, -1], picked, x[:, [0, 2]], x[index, :, None]


class Masking(nn.Module):
    def forward(self, x: Any) -> Any:
        later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        scores = (x[:, :, None] * x[:, None]).masked_fill(later, float("-inf"))
        return scores.softmax(-1), torch.where(x > 0, x, x.exp()), x.masked_fill(x < 0, 0.0)


class Statistics(nn.Module):
    """Counts its calls and keeps a running mean in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class Ring(nn.Module):
    """The latest four means, in a buffer of which one row is written at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 8))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.rows.index_copy_(0, self.place % 4, x.mean(0, keepdim=True))
        self.place += 1
        return self.rows.sum(0) + x


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


class Repeats(nn.Module):
    def forward(self, x: Any) -> Any:
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, x: (i < 5) & (x.sum() < 100), lambda i, x: (i + 1, x * 1.5 + 1), (start, x))


class Scans(nn.Module):
    def forward(self, x: Any) -> Any:
        return scan(lambda carried, row: (carried * 0.5 + row, carried + row), x[0] * 0, x)


class Structures(nn.Module):
    """A loop in Python, and a dict of lists as result."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        seen = []
        for index, layer in enumerate(self.layers):
            x = layer(x) if index % 2 else F.gelu(layer(x), approximate="tanh")
            seen.append(x)
        return {"all": seen, "count": len(seen), "rows": x.shape[0] * 2, "nothing": None}


class MixedPrecision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        return y.float() + x, y.dtype == torch.bfloat16


class Tied(nn.Module):
    """An embedding whose weight is also the last layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.embedding(x.abs().long() % 20).mean(1))


class Matmuls(nn.Module):
    def forward(self, x: Any) -> Any:
        outer = torch.einsum("bi,bj->bij", x, x)
        return (
            outer,
            torch.einsum("bi,bi->b", x, x),
            x @ x.T,
            torch.bmm(x[None], x.T[None]),
            F.bilinear(x, x, outer[0][None]),
        )


class Selects(nn.Module):
    """Results whose sizes only running tells."""

    def forward(self, x: Any) -> Any:
        found = torch.nonzero(x > 0)
        return found, x[x > 0], x[x > 0].sum(), torch.masked_select(x, x < 0) * 2


class MaskedWrites(nn.Module):
    """Writes at places that only running tells, of as many values."""

    def forward(self, x: Any) -> Any:
        rows, doubled, negated, cleared, kept = x[:, 0] > 0, x.clone(), x.clone(), x.clone(), torch.zeros_like(x)
        doubled[rows] = doubled[rows] * 2
        doubled[rows] += 1
        negated[x > 0] = -negated[x > 0]
        cleared[:, x[0] > 0] = 0
        kept[rows] = x[rows] @ torch.eye(8, dtype=x.dtype)
        row, column = torch.where(x > 0)
        kept[row, torch.tensor([0])] = 3
        return doubled, negated, cleared, kept, x[row, torch.tensor([0])], x.index_fill(0, row, 2.0), column


class Experts(nn.Module):
    """A mixture of experts, each of which computes the rows that chose it."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        weights, chosen = x[:, :3].topk(2)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            total.index_add_(0, row, expert(x[row]) * weights[row, place, None])
        return total


class Neighbors(nn.Module):
    """Messages to the rows that were found and to each row itself: sums, means and maxima of them."""

    def forward(self, x: Any) -> Any:
        found, own = torch.where(x > 0)[0], torch.arange(x.shape[0])
        rows = torch.cat([found, own[1:]])
        degree = x.new_zeros(x.shape[0]).scatter_add(0, rows, torch.ones(rows.shape[0], dtype=x.dtype))
        index = rows[:, None].expand(-1, 8)
        reduced = (
            torch.zeros_like(x).scatter_reduce(0, index, x[rows], kind, include_self=is_included)
            for kind in ("sum", "mean", "amax", "prod")
            for is_included in (True, False)
        )
        return degree, *reduced, (x * 9).long().scatter_reduce(0, index, rows[:, None] - index, "mean")


class SelectedSizes(nn.Module):
    """Tensors made to the size of what was selected."""

    def forward(self, x: Any) -> Any:
        some = x[x[:, 0] > 0]
        count = some.shape[0]
        made = torch.full((count * 2, 3), 5.0), torch.arange(count * 2), some.new_zeros(count, 2)
        added = torch.cat([some, some]).index_add(0, made[1], torch.ones(count * 2, 8, dtype=x.dtype))
        return *made, added, some.reshape(-1).expand(3, -1), x[:count], count * 4 + 1


class Counts(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * (x > 0).sum().item()


class ComplexNumbers(nn.Module):
    """Rotations by complex factors, a complex buffer that is written to, and spectra."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("total", torch.zeros(4, dtype=torch.complex64))

    def forward(self, x: Any) -> Any:
        z = torch.view_as_complex(x.reshape(x.shape[0], -1, 2)) * self.factors
        self.total += z.sum(0)
        turned = torch.view_as_real(z).flatten(1)
        return turned, self.total.abs(), torch.fft.irfft(torch.fft.rfft(x) / (1 + 2j)), z.conj()[:, 1:].T


@dataclass(frozen=True)
class ModuleCase:
    """A module, inputs for a batch size, and whether torch.compile captures it whole."""

    make: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]] = lambda batch: (torch.randn(batch, 8),)
    is_whole: bool = True
    tolerance: float = 1e-5


MODULES = {
    "lstm": ModuleCase(
        lambda: nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True),
        lambda b: (torch.randn(b, 5, 8),),
        is_whole=False,
    ),
    "gru": ModuleCase(lambda: nn.GRU(8, 6, batch_first=True), lambda b: (torch.randn(b, 5, 8),), is_whole=False),
    "rnn": ModuleCase(
        lambda: nn.RNN(8, 6, bidirectional=True, batch_first=True), lambda b: (torch.randn(b, 5, 8),), is_whole=False
    ),
    "transformer": ModuleCase(
        lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        lambda b: (torch.randn(b, 5, 16), torch.randn(b, 6, 16)),  # a length of 4 would be taken for the batch
    ),
    "unet": ModuleCase(UNet, lambda b: (torch.randn(b, 3, 16, 16),)),
    "in_place": ModuleCase(InPlace),
    "views": ModuleCase(Views),
    "writes_through_views": ModuleCase(WritesThroughViews),
    "writes_its_input": ModuleCase(WritesItsInput),
    "indexing": ModuleCase(Indexing, lambda b: (torch.randn(b, 8), torch.tensor([0, 2, 1]))),
    "masking": ModuleCase(Masking),
    "statistics": ModuleCase(Statistics),
    "ring": ModuleCase(Ring),
    "branches": ModuleCase(Branches),
    "repeats": ModuleCase(Repeats),
    "scans": ModuleCase(Scans),
    "structures": ModuleCase(Structures),
    "mixed_precision": ModuleCase(MixedPrecision, tolerance=2e-2),
    "tied": ModuleCase(Tied),
    "matmuls": ModuleCase(Matmuls),
    "complex_numbers": ModuleCase(ComplexNumbers),
    "selects": ModuleCase(Selects, is_whole=False),
    "masked_writes": ModuleCase(MaskedWrites, is_whole=False),
    "neighbors": ModuleCase(Neighbors, is_whole=False),
    "experts": ModuleCase(Experts, is_whole=False),
    "counts": ModuleCase(Counts, is_whole=False),
}
