"""Non-max suppression of many boxes: which overlap which, by the whole chip, and the selection from that.

Boxes of a class lie in order of their scores. A bit for each pair says that the later one has to go if the earlier one
stays, 64 of them in a word. Going through the boxes, a thread decides on 64 at a time by the bits among these; then all
threads join the words of those that stay.
"""

from dataclasses import dataclass

from ...kernel_ir.kernels import Parameter, launch_of
from ...kernel_ir.launch import BufferPlace, KernelLaunch

MASKED = range(256, 1 << 17)
"""How many boxes of a class are compared by the whole chip."""
BITS = 64
_THREADS = 1024

BOX = "pack<float, 4>"
"""The least and the greatest corner of a box."""
AREA = "__fmul_rn(w.v[2] - w.v[0], w.v[3] - w.v[1])"
"""The area of box `w`."""
OVERLAP = (
    "const float height = least(best.v[2], other.v[2]) - greatest(best.v[0], other.v[0]);",
    "const float width = least(best.v[3], other.v[3]) - greatest(best.v[1], other.v[1]);",
    "const float common = __fmul_rn(greatest(height, 0.0f), greatest(width, 0.0f));",
    "const float both = __fadd_rn(__fadd_rn(own, area), -common);",
    "const float share = own > 0 && area > 0 && both > 0 ? common / both : 0.0f;",
)
"""Statements for the `share` that boxes `best` and `other`, of areas `own` and `area`, have in common."""


