"""Masks of bools that all queries share: a warp reads one for its tile of keys, and skips tiles that it hides."""

from .....ir.types import DType
from .attention import Attention


def shows_alike(attention: Attention) -> bool:
    """Whether all heads and queries see the same keys by a mask of bools."""
    mask = attention.mask
    if mask is None or mask.dtype is not DType.BOOL:
        return False
    _, head, step, _ = mask.strides
    return (head == 0 or attention.q.shape[1] == 1) and (step == 0 or attention.steps == 1)


def shown_code(attention: Attention, stride: int) -> str:
    """A lambda `load_mask(key)`: `own_mask` is what the mask says of the lane's key, of the 32 from there on.

    What it says of the first tile is asked for, and which of the warp's first tiles are seen.
    """
    if not shows_alike(attention):
        return ""
    assert attention.mask is not None
    sample, _, _, key = attention.mask.strides
    return f"""boolean own_mask = {{}};
  auto load_mask = [&](int key) {{
    own_mask = {{}};
    if (key + lane < {attention.keys}) own_mask = mask[(i64)sample * {sample} + (i64)(key + lane) * {key}];
  }};
  load_mask(start);
{_asking(attention, stride) if skips(attention, stride) else ""}"""


def _asking(attention: Attention, stride: int) -> str:
    assert attention.mask is not None
    return f"""  NAME_piece of_tiles;
  auto ask = [&](int key) {{
    const int at = key + lane / 2 * {stride} + lane % 2 * 16;
    of_tiles = NAME_load(mask + (i64)sample * {attention.mask.strides[0]} + at, at < {attention.keys});
  }};
  ask(start);"""


def skips(attention: Attention, stride: int) -> bool:
    """Whether tiles are skipped: more than one is a warp's, and the mask lies in pieces."""
    mask = attention.mask
    if mask is None or not shows_alike(attention) or attention.keys <= stride or attention.keys % 16:
        return False
    return mask.strides[3] == 1 and mask.strides[0] % 16 == 0 and mask.starts_a_piece


def skipping_code(attention: Attention, stride: int) -> str:
    """A lambda `next_tile(key)`: where the warp's next tile begins that is seen; `is_seen`: whether that at `start` is.

    A tile is 32 keys, `stride` behind the one before. Two lanes look at each of 16 tiles.
    """
    if not skips(attention, stride):
        return f"auto next_tile = [&](int key) {{ return key + {stride}; }};"
    return f"""
  unsigned tiles_shown;  // two bits for each of 16
  int passed = 0;
  auto look = [&]() {{
    const unsigned seen = of_tiles.w[0] | of_tiles.w[1] | of_tiles.w[2] | of_tiles.w[3];
    tiles_shown = __ballot_sync(0xffffffffu, seen != 0);
  }};
  auto next_tile = [&](int key) {{
    do {{
      key += {stride};
      passed = (passed + 1) % 16;
      if (passed == 0 && key < end) {{ ask(key); look(); }}
    }} while (key < end && (tiles_shown >> 2 * passed & 3) == 0);
    return key;
  }};
  look();
  const bool is_seen = tiles_shown & 3;"""
