r"""The CUDA code before every generated kernel: element types without header files, helpers, exchanges between threads.

`get` takes a stored element to the type it is computed in, `put` rounds a computed value to a stored element. `begin()`
is the first statement of every kernel: it lets the next kernel's blocks start and waits for what the kernels before
wrote, so that launches may overlap (programmatic launch, compute capability 9.0); elsewhere it does nothing.
`begin_alone()` waits only: `begin()` is that in a kernel that does not trigger.

`EMULATED` is for tests that compile the same text for the host, with conversions of their own.
"""

from .philox import PHILOX

_TYPES = r"""
typedef unsigned long long u64;
typedef long long i64;

struct boolean { unsigned char bits; };
struct u2 { unsigned char bits; };
struct u4 { unsigned char bits; };
struct i2 { unsigned char bits; };
struct i4 { unsigned char bits; };
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct f8e4m3fn { unsigned char bits; };
struct f8e4m3fnuz { unsigned char bits; };
struct f8e5m2 { unsigned char bits; };
struct f8e5m2fnuz { unsigned char bits; };
struct f8e8m0fnu { unsigned char bits; };
struct f6e2m3fn { unsigned char bits; };
struct f6e3m2fn { unsigned char bits; };
struct f4e2m1fn { unsigned char bits; };
template <class T> struct alignas(2 * sizeof(T)) complex { T re, im; };
typedef complex<float> c64;
typedef complex<double> c128;
struct alignas(16) word16 { u64 low, high; };

template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) pack { T v[W]; };
template <class T> struct indexed { T value; int at; };

template <class T, class F> __device__ inline T bits_as(F from) {
  static_assert(sizeof(T) == sizeof(F), "the same bits");
  union { F from; T to; } u;
  u.from = from;
  return u.to;
}
"""

_ASSEMBLY = r"""
#ifndef EMULATED
__device__ inline void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void begin_alone() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline float get(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ inline void put(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ inline void put(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ inline float least(float a, float b) {
  float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;
}
__device__ inline float greatest(float a, float b) {
  float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y;
}
__device__ inline float as_float(unsigned x) { return __uint_as_float(x); }
__device__ inline unsigned as_bits(float x) { return __float_as_uint(x); }
__device__ inline float toward_zero(double x) { return __double2float_rz(x); }
#endif
"""

