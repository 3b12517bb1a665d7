"""Where in the user's module an fx node comes from."""

import re
from typing import Any

from ...ir.graph import Origin

_FRAME = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')


def origin_of(node: Any) -> Origin:
    """The origin of an fx node: its name, the path of its module, and the line of Python that called for it."""
    frames = [frame for frame in _FRAME.findall(node.meta.get("stack_trace") or "") if not frame[0].startswith("<")]
    line = "{}:{} in {}".format(*frames[-1]) if frames else ""
    path = _module_path(node)
    source = f"{path}, {line}" if path and line else path or line
    return Origin(name=node.name, source=source)


def _module_path(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = ""
    for entry in stack.values():
        path = entry[0] if isinstance(entry, tuple) else path
    return str(path)
