"""Transforms of every kind of length, from one side or both, forwards and back, along any axis, cut or padded."""

from collections.abc import Iterator

from tests.executors.cuda.codegen.cases import Case, Drawn, made

LENGTHS = (1, 2, 3, 7, 8, 11, 12, 16, 26, 49, 60, 97, 121, 256, 400, 1000, 1024)
LONG = (2048, 4096, 4097, 6000)


def spectrum_cases(lengths: tuple[int, ...] = LENGTHS) -> Iterator[Case]:
    """Signals of ordinary numbers: what infinities give is left to the algorithm."""
    d = Drawn()
    for length in lengths:
        real, both = d.array("f32", 3, length, 1), d.array("f32", 3, length, 2)
        yield made(f"real {length}", lambda b, x: b.op("dft", x, onesided=True), real)
        yield made(f"complex {length}", lambda b, x: b.op("dft", x), both)
        yield made(f"inverse {length}", lambda b, x: b.op("dft", x, inverse=True), both)
        half = d.array("f32", 3, length // 2 + 1, 2)
        yield made(
            f"back {length}",
            lambda b, x, length=length: b.op("dft", x, inverse=True, onesided=True, length=length),
            half,
        )
    for dtype in ("f16", "f64"):
        yield made(f"axis {dtype}", lambda b, x: b.op("dft", x, axis=1), d.array(dtype, 2, 60, 5, 2))
    for length in (20, 50):
        yield made(
            f"length {length}", lambda b, x, length=length: b.op("dft", x, length=length), d.array("f32", 2, 33, 1)
        )
    yield from _many_rows(d)
    window = d.array("f32", 40)
    signal = d.array("f32", 2, 200, 1)
    frames = {"frame_step": 13, "frame_length": 40}
    yield made("frames", lambda b, x, w: b.op("stft", x, w, **frames), signal, window)
    yield made("even frames", lambda b, x, w: b.op("stft", x, w, frame_step=10, frame_length=40), signal, window)
    yield made("bare frames", lambda b, x: b.op("stft", x, None, onesided=False, **frames), signal)


def _many_rows(d: Drawn) -> Iterator[Case]:
    """Several rows for a block, fewer for the last one."""
    for length in (12, 26):
        yield made(f"many real {length}", lambda b, x: b.op("dft", x, onesided=True), d.array("f16", 400, length, 1))
        yield made(f"many complex {length}", lambda b, x: b.op("dft", x), d.array("f32", 400, length, 2))
        half = d.array("f32", 400, length // 2 + 1, 2)
        back = {"inverse": True, "onesided": True, "length": length}
        yield made(f"many back {length}", lambda b, x, back=back: b.op("dft", x, **back), half)
