"""A comparison of executors as one HTML page that needs nothing else: bars of latencies, and tables."""

from collections.abc import Iterable, Sequence
from html import escape

from .executor_comparison import COLUMNS, ExecutorComparison, ExecutorResult, table_row
from .tables import Cell, cell_text

_BAR, _GAP, _NAMES, _WIDTH, _NUMBERS = 26, 12, 110, 460, 120  # pixels

_STYLE = """
:root { color-scheme: light dark; --bar: #3b76af; --wrong: #c0392b; --line: #8886; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
svg text { font: 14px system-ui, sans-serif; fill: currentColor; }
.wrong { color: var(--wrong); }
"""


def page(found: ExecutorComparison) -> str:
    """The page as text."""
    title = f"Executors on {found.model}"
    many = "s" if found.inputs > 1 else ""
    facts = f"{found.inputs} set{many} of inputs against the reference evaluator, medians of {found.runs} runs"
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    parts = (
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(facts)}{escape(f'; {sizes}' if sizes else '')}</p>",
        "<h2>Latency</h2>",
        latency_picture(found.results),
        "<h2>Executors</h2>",
        _table(COLUMNS, (_executor_row(result) for result in found.results)),
        "<h2>Outputs</h2>",
        _output_table(found.results),
        _remark_lists(found.results),
        _skipped_list(found.skipped),
    )
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{"".join(parts)}\n</body>\n</html>\n'


def latency_picture(results: Sequence[ExecutorResult]) -> str:
    """Horizontal bars, one an executor that ran, as an SVG element; the shortest is the fastest."""
    ran = [result for result in results if not result.problem]
    longest = max((result.latency_seconds for result in ran), default=0.0) or 1.0
    height = len(ran) * (_BAR + _GAP)
    bars = "".join(_bar(result, index, longest) for index, result in enumerate(ran))
    names = escape(", ".join(result.executor for result in ran), quote=True)
    size = f'width="{_NAMES + _WIDTH + _NUMBERS}" height="{height}"'
    return f'<svg {size} role="img" aria-label="latency of {names}">{bars}</svg>\n'


def _bar(result: ExecutorResult, index: int, longest: float) -> str:
    top, middle = index * (_BAR + _GAP), index * (_BAR + _GAP) + _BAR / 2
    width = max(2.0, _WIDTH * result.latency_seconds / longest)
    color = "var(--bar)" if result.is_close else "var(--wrong)"
    number = f"{cell_text(result.latency_seconds * 1e3)} ms"
    return (
        f'<text x="{_NAMES - 10}" y="{middle}" text-anchor="end" dominant-baseline="central">'
        f"{escape(result.executor)}</text>"
        f'<rect x="{_NAMES}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{color}"/>'
        f'<text x="{_NAMES + width + 8:.1f}" y="{middle}" dominant-baseline="central">{escape(number)}</text>'
    )


def _executor_row(result: ExecutorResult) -> Sequence[Cell]:
    row = table_row(result)
    return (*row[:-1], f"cannot run: {result.problem}") if result.problem else row


def _output_table(results: Iterable[ExecutorResult]) -> str:
    rows = [
        (
            result.executor,
            output.name,
            output.ulps,
            output.relative,
            "" if output.position is None else f"{list(output.position)} of set {output.inputs}",
            output.is_close,
        )
        for result in results
        for output in result.outputs
    ]
    return _table(("executor", "output", "largest error, ulps", "relative error", "worst at", "close"), rows)


def _remark_lists(results: Iterable[ExecutorResult]) -> str:
    parts: list[str] = []
    for result in results:
        if result.remarks:
            lines = "".join(f"<li>{escape(remark)}</li>" for remark in result.remarks)
            parts.append(f"<h2>{escape(result.executor)}</h2><ul>{lines}</ul>")
    return "".join(parts)


def _skipped_list(skipped: Sequence[ExecutorResult]) -> str:
    if not skipped:
        return ""
    lines = (f"{each.executor}: {each.problem}{f' (try: {each.remedy})' if each.remedy else ''}" for each in skipped)
    return f"<h2>Skipped</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>\n"


def _cell(cell: Cell) -> str:
    if cell is False:
        return '<td class="wrong">no</td>'
    kind = ' class="number"' if isinstance(cell, int | float) and not isinstance(cell, bool) else ""
    return f"<td{kind}>{escape(cell_text(cell))}</td>"
