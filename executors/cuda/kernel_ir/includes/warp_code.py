"""Functions that generated kernels share: matmuls of a warp on tensor cores, a cluster's memory, mean and spread."""

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


def warp_mma(kind: str) -> str:
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


def giving_code(blocks: int) -> str:
    """`NAME_give`, which writes two or four numbers to where `at` is in the memory of another block of the cluster.

    `NAME_here` tells the others that this block runs and prepares the count of the bytes that they are to give;
    `NAME_ready` waits until all run, `NAME_arrived` for the bytes. So no memory has to be ordered for all to see. Of
    one block `NAME_give` is a store, and it has no count.
    """
    if blocks == 1:
        return """
__device__ inline void NAME_give(float* at, unsigned, float a, float b) { at[0] = a; at[1] = b; }
__device__ inline void NAME_give(float* at, unsigned, float a, float b, float c, float d) {
  at[0] = a; at[1] = b; at[2] = c; at[3] = d;
}
__device__ inline void NAME_ready() {}
__device__ inline void NAME_arrived() { __syncthreads(); }"""
    return """
#if __CUDA_ARCH__ < 900
__device__ inline float* NAME_there(float* at, unsigned block) {
#ifdef EMULATED
  return (float*)((unsigned char*)at - memory_of_block(block_of_cluster) + memory_of_block(block));
#else
  return at;  // not launched there
#endif
}
__device__ inline void NAME_give(float* at, unsigned block, u64*, float a, float b) {
  float* const to = NAME_there(at, block);
  to[0] = a; to[1] = b;
}
__device__ inline void NAME_give(float* at, unsigned block, u64*, float a, float b, float c, float d) {
  float* const to = NAME_there(at, block);
  to[0] = a; to[1] = b; to[2] = c; to[3] = d;
}
__device__ inline void NAME_here(u64*, unsigned) {}
__device__ inline void NAME_ready() {}
__device__ inline void NAME_arrived(u64*) { __syncthreads(); }
#else
__device__ inline unsigned NAME_there(const void* at, unsigned block) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(block));
  return there;
}
__device__ inline void NAME_give(float* at, unsigned block, u64* count, float a, float b) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
               :: "r"(NAME_there(at, block)), "f"(a), "f"(b), "r"(NAME_there(count, block)) : "memory");
}
__device__ inline void NAME_give(float* at, unsigned block, u64* count, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
               :: "r"(NAME_there(at, block)), "f"(a), "f"(b), "f"(c), "f"(d), "r"(NAME_there(count, block))
               : "memory");
}
__device__ inline void NAME_here(u64* count, unsigned nbytes) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(count);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(nbytes) : "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void NAME_ready() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ inline void NAME_arrived(u64* count) {
  unsigned is_done = 0;
  while (!is_done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_done) : "r"((unsigned)__cvta_generic_to_shared(count)) : "memory");
}
#endif"""


def moments_joined(real: str) -> str:
    """`NAME_join` adds mean and spread of other numbers, `ratio` of all, to those of `own` numbers.

    The spread is the sum of squared distances from the mean. It cancels nothing, as a sum of squares of the numbers
    themselves would (Chan, Golub and LeVeque, 1979).
    """
    return f"""
__device__ inline void NAME_join({real}& mean, {real}& spread, {real} own, {real} ratio, {real} other_mean,
                                 {real} other_spread) {{
  const {real} apart = other_mean - mean;
  mean += apart * ratio;
  spread += other_spread + apart * (apart * (own * ratio));
}}
"""
