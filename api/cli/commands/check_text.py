"""The table of a comparison of two models, which two commands write."""

from collections.abc import Mapping
from typing import Any

from ...comparing.tables import Table

_SHOWN_OUTPUTS = 8


def check_text(check: Mapping[str, Any]) -> str:
    """What two models were compared on and by what, and the outputs that are furthest apart."""
    sizes = ", ".join(f"{name}={size}" for name, size in check["sizes"].items())
    many = "s" if check["inputs"] > 1 else ""
    head = f"compared on {check['inputs']} input{many} through {check['runtime']}{f', {sizes}' if sizes else ''}"
    outputs = check["outputs"]
    columns = ("output", "largest error", "of its largest value", "allowed", "held to")
    rows = [
        (each["name"], each["largest"], each["relative"], each["allowed"], each["held_to"] or "the first model")
        for each in outputs[:_SHOWN_OUTPUTS]
    ]
    more = f"\n{len(outputs) - _SHOWN_OUTPUTS} more outputs differ less" if len(outputs) > _SHOWN_OUTPUTS else ""
    return f"{head}\n\n{Table(columns, rows).text()}{more}"