@dataclass(frozen=True)
class Lists:
    """Scratch memory from `used` bytes on: of each class up to `length` boxes in order, their corners, and the bits."""

    scratch: BufferPlace
    used: int
    classes: int
    length: int

    @property
    def words(self) -> int:
        """Words for the bits of one box."""
        return -(-self.length // BITS)

    @property
    def mask_bytes(self) -> int:
        """Bytes of all bits."""
        return 8 * self.classes * self.length * self.words

    def _place(self, offset: int) -> BufferPlace:
        return BufferPlace(self.scratch.buffer, self.scratch.offset + self.used + offset)

    @property
    def _entries(self) -> int:
        return self.classes * self.length

    @property
    def corners(self) -> Parameter:
        """Corners of boxes."""
        return Parameter("float*", "corners", self._place(0))

    @property
    def bits(self) -> Parameter:
        """For each box a word for each 64 boxes; those before its own are not there."""
        return Parameter("u64*", "bits", self._place(16 * self._entries))

    @property
    def order(self) -> Parameter:
        """Indices of boxes."""
        return Parameter("int*", "order", self._place(16 * self._entries + self.mask_bytes))

    @property
    def numbers(self) -> Parameter:
        """How many boxes a class has."""
        return Parameter("int*", "numbers", self._place(20 * self._entries + self.mask_bytes))

    @property
    def end(self) -> int:
        """Where they end in the scratch memory."""
        return self.used + 20 * self._entries + self.mask_bytes + 4 * self.classes


def masks(lists: Lists, overlap: Parameter | None) -> KernelLaunch:
    """A block for 64 boxes beside 64 others, a thread for each of the former."""
    words, length = lists.words, lists.length
    lines = [
        f"const int word = blockIdx.x % {words}u, stretch = blockIdx.x / {words}u; const unsigned kind = blockIdx.y;",
        f"const int number = numbers[kind], from = word * {BITS};",
        "if (word < stretch || from >= number) return;",
        f"const float overlap_limit = {'*overlap' if overlap else '0.0f'};",
        f"const {BOX}* of_class = (const {BOX}*)corners + (u64)kind * {length}u;",
        f"__shared__ {BOX} others[{BITS}]; __shared__ float areas[{BITS}];",
        f"const auto area_of = []({BOX} w) {{ return {AREA}; }};",
        "if (from + (int)threadIdx.x < number) {",
        f"const {BOX} mine = of_class[from + threadIdx.x];",
        "others[threadIdx.x] = mine; areas[threadIdx.x] = area_of(mine); }",
        "__syncthreads();",
        f"const int i = stretch * {BITS} + threadIdx.x;",
        "if (i >= number) return;",
        f"const {BOX} best = of_class[i]; const float own = area_of(best); u64 found = 0;",
        f"const int end = number - from < {BITS} ? number - from : {BITS};",
        "for (int j = word == stretch ? threadIdx.x + 1 : 0; j < end; j++) {",
        f"const {BOX} other = others[j]; const float area = areas[j];",
        *OVERLAP,
        "if (!(share <= overlap_limit)) found |= 1ull << j; }",
        f"bits[((u64)kind * {length}u + i) * {words}u + word] = found;",
    ]
    parameters = [lists.bits, lists.corners, lists.numbers, *([overlap] if overlap else [])]
    return launch_of(parameters, lines, (words * words, lists.classes, 1), (BITS, 1, 1), lists.mask_bytes)


def selection(lists: Lists, chosen: Parameter, counts: Parameter, kept: int, limit: Parameter | None) -> KernelLaunch:
    """A block for each class: at most `limit` and `kept` boxes go to `chosen`, and how many they are to `counts`."""
    words, length = lists.words, lists.length
    lines = [
        f"__shared__ u64 out[{words}], own[{BITS}], staying;",
        f"const i64 limited = {'*limit' if limit else '0'};",
        f"const int most = limited < {kept} ? (limited > 0 ? (int)limited : 0) : {kept};",
        f"const int number = numbers[blockIdx.x], stretches = (number + {BITS - 1}) / {BITS};",
        f"const u64* of_class = bits + (u64)blockIdx.x * {length * words}ull;",
        f"for (int n = threadIdx.x; n < {words}; n += {_THREADS}) out[n] = 0;",
        "__syncthreads();",
        "int selected = 0;",
        "for (int t = 0; t < stretches && selected < most; t++) {",
        f"const int first = t * {BITS};",
        *_decided(words),
        "const u64 stay = staying;",
        f"if (threadIdx.x < {BITS} && stay >> threadIdx.x & 1) {{",
        "const int before = popcount(stay & ((1ull << threadIdx.x) - 1));",
        f"const int box = order[blockIdx.x * {length}ull + first + threadIdx.x];",
        f"chosen[blockIdx.x * (u64){kept} + selected + before] = box; }}",
        "selected += popcount(stay);",
        *_joined(words),
        "__syncthreads(); }",
        "if (threadIdx.x == 0) counts[blockIdx.x] = selected;",
    ]
    head = "const auto popcount = [](u64 x) { return __popc((unsigned)x) + __popc((unsigned)(x >> 32)); };"
    parameters = [chosen, counts, lists.bits, lists.order, lists.numbers, *([limit] if limit else [])]
    return launch_of(parameters, [head, *lines], (lists.classes, 1, 1), (_THREADS, 1, 1), lists.mask_bytes)


def _decided(words: int) -> list[str]:
    """Statements for `staying`, the bits of those of 64 boxes that stay, as many as there may be: by one thread."""
    return [
        f"if (threadIdx.x < {BITS}) {{ const int i = first + threadIdx.x;",
        f"own[threadIdx.x] = i < number ? of_class[(u64)i * {words}u + t] : 0; }}",
        "__syncthreads();",
        "if (threadIdx.x == 0) { u64 gone = out[t], stay = 0; int left = most - selected;",
        f"if (number - first < {BITS}) gone |= ~0ull << (number - first);",
        "#pragma unroll 16",
        f"for (int i = 0; i < {BITS}; i++) {{ const u64 after = own[i];",
        "if (left > 0 && !(gone >> i & 1)) { stay |= 1ull << i; gone |= after; left--; } }",
        "staying = stay; }",
        "__syncthreads();",
    ]


def _joined(words: int) -> list[str]:
    """Statements that join the later words of the boxes that stay: neighboring threads have neighboring words."""
    groups = _THREADS // BITS
    return [
        f"for (int w = t + 1 + threadIdx.x % {BITS}; w < stretches; w += {BITS}) {{ u64 joined = 0;",
        "#pragma unroll",
        f"for (int n = 0; n < {BITS // groups}; n++) {{ const int i = threadIdx.x / {BITS} + n * {groups};",
        f"if (stay >> i & 1) joined |= of_class[(u64)(first + i) * {words}u + w]; }}",
        "if (joined) atomicOr(out + w, joined); }",
    ]
