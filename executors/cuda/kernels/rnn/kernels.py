"""Kernels of recurrent cells: a warp for each hidden unit, some rows of the batch in registers.

The hidden values of the last step lie in scratch memory, in f32 (f64 for f64), and are written to the other half of it,
so that it does not matter which unit is done first. A launch for each phase of a step spreads the units over the chip:
its weights, when they are constants, are in registers before it waits for the step before. Or a block goes through
all steps by itself, with barriers between them: for small cells, and for any number of steps.
"""

from collections.abc import Iterator

from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.launch import Kernel, KernelLaunch, ScalarArgument
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored
from .cells import Phase
from .recurrence import Recurrence, tiles_of

_STEP_WARPS, _SOLE_WARPS = 4, 16
_STEP_ROWS, _SOLE_ROWS = 8, 4
_MOST_PIECES = 16
"""Pieces of 16 bytes of weights that a lane holds in registers: 64 of them."""


# ---- the first states


def first_states(recurrence: Recurrence) -> KernelLaunch:
    """The launch that puts the given states, or zeros, where the steps look for them; without steps, in the last."""
    threads = 128
    given = [(f"given{i}", source) for i, source in enumerate(recurrence.initial) if source is not None]
    parameters = [
        *((f"const {stored(source.dtype)}* {name}", source.argument) for name, source in given),
        *recurrence.state_parameters(),
    ]
    lines: list[str] = []
    for index, source in enumerate(recurrence.initial):
        value = "0" if source is None else f"get(given{index}[{_state_offset(source)}])"
        if recurrence.steps:
            lines.append(f"{('states', 'cells')[index]}[p] = {value};")
        else:
            lines.append(f"put(last{index}[{_state_offset(recurrence.last[index])}], ({recurrence.real}){value});")
    listed = ", ".join(name for name, _ in parameters)
    text = f"""
extern "C" __global__ void __launch_bounds__({threads}) NAME({listed}) {{
  begin();
  const i64 p = (i64)blockIdx.x * {threads} + threadIdx.x;
  if (p >= {recurrence.state_size}) return;
  const i64 unit = p % {recurrence.hidden}, row = p / {recurrence.hidden} % {recurrence.batch};
  const i64 direction = p / {recurrence.hidden * recurrence.batch};
  {" ".join(lines)}
}}
"""
    kernel = Kernel(text, (-(-recurrence.state_size // threads), 1, 1), (threads, 1, 1))
    nbytes = 2 * sum(source.nbytes for source in recurrence.last)
    return KernelLaunch(kernel, tuple(argument for _, argument in parameters), nbytes, may_overlap=True)


def _state_offset(source: Source) -> str:
    direction, row, unit = source.strides
    return f"direction * {direction} + row * {row} + unit * {unit}"


# ---- a launch for each phase of each step


def step_launches(recurrence: Recurrence) -> list[KernelLaunch]:
    """The launches of all steps, in order."""
    kernels = [_step_kernel(recurrence, phase) for phase in recurrence.cell.phases]
    arguments = tuple(argument for _, argument in recurrence.parameters())
    nbytes = [_phase_bytes(recurrence, phase) for phase in recurrence.cell.phases]
    flops = [_phase_flops(recurrence, phase) for phase in recurrence.cell.phases]
    return [
        KernelLaunch(kernel, (*arguments, ScalarArgument("int", step)), moved, work, may_overlap=True)
        for step in range(recurrence.steps)
        for kernel, moved, work in zip(kernels, nbytes, flops, strict=True)
    ]


def _phase_bytes(recurrence: Recurrence, phase: Phase) -> int:
    """Its share of the weights, and about six numbers for each state."""
    weights = recurrence.r.nbytes * len(phase.gates) // recurrence.cell.gates
    return weights + 6 * recurrence.state_size * (8 if recurrence.real == "double" else 4)


def _phase_flops(recurrence: Recurrence, phase: Phase) -> int:
    return 2 * len(phase.gates) * recurrence.state_size * recurrence.hidden


def _step_kernel(recurrence: Recurrence, phase: Phase) -> Kernel:
    rows, tiles = tiles_of(recurrence, _STEP_ROWS)
    blocks = -(-recurrence.hidden // _STEP_WARPS)
    code = _Code(recurrence, phase, rows)
    text = f"""
{code.types}
extern "C" __global__ void __launch_bounds__({32 * _STEP_WARPS}) NAME({_listed(recurrence)}, int step) {{
  const int lane = threadIdx.x % 32, direction = blockIdx.z, first_row = blockIdx.x / {blocks} * {rows};
{TRIGGER}
  const int wanted = blockIdx.x % {blocks} * {_STEP_WARPS} + threadIdx.x / 32;
  {code.place}
{"" if recurrence.is_fixed else WAIT}
  {code.weights}
{WAIT if recurrence.is_fixed else ""}
  {code.rest}
}}
"""
    return Kernel(text, (blocks * tiles, 1, recurrence.directions), (32 * _STEP_WARPS, 1, 1))


def _listed(recurrence: Recurrence) -> str:
    return ", ".join(name for name, _ in recurrence.parameters())


# ---- one launch for all steps


def sole_launch(recurrence: Recurrence) -> KernelLaunch:
    """One launch: a block for each direction and some rows of the batch goes through all steps."""
    rows, tiles = tiles_of(recurrence, _SOLE_ROWS)
    codes = [_Code(recurrence, phase, rows) for phase in recurrence.cell.phases]
    phases = "\n".join(_all_units(recurrence, code) for code in codes)
    text = f"""
{codes[0].types}
extern "C" __global__ void __launch_bounds__({32 * _SOLE_WARPS}) NAME({_listed(recurrence)}) {{
  begin();
  const int lane = threadIdx.x % 32, direction = blockIdx.z, first_row = blockIdx.x * {rows};
  for (int step = 0; step < {recurrence.steps}; step++) {{
{phases}
  }}
}}
"""
    kernel = Kernel(text, (tiles, 1, recurrence.directions), (32 * _SOLE_WARPS, 1, 1))
    arguments = tuple(argument for _, argument in recurrence.parameters())
    nbytes = recurrence.steps * sum(_phase_bytes(recurrence, phase) for phase in recurrence.cell.phases)
    flops = recurrence.steps * sum(_phase_flops(recurrence, phase) for phase in recurrence.cell.phases)
    return KernelLaunch(kernel, arguments, nbytes, flops, may_overlap=True)


def _all_units(recurrence: Recurrence, code: "_Code") -> str:
    return f"""
    for (int base = 0; base < {recurrence.hidden}; base += {_SOLE_WARPS}) {{
      const int wanted = base + threadIdx.x / 32;
      {code.place}
      {code.weights}
      {code.rest}
    }}
    __syncthreads();"""


# ---- one unit


class _Code:
    """Statements that do one phase of a step for the hidden unit `wanted` and `rows` rows from `first_row` on.

    A unit or row that is not there is taken for the last one, and not written. Lane m has row m at the end.
    """

    def __init__(self, recurrence: Recurrence, phase: Phase, rows: int) -> None:
        self.recurrence = recurrence
        self.phase = phase
        self.rows = rows
        self.is_held = len(phase.gates) * recurrence.pieces <= _MOST_PIECES

    @property
    def types(self) -> str:
        """Types of pieces, and the activations."""
        real, width, r = self.recurrence.real, self.recurrence.width, self.recurrence.r
        return f"""
typedef pack<{stored(r.dtype)}, {width}> NAME_piece;
typedef pack<{real}, {width}> NAME_numbers;
{self.recurrence.activations}"""

    @property
    def place(self) -> str:
        """Which element this lane has at the end."""
        batch, hidden = self.recurrence.batch, self.recurrence.hidden
        return f"""
  const int unit = wanted < {hidden} ? wanted : {hidden - 1};
  const int row = first_row + lane < {batch} ? first_row + lane : {batch - 1};
  const bool is_mine = lane < {self.rows} && wanted < {hidden} && first_row + lane < {batch};
  const i64 at = ((i64)direction * {batch} + row) * {hidden} + unit;"""

    @property
    def weights(self) -> str:
        """What does not depend on earlier steps: biases, and as much of the weights as registers hold."""
        return "\n  ".join([*self._biases(), *(self._held_weights() if self.is_held else ())])

    @property
    def rest(self) -> str:
        """All that does."""
        return "\n  ".join(
            [*position(self.recurrence), *self._reads(), *self._matmul(), "if (is_mine) {", *self._finish(), "}"]
        )

    # ---- parts

    def _biases(self) -> Iterator[str]:
        recurrence, b, peepholes = self.recurrence, self.recurrence.b, self.recurrence.peepholes
        gates, hidden, real = recurrence.cell.gates, recurrence.hidden, recurrence.real
        if b is not None:
            names = [f"{kind}{gate}" for gate in self.phase.gates for kind in ("input_bias", "state_bias")]
            yield f"{real} {', '.join(f'{name} = 0' for name in names)};"
            yield "if (is_mine) {"
            for gate in self.phase.gates:
                for name, index in ((f"input_bias{gate}", gate), (f"state_bias{gate}", gates + gate)):
                    yield f"{name} = get(b[direction * {b.strides[0]} + ({index * hidden} + unit) * {b.strides[1]}]);"
            yield "}"
        if "cells" in recurrence.cell.buffers:
            yield f"{real} peep0 = 0, peep1 = 0, peep2 = 0;"
        if peepholes is not None:
            yield "if (is_mine) {"
            for index in range(3):
                place = f"direction * {peepholes.strides[0]} + ({index * hidden} + unit) * {peepholes.strides[1]}"
                yield f"peep{index} = get(peepholes[{place}]);"
            yield "}"

    def _held_weights(self) -> Iterator[str]:
        pieces = self.recurrence.pieces
        yield f"NAME_piece w[{len(self.phase.gates)}][{pieces}];"
        yield f"\n#pragma unroll\n  for (int s = 0; s < {pieces}; s++) {{"
        yield f"const int k = (s * 32 + lane) * {self.recurrence.width};"
        yield from (f"w[{index}][s] = {{}};" for index in range(len(self.phase.gates)))
        yield f"if (k < {self.recurrence.hidden}) {{"
        yield from (f"w[{index}][s] = {self._piece(gate)};" for index, gate in enumerate(self.phase.gates))
        yield "} }"

    def _piece(self, gate: int) -> str:
        direction, down, along = self.recurrence.r.strides
        place = (
            f"(i64)direction * {direction} + (i64)({gate * self.recurrence.hidden} + unit) * {down} + (i64)k * {along}"
        )
        return f"*(const NAME_piece*)(r + ({place}))"

    def _reads(self) -> Iterator[str]:
        """What the element needs besides its sums, on its way while these are taken."""
        recurrence, phase = self.recurrence, self.phase
        size = recurrence.state_size
        yield f"const {recurrence.real}* const before = states + (step % 2 ? {size} : 0);"
        yield f"{recurrence.real}* const after = states + (step % 2 ? 0 : {size});"
        reads = {"old": "before[at]", **phase.reads, **projected_inputs(recurrence, phase)}
        names = dict.fromkeys([*reads, *(f"x{gate}" for gate in phase.gates)])
        yield f"{recurrence.real} {', '.join(f'{name} = 0' for name in names)};"
        yield f"if (is_mine) {{ {' '.join(f'{name} = {place};' for name, place in reads.items())} }}"

    def _matmul(self) -> Iterator[str]:
        recurrence, gates = self.recurrence, self.phase.gates
        batch, hidden, width, real = recurrence.batch, recurrence.hidden, recurrence.width, recurrence.real
        last = f"first_row + m < {batch} ? first_row + m : {batch - 1}"
        yield f"{real} sums[{len(gates)}][{self.rows}] = {{}};"
        yield f"\n#pragma unroll{'' if self.is_held else ' 2'}\n  for (int s = 0; s < {recurrence.pieces}; s++) {{"
        yield f"const int k = (s * 32 + lane) * {width};"
        yield f"if (k < {hidden}) {{"
        if self.is_held:
            yield from (f"const NAME_piece& w{index} = w[{index}][s];" for index in range(len(gates)))
        else:
            yield from (f"const NAME_piece w{index} = {self._piece(gate)};" for index, gate in enumerate(gates))
        yield f"\n#pragma unroll\n  for (int m = 0; m < {self.rows}; m++) {{"
        yield f"const i64 from = ((i64)direction * {batch} + ({last})) * {hidden} + k;"
        yield f"const NAME_numbers p = *(const NAME_numbers*)({self.phase.operand} + from);"
        yield f"\n#pragma unroll\n  for (int e = 0; e < {width}; e++) {{"
        yield from (f"sums[{index}][m] += get(w{index}.v[e]) * p.v[e];" for index in range(len(gates)))
        yield "} } } }"
        yield from self._folded()

    def _folded(self) -> Iterator[str]:
        """`h0`, ... as the whole sums of this lane's row: halves of the rows change places, then parts are added up.

        Folding each row by itself took five shuffles for each sum, and 0.3 us a step.
        """
        real, gates = self.recurrence.real, self.phase.gates
        count = 1 << (self.rows - 1).bit_length()
        for index, gate in enumerate(gates):
            yield f"{real} part{gate}[{count}] = {{}};"
            yield f"\n#pragma unroll\n  for (int m = 0; m < {self.rows}; m++) part{gate}[m] = sums[{index}][m];"
        lanes, left = 16, count // 2
        while lanes:
            yield f"{{ const bool is_upper = lane & {lanes};"
            for gate in gates:
                yield from self._exchanged(f"part{gate}", lanes, left)
            yield "}"
            lanes, left = lanes // 2, left // 2
        for gate in gates:
            yield f"{real} h{gate} = __shfl_sync(~0u, part{gate}[0], lane * {32 // count} % 32);"

    def _exchanged(self, part: str, lanes: int, left: int) -> Iterator[str]:
        real = self.recurrence.real
        if not left:
            yield f"{part}[0] += __shfl_xor_sync(~0u, {part}[0], {lanes});"
            return
        yield f"\n#pragma unroll\n  for (int m = 0; m < {left}; m++) {{"
        yield f"const {real} mine = is_upper ? {part}[m + {left}] : {part}[m];"
        yield f"const {real} other = is_upper ? {part}[m] : {part}[m + {left}];"
        yield f"{part}[m] = mine + __shfl_xor_sync(~0u, other, {lanes});"
        yield "}"

    def _finish(self) -> Iterator[str]:
        recurrence = self.recurrence
        if recurrence.b is not None:
            yield from (f"x{gate} += input_bias{gate}; h{gate} += state_bias{gate};" for gate in self.phase.gates)
        if not self.phase.is_last:
            yield from self.phase.finish
            return
        states = {"hidden": "old", "next": "cell"} if "cells" in recurrence.cell.buffers else {"hidden": "old"}
        yield f"{recurrence.real} {', '.join(states)};"
        yield from self.phase.finish
        yield from (f"{new} = lives ? {new} : {old};" for new, old in states.items())
        yield "after[at] = hidden;"
        yield "cells[at] = next;" if "next" in states else ""
        yield from results(recurrence)


def position(recurrence: Recurrence) -> Iterator[str]:
    """Whether sample `row` is not over yet, and which place of the sequence `step` is at: `lives` and `place`."""
    lengths, directions = recurrence.lengths, recurrence.is_reversed
    backwards = "direction == 1" if len(directions) == 2 else str(directions[0]).lower()
    if lengths is None:
        yield f"const bool lives = true; const int place = {backwards} ? {recurrence.steps - 1} - step : step;"
        return
    yield f"const i64 given_length = (i64)lengths[(i64)row * {lengths.strides[0]}];"
    yield (
        f"const int length = given_length < 0 ? 0 : given_length < {recurrence.steps} ? (int)given_length "
        f": {recurrence.steps};"
    )
    yield f"const bool lives = step < length; const int place = {backwards} && lives ? length - 1 - step : step;"


def results(recurrence: Recurrence) -> Iterator[str]:
    """Statements that write `hidden` for the step, and the states `hidden` and `next` after the last one."""
    by_step, by_direction, by_row, by_unit = recurrence.every.strides
    at = f"(i64)place * {by_step} + (i64)direction * {by_direction} + (i64)row * {by_row} + (i64)unit * {by_unit}"
    yield f"put(every[{at}], lives ? hidden : ({recurrence.real})0);"
    yield f"if (step == {recurrence.steps - 1}) {{"
    for name, source, index in zip(("hidden", "next"), recurrence.last, range(2), strict=False):
        direction, row, unit = source.strides
        yield f"put(last{index}[(i64)direction * {direction} + (i64)row * {row} + (i64)unit * {unit}], {name});"
    yield "}"


def projected_inputs(recurrence: Recurrence, phase: Phase) -> dict[str, str]:
    """Where the projected input `x0`, ... of each gate of a phase is read at `place`."""
    if recurrence.projected is None:
        return {}
    by_step, by_row = recurrence.projected_strides
    gates, hidden = recurrence.cell.gates, recurrence.hidden
    of_step = f"(i64)place * {by_step} + (i64)row * {by_row} + direction * {gates * hidden} + unit"
    return {f"x{gate}": f"projected[{of_step} + {gate * hidden}]" for gate in phase.gates}
