"""The row that a step of decoding writes of each cache, by the attention that reads the caches.

All other rows are of earlier calls, so that a kernel asks for them before it waits. The new ones never come from
memory: they are what the matmul in front has made, rotated here where the model rotates them, and the warps of the
tile that they belong to take them from registers. One warp of them writes them.
"""

from dataclasses import dataclass

from .....ir.plan import element_bytes
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored
from .attention import Attention


@dataclass(frozen=True, slots=True)
class Rotation:
    """Tables [B, D / 2] by which whole heads are rotated.

    Pairs are neighbors where `interleaved`, else half a head apart. `of_queries` and `of_keys` say what is rotated.
    """

    cosines: Source
    sines: Source
    interleaved: bool
    of_queries: bool
    of_keys: bool


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows [B, Hk, 1, D] of keys and [B, Hk, 1, Dv] of values, the places i64[B] that are theirs, and the rotation."""

    key: Source
    value: Source
    key_places: Source
    value_places: Source
    rotation: Rotation | None

    @property
    def sources(self) -> tuple[Source, ...]:
        """What the kernel takes besides the operands of attention, in order."""
        tables = () if self.rotation is None else (self.rotation.cosines, self.rotation.sines)
        return self.key, self.value, self.key_places, self.value_places, *tables

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters for `sources`."""
        names = ("new_key", "new_value", "key_places", "value_places", "cosines", "sines")
        return [f"const {stored(source.dtype)}* {name}" for name, source in zip(names, self.sources, strict=False)]

    def functions(self, kind: str) -> str:
        """Functions that rotate pieces of eight features of `kind`."""
        if self.rotation is None:
            return ""
        if self.rotation.interleaved:
            return f"""
__device__ inline void NAME_turn(NAME_piece& x, const float* cosine, const float* sine) {{
#pragma unroll
  for (int i = 0; i < 4; i++) {{
    pack<{kind}, 2> pair = bits_as<pack<{kind}, 2>>(x.w[i]);
    const float a = get(pair.v[0]), b = get(pair.v[1]);
    put(pair.v[0], a * cosine[i] - b * sine[i]);
    put(pair.v[1], a * sine[i] + b * cosine[i]);
    x.w[i] = bits_as<unsigned>(pair);
  }}
}}"""
        return f"""
__device__ inline void NAME_turn(NAME_piece& x, NAME_piece& y, const float* cosine, const float* sine) {{
#pragma unroll
  for (int i = 0; i < 4; i++) {{
    pack<{kind}, 2> first = bits_as<pack<{kind}, 2>>(x.w[i]), second = bits_as<pack<{kind}, 2>>(y.w[i]);
#pragma unroll
    for (int j = 0; j < 2; j++) {{
      const float a = get(first.v[j]), b = get(second.v[j]), c = cosine[2 * i + j], s = sine[2 * i + j];
      put(first.v[j], a * c - b * s);
      put(second.v[j], a * s + b * c);
    }}
    x.w[i] = bits_as<unsigned>(first);
    y.w[i] = bits_as<unsigned>(second);
  }}
}}"""

    def statements(self, attention: Attention, stride: int) -> str:
        """Statements behind the wait: they read the new rows, rotate, write them, and put them into the first tile.

        `renew_keys(key0)` and `renew_values(key0)` do that for another tile; a warp's lie `stride` keys apart.
        """
        key, value, depth, width = self.key.strides, self.value.strides, attention.depth, attention.width
        kind = stored(attention.q.dtype)
        return f"""
  NAME_piece key_row[PIECES], value_row[BLOCKS];
#pragma unroll
  for (int p = 0; p < PIECES; p++)
    key_row[p] = NAME_load(new_key + (i64)sample * {key[0]} + (i64)kv_head * {key[1]} + p * 32 + quad * 8,
                           p * 32 + quad * 8 < {depth});
#pragma unroll
  for (int b = 0; b < BLOCKS; b++)
    value_row[b] = NAME_load(new_value + (i64)sample * {value[0]} + (i64)kv_head * {value[1]} + b * 64 + group * 8,
                             b * 64 + group * 8 < {width});
  const i64 key_place = key_places[(i64)sample * {self.key_places.strides[0]}];
  const i64 value_place = value_places[(i64)sample * {self.value_places.strides[0]}];
{self._tables(attention)}
  __syncwarp();  // all is asked for before the first is looked at
  auto is_writer = [&](i64 place) {{
    const bool is_there = place >= 0 && place < {attention.keys};
    return tile == 0 && by_row == 0 && is_there && (int)place % {stride} / 32 * 32 == start;
  }};
  auto renew_values = [&](int key0) {{
    if (value_place >= key0 && value_place < least(key0 + 32, {attention.keys}))
#pragma unroll
      for (int s = 0; s < 2; s++)
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (key0 + 16 * s + e / 2 * 8 + quad * 2 + e % 2 == value_place) found[s][b][e] = value_row[b];
  }};
  renew_values(start);
  if (is_writer(value_place) && quad == 0)
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      if (b * 64 + group * 8 < {width})
        *(word16*)(({kind}*)values + value_place * {attention.v.strides[2]} + b * 64 + group * 8) =
            bits_as<word16>(value_row[b]);
{self._rotating(attention)}
  auto renew_keys = [&](int key0) {{
    if (key_place >= key0 && key_place < least(key0 + 32, {attention.keys}))
#pragma unroll
      for (int n = 0; n < 4; n++)
#pragma unroll
        for (int p = 0; p < PIECES; p++)
          if (key0 + n * 8 + group == key_place) wanted[n][p] = key_row[p];
  }};
  renew_keys(start);
  if (is_writer(key_place) && group == 0)
#pragma unroll
    for (int p = 0; p < PIECES; p++)
      if (p * 32 + quad * 8 < {depth})
        *(word16*)(({kind}*)keys + key_place * {attention.k.strides[2]} + p * 32 + quad * 8) =
            bits_as<word16>(key_row[p]);"""

    def _rotating(self, attention: Attention) -> str:
        """Statements that rotate the queries and the row of keys."""
        rotation = self.rotation
        if rotation is None:
            return ""
        count = 4 if rotation.interleaved else 8
        pieces = "PIECES" if rotation.interleaved else "PIECES / 2"
        halves = ("query[{}][0]", "query[{}][1]")[: 1 if attention.shared <= 8 else 2]  # eight rows each
        turned = [*halves] if rotation.of_queries else []
        turned += ["key_row[{}]"] if rotation.of_keys else []
        places = ("p",) if rotation.interleaved else ("p", "p + PIECES / 2")
        operands = (", ".join(map(each.format, places)) for each in turned)
        calls = " ".join(f"NAME_turn({each}, cosine, sine);" for each in operands)
        return f"""
#pragma unroll
  for (int p = 0; p < {pieces}; p++) {{
    float cosine[{count}], sine[{count}];
#pragma unroll
    for (int i = 0; i < {count}; i++) {{ cosine[i] = get(cosine_at[p].v[i]); sine[i] = get(sine_at[p].v[i]); }}
    {calls}
  }}"""

    def _tables(self, attention: Attention) -> str:
        """Statements that read the cosines and sines of a lane's pieces."""
        if self.rotation is None:
            return ""
        count, pieces = (4, "PIECES") if self.rotation.interleaved else (8, "PIECES / 2")
        names = (("cosine_at", "cosines", self.rotation.cosines), ("sine_at", "sines", self.rotation.sines))
        made = "".join(f"  pack<{stored(table.dtype)}, {count}> {name}[{pieces}] = {{}};\n" for name, _, table in names)
        read = "".join(
            f"      {name}[p] = *(const pack<{stored(table.dtype)}, {count}>*)"
            f"({given} + (i64)sample * {table.strides[0]} + at);\n"
            for name, given, table in names
        )
        return f"""{made}#pragma unroll
  for (int p = 0; p < {pieces}; p++) {{
    const int at = (p * 32 + quad * 8) / {8 // count};
    if (at < {attention.depth // 2}) {{
{read}    }}
  }}"""


def can_rotate(rotation: Rotation, depth: int) -> bool:
    """Whether a lane has both features of a pair in its pieces, and tables lie so that it reads its numbers at once."""
    tables = (rotation.cosines, rotation.sines)
    is_near = depth % (16 if rotation.interleaved else 64) == 0
    return is_near and all(
        table.strides[1] == 1 and table.strides[0] * element_bytes(table.dtype) % 16 == 0 and table.starts_a_piece
        for table in tables
    )
