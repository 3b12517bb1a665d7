"""Tiles that the copy engine of compute capability 9.0 brings to shared memory, and barriers that count their bytes.

A map of 128 bytes tells it where a tensor lies and how large a tile is. Kernels make maps themselves, as only they know
addresses: in shared memory, from where a map is handed to the engine through global memory (PTX ISA, 9.7.9.27:
`tensormap.replace`, `tensormap.cp_fenceproxy`). What lies outside of a tensor arrives as zeros. Rows of a tile have 64
elements of 16 bits, whose pieces of 16 bytes are exchanged by the row's number (the 128-byte swizzling of `wgmma`).
"""

from collections.abc import Sequence

from .....ir.types import DType

MAP_BYTES = 128
BARRIER_BYTES = 16
ROW_ELEMENTS = 64

_ELEMENTS = {DType.F16: 6, DType.BF16: 10}
"""The engine's numbers for dtypes: PTX ISA, 5.5.8, tensor-map fields."""


def bulk_copies() -> str:
    """Functions for barriers, `NAME_make_barrier`, `NAME_expect`, `NAME_arrive`, `NAME_await`, and `NAME_fetch`.

    A barrier's phase ends when all have arrived and all bytes that were expected are there; `NAME_await` waits for the
    end of the phase of a parity. `NAME_fetch` is called by one thread, and NAME_MAP a type of a map's size.
    """
    return f"""
struct alignas({MAP_BYTES}) NAME_map {{ unsigned char bytes[{MAP_BYTES}]; }};
{_BARRIERS}
{_FETCH}"""


_BARRIERS = """
#ifdef EMULATED  // arrivals of a phase, those that are missing, bytes that are missing, the phase's parity
__device__ inline void NAME_end_phase(int* b) { if (!b[1] && !b[2]) b[1] = b[0], b[3] ^= 1; }
#else
__device__ inline unsigned NAME_at(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
#endif
__device__ inline void NAME_make_barrier(void* at, unsigned arrivals) {
#ifdef EMULATED
  int* const b = (int*)at;
  b[0] = b[1] = arrivals, b[2] = b[3] = 0;
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(NAME_at(at)), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void NAME_expect(void* at, unsigned bytes) {
#ifdef EMULATED
  int* const b = (int*)at;
  b[1]--, b[2] += bytes;
  NAME_end_phase(b);
#else
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(NAME_at(at)), "r"(bytes) : "memory");
#endif
}
__device__ inline void NAME_arrive(void* at) {
#ifdef EMULATED
  ((int*)at)[1]--;
  NAME_end_phase((int*)at);
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(NAME_at(at)) : "memory");
#endif
}
__device__ inline void NAME_await(void* at, unsigned parity) {
#ifdef EMULATED
  while (((int*)at)[3] == (int)parity) emulated_pause();
#else
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra there; bra again; "
               "there: }" :: "r"(NAME_at(at)), "r"(parity) : "memory");
#endif
}
"""

_FETCH = """
#ifdef EMULATED
struct NAME_tensor { const unsigned char* from; i64 strides[2]; int sizes[3], tile[2]; };
__device__ inline void NAME_bring(unsigned char* to, const NAME_map* map, void* barrier, int x, int y, int z) {
  const NAME_tensor& tensor = *(const NAME_tensor*)map;
  for (int row = 0; row < tensor.tile[1]; row++)
    for (int piece = 0; piece < 8; piece++) {
      const int e = x + 8 * piece, r = y + row;
      unsigned char* const place = to + row * 128 + (piece ^ row % 8) * 16;
      const bool is_there = e < tensor.sizes[0] && r < tensor.sizes[1] && z < tensor.sizes[2];
      if (is_there) memcpy(place, tensor.from + 2 * e + r * tensor.strides[0] + z * tensor.strides[1], 16);
      else memset(place, 0, 16);
    }
  ((int*)barrier)[2] -= tensor.tile[0] * tensor.tile[1] * 2;
  NAME_end_phase((int*)barrier);
}
#endif
__device__ inline void NAME_fetch(unsigned char* to, const NAME_map* map, void* barrier, int x, int y, int z) {
#ifdef EMULATED
  NAME_bring(to, map, barrier, x, y, z);
#else
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(NAME_at(to)), "l"(map), "r"(NAME_at(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
#endif
}
"""


def tensor_map(name: str, dtype: DType, sizes: Sequence[int], strides: Sequence[int], rows: int) -> str:
    """A function that a whole warp calls: it makes the map of a tensor of three dims, the nearest one first.

    Strides are in elements, of the two dims that are not the nearest. A tile is 64 elements by `rows` rows.
    """
    wide, high, deep = sizes
    fields = [
        ("rank", "", "b32", "2"),
        *(("box_dim", f"{i}, ", "b32", str(size)) for i, size in enumerate((ROW_ELEMENTS, rows, 1))),
        *(("global_dim", f"{i}, ", "b32", str(size)) for i, size in enumerate(sizes)),
        *(("element_stride", f"{i}, ", "b32", "1") for i in range(3)),
    ]
    replaced = "\n".join(
        f'    asm volatile("tensormap.replace.tile.{field}.shared::cta.b1024.{bits} [%0], {place}%1;" '
        f':: "r"(at), "r"({value}) : "memory");'
        for field, place, bits, value in fields
    )
    steps = "\n".join(
        f'    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], {i}, %1;" '
        f':: "r"(at), "l"({2 * stride}ll) : "memory");'
        for i, stride in enumerate(strides)
    )
    kinds = {"elemtype": _ELEMENTS[dtype], "interleave_layout": 0, "swizzle_mode": 3, "fill_mode": 0}
    chosen = "\n".join(
        f'    asm volatile("tensormap.replace.tile.{field}.shared::cta.b1024.b32 [%0], {value};" '
        f':: "r"(at) : "memory");'
        for field, value in kinds.items()
    )
    return f"""
__device__ inline void NAME_{name}(NAME_map* map, NAME_map* made, const void* from) {{
  const int lane = threadIdx.x % 32;
#ifdef EMULATED
  if (lane == 0)
    *(NAME_tensor*)map = NAME_tensor{{(const unsigned char*)from, {{{2 * strides[0]}, {2 * strides[1]}}},
                                     {{{wide}, {high}, {deep}}}, {{{ROW_ELEMENTS}, {rows}}}}};
#else
  ((unsigned*)made)[lane] = 0;
  __syncwarp();
  if (lane == 0) {{
    const unsigned at = NAME_at(made);
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;"
                 :: "r"(at), "l"(from) : "memory");
{replaced}
{steps}
{chosen}
  }}
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               :: "l"(__cvta_generic_to_global(map)), "r"(NAME_at(made)) : "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
  // the engine may start on its own ahead of the fence, but not ahead of this
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}}"""
