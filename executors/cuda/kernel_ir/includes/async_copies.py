"""Copies from memory to shared memory that are on their way while a kernel computes (`cp.async`)."""


def async_copies(under_way: int) -> str:
    """Functions `NAME_copy`, of 16 bytes or as many zeros, `NAME_commit`, and `NAME_wait` for all but some commits.

    `under_way` is how many of the last commits are not waited for.
    """
    return f"""
__device__ inline void NAME_copy(void* to, const void* from, bool is_there) {{
#ifdef EMULATED
  if (is_there) memcpy(to, from, 16); else memset(to, 0, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
#endif
}}
__device__ inline void NAME_commit() {{
#ifndef EMULATED
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}}
__device__ inline void NAME_wait() {{
#ifndef EMULATED
  asm volatile("cp.async.wait_group %0;" :: "n"({under_way}) : "memory");
#endif
}}
"""
