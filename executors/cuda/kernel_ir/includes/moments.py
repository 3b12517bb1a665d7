"""Mean and spread of numbers, the sum of squared distances from the mean: those of two parts make those of all.

What is taken off is never larger than what is left, as it would be with squares of the numbers themselves (Chan, Golub
and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
"""


def moments_joined(real: str) -> str:
    """`NAME_join` adds the moments of other numbers, `ratio` of all, to those of `own` numbers."""
    return f"""
__device__ inline void NAME_join({real}& mean, {real}& spread, {real} own, {real} ratio, {real} other_mean,
                                 {real} other_spread) {{
  const {real} apart = other_mean - mean;
  mean += apart * ratio;
  spread += other_spread + apart * (apart * (own * ratio));
}}
"""