_CONVERSIONS = r"""
#define INFINITE (as_float(0x7f800000u))
#define NOT_A_NUMBER (as_float(0x7fc00000u))

template <class T> __device__ inline T get(T x) { return x; }
template <class T> __device__ inline void put(T& to, T x) { to = x; }
__device__ inline bool get(boolean x) { return x.bits != 0; }
__device__ inline void put(boolean& to, bool x) { to.bits = x; }
__device__ inline unsigned char get(u2 x) { return x.bits & 3; }
__device__ inline unsigned char get(u4 x) { return x.bits & 15; }
__device__ inline signed char get(i2 x) { return (signed char)((x.bits & 3) ^ 2) - 2; }
__device__ inline signed char get(i4 x) { return (signed char)((x.bits & 15) ^ 8) - 8; }
__device__ inline void put(u2& to, unsigned char x) { to.bits = x & 3; }
__device__ inline void put(u4& to, unsigned char x) { to.bits = x & 15; }
__device__ inline void put(i2& to, signed char x) { to.bits = (unsigned char)(((x & 3) ^ 2) - 2); }
__device__ inline void put(i4& to, signed char x) { to.bits = (unsigned char)(((x & 15) ^ 8) - 8); }
__device__ inline float get(bf16 x) { return as_float((unsigned)x.bits << 16); }

// Small floats: E exponent bits, M mantissa bits, and what is there besides numbers.
enum specials { INFINITIES, ONE_NAN, UNSIGNED_ZERO, NOTHING };

template <int E, int M, int BIAS, specials S> __device__ inline float decoded(unsigned code) {
  const unsigned magnitude = code & ((1u << (E + M)) - 1), exponent = magnitude >> M;
  const bool is_negative = code >> (E + M) & 1;
  const unsigned top = (1u << E) - 1;
  if (S == INFINITIES && magnitude == top << M) return is_negative ? -INFINITE : INFINITE;
  if (S == INFINITIES && exponent == top) return NOT_A_NUMBER;
  if (S == ONE_NAN && magnitude == (1u << (E + M)) - 1) return NOT_A_NUMBER;
  if (S == UNSIGNED_ZERO && is_negative && !magnitude) return NOT_A_NUMBER;
  const unsigned fraction = magnitude & ((1u << M) - 1);
  const float unit = as_float((unsigned)((exponent ? (int)exponent : 1) - BIAS - M + 127) << 23);
  const float y = (float)(exponent ? fraction + (1u << M) : fraction) * unit;
  return is_negative ? -y : y;
}

template <int E, int M, int BIAS, specials S> __device__ inline unsigned char encoded(float x) {
  const unsigned bits = as_bits(x), sign = bits >> 31 << (E + M);
  const unsigned top = S == INFINITIES ? ((1u << E) - 1) << M : S == ONE_NAN ? (1u << (E + M)) - 1 : 1u << (E + M);
  if (x != x) return S == INFINITIES ? sign | top | 1u << (M - 1) : S == ONE_NAN ? sign | top : 1u << (E + M);
  int exponent = (int)(bits >> 23 & 255) - 127;
  unsigned code = top;
  if (exponent < (1 << E)) {
    if (exponent < 1 - BIAS) exponent = 1 - BIAS;
    const float scaled = fabsf(x) * as_float((unsigned)(M - exponent + 127) << 23);
    code = ((unsigned)(exponent + BIAS - 1) << M) + (unsigned)rintf(scaled);
  }
  if (code >= top) return S == UNSIGNED_ZERO ? top : sign | (S == NOTHING ? top - 1 : top);
  return S == UNSIGNED_ZERO && !code ? 0 : sign | code;
}

#define SMALL_FLOAT(NAME, E, M, BIAS, S) \
  __device__ inline float get(NAME x) { return decoded<E, M, BIAS, S>(x.bits); } \
  __device__ inline void put(NAME& to, float x) { to.bits = encoded<E, M, BIAS, S>(x); }
SMALL_FLOAT(f8e4m3fn, 4, 3, 7, ONE_NAN)
SMALL_FLOAT(f8e4m3fnuz, 4, 3, 8, UNSIGNED_ZERO)
SMALL_FLOAT(f8e5m2, 5, 2, 15, INFINITIES)
SMALL_FLOAT(f8e5m2fnuz, 5, 2, 16, UNSIGNED_ZERO)
SMALL_FLOAT(f6e2m3fn, 2, 3, 1, NOTHING)
SMALL_FLOAT(f6e3m2fn, 3, 2, 3, NOTHING)
SMALL_FLOAT(f4e2m1fn, 2, 1, 1, NOTHING)
__device__ inline float get(f8e8m0fnu x) {
  return x.bits == 255 ? NOT_A_NUMBER : x.bits ? as_float((unsigned)x.bits << 23) : as_float(0x00400000u);
}

__device__ inline void put(f8e8m0fnu& to, float x) {
  const unsigned bits = as_bits(x) & 0x7fffffffu;
  to.bits = x != x ? 255 : bits < 0x00800000u ? bits > 0x00600000u : (bits + 0x00400000u) >> 23;
}

// A double as a float that rounds to any smaller type as the double itself would: the last bit says what was cut off.
__device__ inline float to_odd(double x) {
  const float y = toward_zero(x);
  return (double)y == x || x != x ? y : as_float(as_bits(y) | 1);
}
template <class T, class V> __device__ inline T element(V x) { T y; put(y, x); return y; }
template <class T> __device__ inline float rounded(float x) { return get(element<T>(x)); }
"""

