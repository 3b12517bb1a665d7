"""The CUDA code that every generated kernel may use: small floats without header files, sums over a thread block."""

PRELUDE = r"""
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

template <class T> __device__ inline T get(T x) { return x; }
template <class T> __device__ inline void put(T& to, T x) { to = x; }

#ifndef EMULATED
__device__ inline float get(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ inline void put(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ inline float get(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline void put(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
#endif

#define LOWEST (-3.402823466e38f)

__device__ inline float block_sum(float x, float* shared) {
  for (int lane = 16; lane; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; warp++) x += shared[warp];
  __syncthreads();
  return x;
}

__device__ inline float greater(float a, float b) { return a != a || a > b ? a : b; }

__device__ inline float block_max(float x, float* shared) {
  for (int lane = 16; lane; lane /= 2) x = greater(x, __shfl_xor_sync(0xffffffffu, x, lane));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; warp++) x = greater(x, shared[warp]);
  __syncthreads();
  return x;
}
"""
