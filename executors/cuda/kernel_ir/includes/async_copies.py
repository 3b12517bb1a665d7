"""Copies from memory to shared memory that are on their way while a kernel computes (`cp.async`)."""


def async_copies(under_way: int, nbytes: int = 16) -> str:
    """Functions `NAME_copy`, of `nbytes` or as many zeros, `NAME_commit`, and `NAME_wait` for all but some commits.

    `under_way` is how many of the last commits are not waited for. Only 16 bytes pass by the L1 cache.
    """
    return f"""
__device__ inline void NAME_copy(void* to, const void* from, bool is_there) {{
#ifdef EMULATED
  if (is_there) memcpy(to, from, {nbytes}); else memset(to, 0, {nbytes});
#else
  asm volatile("cp.async.{"cg" if nbytes == 16 else "ca"}.shared.global [%0], [%1], {nbytes}, %2;"
               :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(is_there ? {nbytes} : 0) : "memory");
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
