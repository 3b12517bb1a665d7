"""Generated CUDA kernels on the host: the same text, compiled by g++, each thread of a block a coroutine.

`__syncthreads` and shuffles hand over to the next thread, so blocks behave as on a device, one after another. Compiled
as it stands, the text proves its arithmetic, its indices and its barriers; only conversions of f16 and bf16, and what
needs instructions of the device, are other code. A launch is refused when threads of a block meet different barriers,
or lanes of a warp different shuffles.
Blocks and threads can also run backwards, the last one first: results must not depend on who comes first.
"""

import atexit
import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.includes.prelude import PRELUDE
from capgraph.executors.cuda.kernel_ir.launch import (
    BufferPlace,
    Candidate,
    Kernel,
    KernelLaunch,
    Packed,
    ScalarArgument,
)
from capgraph.executors.host.memory import HostArena, address_of
from capgraph.executors.host.placement import HostPlacement
from capgraph.ir.constant import Array
from capgraph.ir.plan import Place as Home
from capgraph.ir.plan import Plan

HAS_COMPILER = shutil.which("g++") is not None

_COROUTINES = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#define EMULATED
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, blockDim, gridDim;
static const size_t stack_bytes = 1 << 17;
static char* stacks[4096];
static bool is_done[4096];
static void run_threads();  // the kernel, again and again
#ifdef __x86_64__
typedef void* Context;
static Context scheduler, thread_of[4096];
// Registers that a function has to keep go to one stack and come from the other; ucontext asks the kernel each time.
__attribute__((naked, noinline)) static void change(Context*, Context) {
  asm("push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15; mov %rsp, (%rdi); mov %rsi, %rsp;"
      "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret");
}
static void resume(unsigned t) { change(&scheduler, thread_of[t]); }
static void pause(unsigned t) { change(&thread_of[t], scheduler); }
static void prepare(unsigned t) {
  void** top = (void**)(((size_t)stacks[t] + stack_bytes - 256) & ~(size_t)15);
  top[6] = (void*)run_threads;
  thread_of[t] = top;
}
#else
#include <ucontext.h>
static ucontext_t scheduler, thread_of[4096];
static void resume(unsigned t) { swapcontext(&scheduler, &thread_of[t]); }
static void pause(unsigned t) { swapcontext(&thread_of[t], &scheduler); }
static void prepare(unsigned t) {
  getcontext(&thread_of[t]);
  thread_of[t].uc_stack.ss_sp = stacks[t];
  thread_of[t].uc_stack.ss_size = stack_bytes;
  makecontext(&thread_of[t], run_threads, 0);
}
#endif
"""

_DEVICE = r"""
static unsigned long long exchanged[4096];
static int barriers_of[4096], shuffles_of[4096], voted, votes;
static unsigned living, arrived, meetings;
static unsigned block_of_cluster;
alignas(16) static unsigned char dynamic_memory[8][1 << 18];
static unsigned char* memory_of_block(unsigned block) { return dynamic_memory[block]; }
static unsigned rank_of() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * block_of_cluster); }
static void __syncthreads() {
  const unsigned me = rank_of(), meeting = meetings;
  barriers_of[me]++;
  if (++arrived == living) arrived = 0, meetings++;
  do pause(me); while (meetings == meeting);
}
static void __syncwarp() {  // lanes take turns, so that all have come where the first one goes on
  const unsigned me = rank_of();
  shuffles_of[me]++;
  pause(me);
}
static void emulated_pause() { pause(rank_of()); }  // lets the others go on; lanes of a warp stay side by side
static int __syncthreads_or(int x) {
  if (x) voted = 1;
  __syncthreads();
  const int result = voted;
  __syncthreads();
  voted = 0;
  __syncthreads();
  return result;
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int lane) {
  const unsigned me = rank_of();
  static_assert(sizeof(T) <= 8, "one word");
  memcpy(&exchanged[me], &x, sizeof(T));
  __syncwarp();
  T other;
  memcpy(&other, &exchanged[me ^ lane], sizeof(T));
  __syncwarp();
  return other;
}
template <class T> static T __shfl_sync(unsigned, T x, int lane) {
  const unsigned me = rank_of();
  memcpy(&exchanged[me], &x, sizeof(T));
  __syncwarp();
  T other;
  memcpy(&other, &exchanged[me / 32 * 32 + lane], sizeof(T));
  __syncwarp();
  return other;
}
template <class T> static T __shfl_up_sync(unsigned, T x, int lanes) {
  const unsigned me = rank_of();
  memcpy(&exchanged[me], &x, sizeof(T));
  __syncwarp();
  T other;
  memcpy(&other, &exchanged[me % 32 >= (unsigned)lanes ? me - lanes : me], sizeof(T));
  __syncwarp();
  return other;
}
static unsigned __ballot_sync(unsigned, int x) {
  const unsigned me = rank_of();
  exchanged[me] = x != 0;
  __syncwarp();
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; lane++) result |= (unsigned)exchanged[me / 32 * 32 + lane] << lane;
  __syncwarp();
  return result;
}
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned __byte_perm(unsigned a, unsigned b, unsigned choice) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned y = 0;
  for (unsigned i = 0; i < 4; i++) y |= (unsigned)(both >> (choice >> 4 * i & 7) * 8 & 255) << 8 * i;
  return y;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T> static T atomicMax(T* at, T x) { const T old = *at; if (x > old) *at = x; return old; }
