"""Non-max suppression: a block for each class of each sample, then the rows of all of them side by side.

A block takes the boxes whose score is above the threshold, sorts them by score (equal ones by index), and goes through
them: each that is left is selected, and all threads look which others overlap it too much. Where they fit, the corners
of boxes then lie in shared memory, in place of the keys. Of many boxes the whole chip first finds which overlap which,
a bit for each pair, and the block that selects only joins these bits (`suppression_masks.py`). Products are rounded by
themselves, as in NumPy, so that an overlap at the threshold is decided as there.
"""

import math
from collections.abc import Iterator, Mapping

from ...kernel_ir.kernels import Parameter, at, launch_of, reach_type, read, written
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, layout_of
from ...kernel_ir.moving import operand, result
from .suppression_masks import AREA, BOX, MASKED, OVERLAP, Lists, masks, selection

LARGEST_BLOCK = 16384
"""Boxes that are sorted in shared memory: a key of 8 bytes, an index of 4 and a mark of 1 each."""
ENTRY_BYTES = 13
CORNER_BYTES = 16
THREADS = 1024
MOST_MASK_BYTES = 64 << 20
_STATIC_BYTES = 64
ROW_THREADS = 256


def _limit(task: Task, index: int) -> Layout | None:
    view = task.operands[index]
    return None if view is None else layout_of(view)