_ARITHMETIC = r"""
__device__ inline double least(double a, double b) { return a != a || a < b ? a : b; }
__device__ inline double greatest(double a, double b) { return a != a || a > b ? a : b; }
template <class T> __device__ inline T least(T a, T b) { return a < b ? a : b; }
template <class T> __device__ inline T greatest(T a, T b) { return a > b ? a : b; }

template <class T> __device__ inline T quotient(T a, T b) {
  if (b == 0) return 0;
  return (T)-1 < (T)0 && b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <class T> __device__ inline T truncated_remainder(T a, T b) {
  return b == 0 || ((T)-1 < (T)0 && b == (T)-1) ? (T)0 : (T)(a % b);
}
template <class T> __device__ inline T remainder_of(T a, T b) {
  const T rest = truncated_remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
}
__device__ inline float truncated_remainder(float a, float b) { return fmodf(a, b); }
__device__ inline double truncated_remainder(double a, double b) { return fmod(a, b); }
__device__ inline float remainder_of(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ inline double remainder_of(double a, double b) {
  const double rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class T, class E> __device__ inline T integer_power(T x, E exponent) {
  if (exponent < 0) return x == 1 ? 1 : x == -1 ? (exponent & 1 ? -1 : 1) : 0;
  u64 result = 1, base = (u64)(i64)x;
  for (u64 left = (u64)exponent; left; left >>= 1, base *= base) if (left & 1) result *= base;
  return (T)result;
}
// Floats as integers; what is out of range becomes the least integer, as on the processors that NumPy runs on.
template <class X> __device__ inline int to_i32(X x) {
  return x >= (X)-2147483648.0 && x < (X)2147483648.0 ? (int)x : -2147483647 - 1;
}
template <class X> __device__ inline i64 to_i64(X x) {
  return x >= (X)-9223372036854775808.0 && x < (X)9223372036854775808.0 ? (i64)x : -9223372036854775807ll - 1;
}
template <class X> __device__ inline u64 to_u64(X x) {
  const X half = (X)9223372036854775808.0;
  return x >= half ? (u64)to_i64(x - half) ^ 1ull << 63 : (u64)to_i64(x);
}

// Small powers of integers are exact in NumPy, where the device's own function may be a bit below them.
template <class T> __device__ inline T float_power(T x, double exponent) {
  const double raised = pow((double)x, exponent);
  const double limit = sizeof(T) == 8 ? 9007199254740992.0 : 2147483648.0;
  const bool is_exact = exponent == trunc(exponent) && fabs(raised) < limit;
  return is_exact ? integer_power(x, to_i64(exponent)) : sizeof(T) == 8 ? (T)to_i64(raised) : (T)to_i32(raised);
}
template <class T> __device__ inline T shifted_up(T a, T b) {
  return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)0 : (T)((u64)a << b);
}
template <class T> __device__ inline T shifted_down(T a, T b) {
  return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)(a < 0 ? -1 : 0) : (T)(a >> b);
}
template <class T> __device__ inline T sign_of(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x == 0 ? (T)0 : x; }
template <class T> __device__ inline T magnitude(T x) { return x < 0 ? (T)(0 - (u64)x) : x; }
__device__ inline float magnitude(float x) { return fabsf(x); }
__device__ inline double magnitude(double x) { return fabs(x); }

__device__ inline float sigmoid(float x) { const float d = expf(-fabsf(x)); return (x < 0 ? d : 1.0f) / (1.0f + d); }
__device__ inline double sigmoid(double x) { const double d = exp(-fabs(x)); return (x < 0 ? d : 1.0) / (1.0 + d); }
__device__ inline float softplus(float x) { return greatest(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ inline double softplus(double x) { return greatest(x, 0.0) + log1p(exp(-fabs(x))); }

// Round modes of powers of two: 0 up, 1 down, 2 nearest.
__device__ inline unsigned char power_of_two(double x, int mode, bool saturate) {
  if (x != x) return 255;
  int exponent = 0;
  const double fraction = frexp(fabs(x), &exponent);
  const bool is_up = mode == 0 ? fraction > 0.5 : mode == 2 && fraction >= 0.75;
  const int biased = x == 0 ? -1 : fabs(x) > 1.7976931348623157e308 ? 255 : exponent - 1 + is_up + 127;
  if (biased < 0 || biased > 254) return saturate ? (biased < 0 ? 0 : 254) : 255;
  return (unsigned char)biased;
}

// An index that counts from the end when negative; held inside where what lies outside must not be read.
template <class T> __device__ inline i64 counted(T index, i64 size) {
  return (i64)index < 0 ? (i64)index + size : (i64)index;
}
template <class T> __device__ inline i64 place_of(T index, i64 size) {
  const i64 place = counted(index, size);
  return place < 0 ? 0 : place >= size ? size - 1 : place;
}
"""

