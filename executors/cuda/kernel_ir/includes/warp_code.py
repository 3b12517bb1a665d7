"""Functions that generated kernels share: products of a warp on tensor cores, and the memory of a cluster's blocks."""

MATRICES = """
// Four matrices of 8 x 8 elements of 16 bits; TURNED, each is transposed.
template <bool TURNED, class T> __device__ inline void NAME_matrices(unsigned* to, const T* at) {
#ifdef EMULATED
  emulated_matrices<TURNED>(to, at);
#else
  const unsigned from = (unsigned)__cvta_generic_to_shared(at);
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
#endif
}
"""


def warp_products(kind: str) -> str:
    """A function `NAME_mma`: d += a @ b for 16 x 16 by 16 x 8 numbers of `kind`, who holds which by mma.m16n8k16."""
    return f"""
__device__ inline void NAME_mma(float* d, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                unsigned b1) {{
#ifdef EMULATED
  const unsigned a[4] = {{a0, a1, a2, a3}}, b[2] = {{b0, b1}};
  emulated_mma<{kind}>(d, a, b);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}}
__device__ inline void NAME_mma(float* d, const unsigned* a, unsigned b0, unsigned b1) {{
  NAME_mma(d, a[0], a[1], a[2], a[3], b0, b1);
}}
"""


def cluster_code(blocks: int) -> str:
    """`NAME_other`, a number of this block's memory as another block has it, and `NAME_meet`, where all blocks do."""
    return f"""
__device__ inline float NAME_other(const float* at, unsigned block) {{
#if defined(EMULATED)
  return *(const float*)((const unsigned char*)at - memory_of_block(block_of_cluster) + memory_of_block(block));
#elif {int(blocks > 1)} && __CUDA_ARCH__ >= 900
  unsigned here = (unsigned)__cvta_generic_to_shared(at), there;
  float y;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(y) : "r"(there) : "memory");
  return y;
#else
  return *at;
#endif
}}
__device__ inline void NAME_meet() {{
#if !defined(EMULATED) && {int(blocks > 1)} && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}}
"""