def _lower(task: Task) -> Iterator[Candidate]:
    boxes, scores, found, count = operand(task), operand(task, 1), result(task), result(task, 1)
    if task.scratch is None:
        return
    classes, number = scores.shape[0] * scores.shape[1], scores.shape[2]
    kept = found.shape[0] // classes if classes else 0
    sorted_at_once = max(2, 1 << max(number - 1, 0).bit_length())
    chosen = Parameter("int*", "chosen", task.scratch)
    counts = Parameter("int*", "counts", BufferPlace(task.scratch.buffer, task.scratch.offset + 4 * classes * kept))
    used = 4 * classes * (kept + 1)
    launches: list[KernelLaunch] = []
    if classes and kept:
        memory: Parameter | None = None
        if sorted_at_once > LARGEST_BLOCK:
            used = -(-used // 16) * 16
            memory = Parameter(
                "unsigned char*", "entries", BufferPlace(task.scratch.buffer, task.scratch.offset + used)
            )
            used += ENTRY_BYTES * sorted_at_once * classes
        lists = Lists(task.scratch, -(-used // 16) * 16, classes, number)
        block = _Block(task, boxes, scores, (chosen, counts, kept), sorted_at_once, memory)
        if number in MASKED and lists.mask_bytes <= MOST_MASK_BYTES:
            used = lists.end
            launches.append(block.ordering(lists))
            launches.append(masks(lists, block.limit("overlap")))
            launches.append(selection(lists, chosen, counts, kept, block.limit("limit")))
        else:
            launches.append(block.selecting())
    launches.append(_listing(found, count, scores.shape, (chosen, counts, kept)))
    yield Candidate("suppressed", tuple(launches), used)


class _Block:
    """The kernels in which a block sorts the boxes of a class: `size` entries, in shared memory or in `memory`."""

    def __init__(
        self,
        task: Task,
        boxes: Layout,
        scores: Layout,
        lists: tuple[Parameter, Parameter, int],
        size: int,
        memory: Parameter | None,
    ) -> None:
        self.task, self.boxes, self.scores = task, boxes, scores
        self.chosen, self.counts, self.kept = lists
        self.size, self.memory = size, memory
        self.limits = {name: _limit(task, index) for index, name in ((2, "limit"), (3, "overlap"), (4, "least_score"))}

    def limit(self, name: str) -> Parameter | None:
        """A limit as a parameter, None where it is left out."""
        layout = self.limits[name]
        return None if layout is None else read(name, layout)

    def _head(self, behind: int) -> list[str]:
        """Statements that list and sort: `number` boxes, those `at` in order; entries lie `behind` the keys."""
        ctype, size, scores, boxes = reach_type((self.boxes, self.scores)), self.size, self.scores, self.boxes
        width = math.prod(scores.shape[1:2])
        own = "extern __shared__ __align__(16) u64 memory[]; u64* keys = memory;"
        if self.memory is not None:
            own = f"u64* keys = (u64*)(entries + (u64)blockIdx.x * {ENTRY_BYTES * size}u);"
        return [
            own,
            f"unsigned* at = (unsigned*)(keys + {behind}); unsigned char* is_out = (unsigned char*)(at + {size});",
            "__shared__ int candidates; if (threadIdx.x == 0) candidates = 0;",
            "__syncthreads();",
            f"const {ctype} c0 = blockIdx.x / {width}u, c1 = blockIdx.x % {width}u;",
            f"const float* of_class = scores + ({at(scores, without=[2])});",
            f"const float* of_sample = boxes + c0 * {boxes.strides[0]};",
            *_candidates(scores, ctype, has_threshold=self.limits["least_score"] is not None),
            *_sorted(),
            *_corners(boxes, ctype, is_center=self.task.node.attrs["center_point_box"]),
        ]

    def selecting(self) -> KernelLaunch:
        """Everything, by one block for each class."""
        entry = ENTRY_BYTES + CORNER_BYTES - 8
        room = self.task.chip.shared_bytes - _STATIC_BYTES
        keeps_corners = self.memory is None and entry * self.size <= room
        lines = [
            f"const i64 most = {'*limit' if self.limits['limit'] else '0'};",
            f"const float overlap_limit = {'*overlap' if self.limits['overlap'] else '0.0f'};",
            *self._head(2 * self.size if keeps_corners else self.size),
            f"const auto area_of = []({BOX} w) {{ return {AREA}; }};",
            *(_KEPT_CORNERS if keeps_corners else ["const auto box_of = [&](int n) { return box_at(at[n]); };"]),
            *_selected(self.kept),
            "if (threadIdx.x == 0) counts[blockIdx.x] = selected;",
        ]
        return self._launch([self.chosen, self.counts], self.limits, lines, entry if keeps_corners else ENTRY_BYTES)

    def ordering(self, lists: Lists) -> KernelLaunch:
        """Boxes above the threshold in order of their scores, their corners, and how many there are."""
        length = lists.length
        lines = [
            *self._head(self.size),
            f"for (int n = threadIdx.x; n < number; n += blockDim.x) {{ const u64 to = blockIdx.x * {length}ull + n;",
            f"order[to] = at[n]; (({BOX}*)corners)[to] = box_at(at[n]); }}",
            "if (threadIdx.x == 0) numbers[blockIdx.x] = number;",
        ]
        written_lists = [lists.order, lists.corners, lists.numbers]
        return self._launch(written_lists, {"least_score": self.limits["least_score"]}, lines, ENTRY_BYTES)

    def _launch(
        self, lists: list[Parameter], limits: Mapping[str, Layout | None], lines: list[str], entry_bytes: int
    ) -> KernelLaunch:
        given = [read(name, layout) for name, layout in limits.items() if layout is not None]
        parameters = [*lists, read("boxes", self.boxes), read("scores", self.scores), *given]
        if self.memory is not None:
            parameters.append(self.memory)
        shared_bytes = 0 if self.memory is not None else entry_bytes * self.size
        grid = (self.scores.shape[0] * self.scores.shape[1], 1, 1)
        threads = min(THREADS, max(32, self.size // 2))
        nbytes = self.boxes.nbytes + self.scores.nbytes
        return launch_of(parameters, lines, grid, (threads, 1, 1), nbytes, 0, shared_bytes)


def _candidates(scores: Layout, ctype: str, *, has_threshold: bool) -> list[str]:
    """Statements that list the boxes above the threshold, in any order, and fill up to a power of two."""
    return [
        f"for (int n = threadIdx.x; n < {scores.shape[2]}; n += blockDim.x) {{",
        f"const float score = of_class[({ctype})n * {scores.strides[2]}];",
        f"if ({'score > *least_score' if has_threshold else 'true'}) {{",
        "const float x = -score; const unsigned bits = as_bits(x == 0 ? 0.0f : x);",
        "const int slot = atomicAdd(&candidates, 1); at[slot] = n;",
        "keys[slot] = x != x ? ~0ull : (u64)(bits >> 31 ? ~bits : bits | 1u << 31); } }",
        "__syncthreads();",
        "const int number = candidates; unsigned size = 2; while (size < number) size *= 2;",
        "for (int n = number + threadIdx.x; n < size; n += blockDim.x) { keys[n] = ~0ull; at[n] = ~0u; }",
        "for (int n = threadIdx.x; n < number; n += blockDim.x) is_out[n] = 0;",
        "__syncthreads();",
    ]


def _sorted() -> list[str]:
    """Statements that sort `size` entries by a bitonic network."""
    return [
        "for (unsigned run = 2; run <= size; run *= 2) for (unsigned apart = run / 2; apart > 0; apart /= 2) {",
        "for (unsigned t = threadIdx.x; t < size / 2; t += blockDim.x) {",
        "const unsigned low = t / apart * 2 * apart + t % apart, high = low + apart;",
        "const u64 a = keys[low], b = keys[high]; const unsigned i = at[low], j = at[high];",
        "if ((a > b || (a == b && i > j)) == ((low & run) == 0)) {",
        "keys[low] = b; keys[high] = a; at[low] = j; at[high] = i; }",
        "} __syncthreads(); }",
    ]


def _corners(boxes: Layout, ctype: str, *, is_center: bool) -> list[str]:
    """A function that reads a box as its least and greatest corners."""
    read_all = [
        f"const float v{i} = of_sample[({ctype})n * {boxes.strides[1]} + {i * boxes.strides[2]}];" for i in range(4)
    ]
    corner = "v0, v1, v2, v3"
    if is_center:
        corner = "v0 - height, v1 - width, v0 + height, v1 + width"
    halves = "const float height = __fmul_rn(v2, 0.5f), width = __fmul_rn(v3, 0.5f);"
    return [
        f"const auto box_at = [&](int n) -> {BOX} {{",
        *read_all,
        *([halves] if is_center else []),
        f"const {BOX} w = {{{{{corner}}}}};",
        "return {{least(w.v[0], w.v[2]), least(w.v[1], w.v[3]), "
        "greatest(w.v[0], w.v[2]), greatest(w.v[1], w.v[3])}}; };",
    ]


_KEPT_CORNERS = [
    f"{BOX}* corners = ({BOX}*)keys;",
    "for (int n = threadIdx.x; n < number; n += blockDim.x) corners[n] = box_at(at[n]);",
    "__syncthreads();",
    "const auto box_of = [&](int n) { return corners[n]; };",
]


def _selected(kept: int) -> list[str]:
    """Statements that select, in order of score: `selected` boxes go to `chosen`."""
    return [
        "int selected = 0;",
        f"for (int i = 0; selected < most && selected < {kept}; i++) {{",
        "while (i < number && is_out[i]) i++;",
        "if (i >= number) break;",
        f"if (threadIdx.x == 0) chosen[blockIdx.x * (u64){kept} + selected] = at[i];",
        "selected++;",
        f"const {BOX} best = box_of(i); const float own = area_of(best);",
        "for (int j = i + 1 + threadIdx.x; j < number; j += blockDim.x) {",
        "if (is_out[j]) continue;",
        f"const {BOX} other = box_of(j); const float area = area_of(other);",
        *OVERLAP,
        "if (!(share <= overlap_limit)) is_out[j] = 1; }",
        "__syncthreads(); }",
    ]


def _listing(
    found: Layout, count: Layout, shape: tuple[int, ...], lists: tuple[Parameter, Parameter, int]
) -> KernelLaunch:
    """Rows (sample, class, box) of every class behind those of the classes before, then zeros."""
    chosen, counts, kept = lists
    classes = shape[0] * shape[1] if kept else 0
    warps, blocks = ROW_THREADS // 32, max(classes, 1)
    place = [f"found[slot * {found.strides[0]} + {column * found.strides[1]}]" for column in range(3)]
    row = [f"{place[0]} = blockIdx.x / {max(shape[1], 1)}u;", f"{place[1]} = blockIdx.x % {max(shape[1], 1)}u;"]
    lines = [
        f"__shared__ i64 parts[2 * {warps}];",
        "i64 before = 0, total = 0;",
        f"for (int b = threadIdx.x; b < {classes}; b += {ROW_THREADS}) {{",
        "const int own = counts[b]; total += own; if (b < (int)blockIdx.x) before += own; }",
        f"before = block_reduce<sum, {warps}>(before, parts);",
        f"total = block_reduce<sum, {warps}>(total, parts + {warps});",
        f"if (blockIdx.x < {classes}) for (int s = threadIdx.x; s < counts[blockIdx.x]; s += {ROW_THREADS}) {{",
        "const i64 slot = before + s;",
        *row,
        f"{place[2]} = chosen[blockIdx.x * (u64){kept} + s]; }}",
        f"for (i64 slot = total + blockIdx.x * {ROW_THREADS} + threadIdx.x; slot < {found.shape[0]}; "
        f"slot += {blocks * ROW_THREADS}) {{ {' '.join(f'{each} = 0;' for each in place)} }}",
        "if (blockIdx.x == 0 && threadIdx.x == 0) *count = total;",
    ]
    parameters = [written("found", found), written("count", count), chosen, counts]
    return launch_of(parameters, lines, (blocks, 1, 1), (ROW_THREADS, 1, 1), 2 * found.nbytes)


LOWERINGS: Mapping[str, Lowering] = {"bounded_non_max_suppression": _lower}
"""Selection of boxes."""