template <class T> static T atomicMin(T* at, T x) { const T old = *at; if (x < old) *at = x; return old; }
template <class T> static T atomicAdd(T* at, T x) { const T old = *at; *at = old + x; return old; }
template <class T> static T atomicOr(T* at, T x) { const T old = *at; *at = old | x; return old; }
template <class T> static T atomicCAS(T* at, T seen, T x) { const T old = *at; if (old == seen) *at = x; return old; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
"""

_SMALL_FLOATS = r"""
struct f16; struct bf16;
static inline void begin() {}
static inline void begin_alone() {}
static inline float as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned as_bits(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float least(float a, float b) { return a != a || a < b ? a : b; }
static inline float greatest(float a, float b) { return a != a || a > b ? a : b; }
static inline float toward_zero(double x) {
  const float y = (float)x;
  if (x != x || fabs((double)y) <= fabs(x)) return y;
  return as_float(as_bits(y) - 1);
}
float get(f16 x); void put(f16& to, float x); void put(bf16& to, float x);
"""

_DEFINED = r"""
float get(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
void put(f16& to, float x) { _Float16 y = (_Float16)x; memcpy(&to, &y, 2); }
void put(bf16& to, float x) {
  const unsigned bits = as_bits(x);
  to.bits = x != x ? 0x7fc0 | bits >> 31 << 15 : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
"""

_TENSOR_CORES = r"""
// Four matrices of 8 x 8, lane l giving the address of row l % 8 of matrix l / 8: ldmatrix of the PTX ISA.
template <bool TURNED, class T> static void emulated_matrices(unsigned* to, const T* at) {
  const unsigned lane = rank_of() % 32;
  for (unsigned i = 0; i < 4; i++) {
    const unsigned first = 8 * i + (TURNED ? lane % 4 * 2 : lane / 4), place = TURNED ? lane / 4 : lane % 4 * 2;
    const T* low = __shfl_sync(~0u, at, first);
    const T* high = __shfl_sync(~0u, at, TURNED ? first + 1 : first);
    to[i] = low[place].bits | (unsigned)high[TURNED ? place : place + 1].bits << 16;
  }
}
static inline float cut_off(double x) {
  float y = (float)x;
  if (x != x || y - y != 0 || fabs((double)y) <= fabs(x)) return y;
  unsigned bits;
  memcpy(&bits, &y, 4), bits--, memcpy(&y, &bits, 4);
  return y;
}
// d += a @ b for 16 x 8 by 8 x 8: mma.m16n8k8 of tf32, which cuts sums off instead of rounding them; those too large
// are infinite (H200).
static void emulated_mma_tf32(float* d, const unsigned* a, const unsigned* b) {
  const unsigned lane = rank_of() % 32;
  double sums[4] = {d[0], d[1], d[2], d[3]};
  for (unsigned k = 0; k < 8; k++) {
    float left[2], right[2];
    for (unsigned half = 0; half < 2; half++) {
      const unsigned x = __shfl_sync(~0u, k < 4 ? a[half] : a[2 + half], lane / 4 * 4 + k % 4);
      const unsigned y = __shfl_sync(~0u, k < 4 ? b[0] : b[1], (lane % 4 * 2 + half) * 4 + k % 4);
      const unsigned read = 0xffffe000u, p = x & read, r = y & read;  // TF32 has no more
      memcpy(left + half, &p, 4), memcpy(right + half, &r, 4);
    }
    for (unsigned e = 0; e < 4; e++) sums[e] += (double)left[e / 2] * right[e % 2];
  }
  for (unsigned e = 0; e < 4; e++) d[e] = cut_off(sums[e]);
}
// d += a @ b for 16 x 16 by 16 x 8: who holds which element is told by the PTX ISA, mma.m16n8k16.
template <class T> static void emulated_mma(float* d, const unsigned* a, const unsigned* b) {
  const unsigned lane = rank_of() % 32;
  for (unsigned k = 0; k < 16; k++) {
    float left[2], right[2];
    for (unsigned half = 0; half < 2; half++) {
      const unsigned x = __shfl_sync(~0u, k < 8 ? a[half] : a[2 + half], lane / 4 * 4 + k % 8 / 2);
      const unsigned y = __shfl_sync(~0u, k < 8 ? b[0] : b[1], (lane % 4 * 2 + half) * 4 + k % 8 / 2);
      left[half] = get(T{(unsigned short)(x >> k % 2 * 16)}), right[half] = get(T{(unsigned short)(y >> k % 2 * 16)});
    }
    for (unsigned e = 0; e < 4; e++) d[e] += left[e / 2] * right[e % 2];
  }
}
"""

_LAUNCH = r"""
static void (*kernel)(void**); static void** arguments;
static void run_threads() {
  for (;;) {
    kernel(arguments);
    is_done[rank_of()] = true;
    if (--living && arrived == living) arrived = 0, meetings++;
    pause(rank_of());
  }
}
static bool is_backwards;
static int run_cluster(unsigned first, unsigned blocks) {  // whose blocks share their barriers
  const unsigned each = blockDim.x * blockDim.y, count = blocks * each;
  for (unsigned t = 0; t < count; t++) {
    if (!stacks[t]) {
      stacks[t] = (char*)malloc(stack_bytes);
      prepare(t);
    }
    is_done[t] = false; barriers_of[t] = shuffles_of[t] = 0;
  }
  living = count;
  for (unsigned left = count; left;) {
    left = 0;
    for (unsigned turn = 0; turn < count; turn++) {
      const unsigned t = is_backwards ? count - 1 - turn : turn;
      if (is_done[t]) continue;
      const unsigned b = first + t / each;
      block_of_cluster = t / each;
      blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
      threadIdx = {t % each % blockDim.x, t % each / blockDim.x, 0};
      resume(t);
      left += !is_done[t];
    }
  }
  for (unsigned t = 1; t < count; t++)
    if (barriers_of[t] != barriers_of[0] || shuffles_of[t] != shuffles_of[t / 32 * 32]) return 1;
  return 0;
}
extern "C" void set_backwards(int backwards) { is_backwards = backwards; }
// Dynamic memory is poison for each block, and beyond the bytes that a launch asks for.
extern "C" int launch(
    void* function, const unsigned* grid, const unsigned* block, unsigned blocks, unsigned bytes, void** given) {
  static size_t used = sizeof(dynamic_memory[0]);
  for (unsigned b = 0; b < 8; b++) memset(dynamic_memory[b], 0xff, used);
  used = bytes;
  kernel = (void (*)(void**))function; arguments = given;
  blockDim = {block[0], block[1], 1}; gridDim = {grid[0], grid[1], grid[2]};
  const unsigned count = grid[0] * grid[1] * grid[2] / blocks;
  for (unsigned turn = 0; turn < count; turn++) {
    for (unsigned b = 0; b < blocks; b++) memset(dynamic_memory[b], 0xff, bytes);
    if (run_cluster((is_backwards ? count - 1 - turn : turn) * blocks, blocks)) return 1;
  }
  return 0;
}
"""

_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([0-9, ]+\) )?NAME\(([^)]*)\)')


def name_of(kernel: Kernel) -> str:
    """The name under which a kernel is compiled."""
    return f"k_{hashlib.sha256(kernel.text.encode()).hexdigest()[:16]}"


def _wrapped(kernel: Kernel) -> str:
    """The kernel and a function that calls it with arguments from an array of pointers to them."""
    found = _SIGNATURE.search(kernel.text)
    assert found is not None, kernel.text
    types = [" ".join(part.split()[:-1]) for part in found[1].split(",") if part.strip()]
    arguments = ", ".join(f"*({ctype}*)a[{index}]" for index, ctype in enumerate(types))
    name = name_of(kernel)
    text = re.sub(
        r"extern __shared__ [^;]*?(\w+) (\w+)\[\];", r"\1* \2 = (\1*)dynamic_memory[block_of_cluster];", kernel.text
    )
    text = text.replace('extern "C" __global__', "static")
    return f'{text.replace("NAME", name)}\nextern "C" void call_{name}(void** a) {{ {name}({arguments}); }}\n'


def _hosted_prelude() -> str:
    prelude = PRELUDE.replace("#ifndef EMULATED", _SMALL_FLOATS + "#ifndef EMULATED", 1)
    return prelude.replace("#define INFINITE", _DEFINED + "#define INFINITE", 1)


HOSTED_PRELUDE = _hosted_prelude()
"""What comes before every generated kernel, with conversions of small floats for the host."""


# Without the library of C++, which nothing here needs, linking takes a quarter of the time.
_GCC = ("gcc", "-O0", "-ffp-contract=off", "-std=c++17", "-fPIC", "-fno-exceptions", "-w")


_libraries: dict[str, ctypes.CDLL] = {}


@cache
def _headers(prelude: str) -> Path:
    """A folder with what comes before all kernels as `emulated.h`, read once: otherwise two thirds of the time."""
    folder = Path(mkdtemp(prefix="emulated-"))
    atexit.register(shutil.rmtree, folder)
    header = folder / "emulated.h"
    header.write_text(_COROUTINES + _DEVICE + prelude + _TENSOR_CORES)
    subprocess.run([*_GCC, "-x", "c++-header", "-o", f"{header}.gch", str(header)], check=True)
    return folder


def compiled(kernels: Iterable[Kernel], folder: Path, prelude: str = HOSTED_PRELUDE) -> ctypes.CDLL:
    """All kernels as a library, made in `folder`; the same ones are compiled once."""
    distinct = {kernel.text: kernel for kernel in kernels}
    wrapped = "".join(_wrapped(kernel) for kernel in distinct.values())
    name = hashlib.sha256((prelude + wrapped).encode()).hexdigest()[:16]
    if name not in _libraries:
        code, library = folder / f"{name}.cpp", folder / f"{name}.so"
        code.write_text(f'#include "emulated.h"\n{wrapped}{_LAUNCH}')
        command = [*_GCC, f"-I{_headers(prelude)}", "-shared", "-o", str(library), str(code), "-lm"]
        subprocess.run(command, check=True)
        _libraries[name] = ctypes.CDLL(str(library))
    return _libraries[name]


def launched(library: ctypes.CDLL, launch: KernelLaunch, base: Callable[[int], int]) -> None:
    """Runs a launch; `base` gives the address of each buffer."""
    held: list[Array] = []
    values = [_argument(argument, base, held) for argument in launch.arguments]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
    function = ctypes.cast(getattr(library, f"call_{name_of(launch.kernel)}"), ctypes.c_void_p)
    grid, block = ((ctypes.c_uint * 3)(*sizes) for sizes in (launch.kernel.grid, launch.kernel.block))
    assert launch.kernel.cluster[1:] == (1, 1), "clusters are emulated along x"
    status = library.launch(function, grid, block, launch.kernel.cluster[0], launch.kernel.shared_bytes, pointers)
    assert status == 0, "threads met different barriers"


def _argument(argument: BufferPlace | Packed | ScalarArgument, base: Callable[[int], int], held: list[Array]) -> Any:
    if isinstance(argument, ScalarArgument):
        kinds = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "float": ctypes.c_float}
        return kinds[argument.ctype](argument.value)
    if isinstance(argument, Packed):
        held.append(packed_bytes(argument))
        return ctypes.c_void_p(address_of(held[-1]))
    return ctypes.c_void_p(base(argument.buffer) + argument.offset)


class Emulator:
    """The kernels of a library, run over the memory of one plan."""

    def __init__(self, plan: Plan, library: ctypes.CDLL, *, backwards: bool = False) -> None:
        self.plan = plan
        self.library = library
        self.backwards = backwards
        self.arena = HostArena(plan.arena_bytes, plan.alignment)
        self.placement = HostPlacement(plan, self.arena)
        self._held: list[object] = []

    def run(self, candidate: Candidate) -> None:
        """Runs the launches of one step."""
        self.library.set_backwards(self.backwards)
        for each in candidate.launches:
            assert isinstance(each, KernelLaunch)
            launched(self.library, each, self._base)

    def _base(self, buffer: int) -> int:
        found = self.plan.buffers[buffer]
        if found.place is Home.ARENA:
            return self.arena.address + found.offset
        array = self.placement.scratch(buffer)
        self._held.append(array)
        return address_of(array)


def kernels_of(candidates: Iterable[Candidate]) -> list[Kernel]:
    """The kernels that candidates launch."""
    launches = (launch for candidate in candidates for launch in candidate.launches)
    return [launch.kernel for launch in launches if isinstance(launch, KernelLaunch)]
