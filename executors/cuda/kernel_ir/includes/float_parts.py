"""Numbers of f32 as sums of two parts of 11 bits, products of which tensor cores add ("3xTF32").

A product of two numbers is three products of parts; what is left out is below 2^-22 of it (NVIDIA CUTLASS,
`OpMultiplyAddFastF32`). The high part is rounded by adding half of its last place; tensor cores read no more than 11
bits of the low part. An infinity makes NaN of the low part, so that results hold NaN wherever an infinity, or what
rounds to one, was met: those are computed again with parts that keep infinities, which take more time.
"""


def float_parts(rounds: bool) -> str:
    """`NAME_split` makes parts, `NAME_mma` adds a term of 16 x 8 by 8 x 8 numbers; from NAME_FIRST up to 3 are all.

    With `rounds` there is one term, of operands rounded to TF32. NAME_quick and NAME_careful say which parts are made
    otherwise.
    """
    parts = "to.high[i] = NAME_rounded(x);" if rounds else _TWO_PARTS
    return f"""
constexpr int NAME_FIRST = {2 if rounds else 0};
struct NAME_quick {{ static constexpr bool value = false; }};
struct NAME_careful {{ static constexpr bool value = true; }};
__device__ inline unsigned NAME_rounded(float x) {{
#ifdef EMULATED
  return x != x ? 0x7fffffffu : (bits_as<unsigned>(x) + 0x1000u) & 0xffffe000u;
#else
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
#endif
}}
template <int COUNT> struct NAME_parts {{ unsigned high[COUNT], low[COUNT]; }};
template <class KIND, int COUNT>
__device__ inline void NAME_split(KIND, NAME_parts<COUNT>& to, int i, float x) {{
  {parts}
}}
// The small terms come first.
__device__ inline void NAME_mma(int term, float* d, const NAME_parts<4>& a, const NAME_parts<2>& b) {{
  const unsigned* const x = term == 0 ? a.low : a.high;
  const unsigned* const y = term == 1 ? b.low : b.high;
#ifdef EMULATED
  emulated_mma_tf32(d, x, y);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
#endif
}}
"""


def run_with_parts(body: str, rounds: bool) -> str:
    """Statements that run `body` with quick parts, and again with careful ones where it returns true in any thread.

    In it `parts()` says which, and `parts::value` whether these are careful. NVRTC 13.0 has no generic lambdas.
    """
    quick = f"auto quick = [&]() -> bool {{ typedef NAME_quick parts; {body} }};"
    if rounds:
        return f"{quick}\n  quick();"
    return f"""{quick}
  auto careful = [&]() -> bool {{ typedef NAME_careful parts; {body} }};
  if (__syncthreads_or(quick())) careful();"""


_TWO_PARTS = """if constexpr (KIND::value) {
    const unsigned rounded = NAME_rounded(x);
    const bool is_finite = (rounded & 0x7f800000u) != 0x7f800000u;
    to.high[i] = is_finite ? rounded : 0;
    const float rest = x - bits_as<float>(to.high[i]);
    to.low[i] = is_finite ? NAME_rounded(rest) : bits_as<unsigned>(rest);
  } else {
    to.high[i] = (bits_as<unsigned>(x) + 0x1000u) & 0xffffe000u;
    to.low[i] = bits_as<unsigned>(x - bits_as<float>(to.high[i]));
  }"""
"""Of careful parts, what is not finite, or too large to be rounded, is the low one alone: that meets only high parts,
which are zero for what is below 2^-137. As a high part an infinity would meet low parts of either sign, and zeros."""