_EXCHANGES = r"""
template <class T> __device__ inline T other_lane(T x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }
template <class T> __device__ inline indexed<T> other_lane(indexed<T> x, int lane) {
  return {other_lane(x.value, lane), other_lane(x.at, lane)};
}

// Reductions: `of` combines any two findings, `next` one with an element behind all that it was made of.
#define REDUCTION(NAME, TEXT) \
  struct NAME { \
    template <class T> static __device__ inline T of(T a, T b) { return TEXT; } \
    template <class T> static __device__ inline T next(T a, T b) { return TEXT; } \
  };
REDUCTION(sum, a + b)
REDUCTION(prod, a * b)
REDUCTION(max_of, greatest(a, b))
REDUCTION(min_of, least(a, b))

// The better of two elements with their indices, the earlier or last of equal ones; NaN is better than all, or worse.
template <bool GREATEST, bool LAST, bool NAN_FIRST> struct best {
  template <class T> static __device__ inline bool is_beyond(T a, T b) { return GREATEST ? b > a : b < a; }
  template <class T> static __device__ inline indexed<T> of(indexed<T> a, indexed<T> b) {
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool is_equal = a.value == b.value || (a_is_nan && b_is_nan);
    const bool is_later = LAST ? b.at > a.at : b.at < a.at;
    const bool is_more = is_beyond(a.value, b.value);
    const bool is_better = NAN_FIRST ? !a_is_nan && (b_is_nan || is_more) : !b_is_nan && (a_is_nan || is_more);
    return a.at < 0 || (b.at >= 0 && (is_equal ? is_later : is_better)) ? b : a;
  }
  template <class T> static __device__ inline indexed<T> next(indexed<T> a, indexed<T> b) {
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool is_more = is_beyond(a.value, b.value) || (LAST && a.value == b.value);
    const bool is_better = NAN_FIRST ? (b_is_nan ? LAST || !a_is_nan : is_more) : !b_is_nan && (a_is_nan || is_more);
    return a.at < 0 || is_better ? b : a;
  }
};

template <class F, int LANES, class T> __device__ inline T warp_reduce(T x) {
#pragma unroll
  for (int lane = LANES / 2; lane > 0; lane /= 2) x = F::of(x, other_lane(x, lane));
  return x;
}

// Over the x threads of a block; each reduction of a kernel has its own shared memory, so that one barrier is enough.
template <class F, int WARPS, class T> __device__ inline T block_reduce(T x, T* shared = nullptr) {
  x = warp_reduce<F, 32>(x);
  if (WARPS == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  if (WARPS <= 4) {
    x = shared[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; warp++) x = F::of(x, shared[warp]);
    return x;
  }
  return warp_reduce<F, WARPS>(shared[threadIdx.x % WARPS]);
}

// Over the y threads of a block of LANES columns, each of W rows: halves are added to each other. ROWS is a power of
// two. Each step writes behind what the one before read, so that one barrier a step is enough.
template <class F, int ROWS, int LANES, int W, class T>
__device__ inline void column_reduce(T (&x)[W], T* shared = nullptr) {
  if (ROWS == 1) return;
  T* own = shared + (threadIdx.y * LANES + threadIdx.x) * W;
#pragma unroll
  for (int half = ROWS / 2; half > 0; half /= 2) {
    if (threadIdx.y >= half && threadIdx.y < 2 * half) {
#pragma unroll
      for (int w = 0; w < W; w++) own[w] = x[w];
    }
    __syncthreads();
    if (threadIdx.y < half) {
#pragma unroll
      for (int w = 0; w < W; w++) x[w] = F::of(x[w], own[half * LANES * W + w]);
    }
  }
  if (threadIdx.y == 0) {
#pragma unroll
    for (int w = 0; w < W; w++) own[w] = x[w];
  }
  __syncthreads();
#pragma unroll
  for (int w = 0; w < W; w++) x[w] = shared[threadIdx.x * W + w];
}
"""

PRELUDE = _TYPES + _ASSEMBLY + _CONVERSIONS + _ARITHMETIC + _EXCHANGES + PHILOX
"""What stands before the kernels of a module."""
