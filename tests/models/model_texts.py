"""The benchmark models as texts of their graphs, without weights, for tests that need no exporter and no numbers.

    python -m tests.models.model_texts    writes the texts anew, from the exports of benchmarks/models.py

A text is the imported graph with symbolic batch and length. Constants that it only names are drawn at random, each time
the same; integers and truth values are zeros and ones, which are valid indices.
"""

import gzip
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from capgraph.ir.constant import Array, Constant
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.ir.types import DType, TensorType

FOLDER = Path(__file__).parent / "texts"
NAMES = tuple(sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.txt.gz")))
SIZES = {"batch": 1, "length": 128}

_NAMED = re.compile(r"dense<(\w+)\[([\d, ]*)\], #(\w+)>")


def model_graph(name: str, dtype: str = "f32") -> Graph:
    """A model with random weights; `dtype` stands wherever the text says f32."""
    text = gzip.decompress((FOLDER / f"{name}.txt.gz").read_bytes()).decode()
    text = re.sub(r"\bf32\b", dtype, text)
    return parse(text, constants=drawn_constants(text))


def sizes_of(graph: Graph) -> Mapping[str, int]:
    """A size for each symbol of a model's inputs."""
    return {name: SIZES[name] for name in graph.symbols.names if name in SIZES}


def drawn_constants(text: str) -> dict[str, Constant]:
    """A constant for each that a text only names, drawn when it is first looked at."""
    return dict(_drawn(text))


def _drawn(text: str) -> Iterator[tuple[str, Constant]]:
    for dtype_name, sizes, digest in _NAMED.findall(text):
        dtype, shape = DType(dtype_name), tuple(int(size) for size in sizes.split(",") if size.strip())
        yield digest, Constant.lazy(TensorType(dtype, shape), lambda d=dtype, s=shape, n=digest: _content(d, s, n))


def _content(dtype: DType, shape: tuple[int, ...], digest: str) -> Array:
    random = np.random.default_rng(int(digest[:8], 16))
    if dtype.is_float:
        return random.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    return random.integers(0, 2, shape).astype(dtype.numpy)


def _write_all() -> None:
    from capgraph.sources import load_model

    from benchmarks.models import MODELS, ensure

    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        text = print_graph(load_model(ensure(name, "dynamic")).graph)
        (FOLDER / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    _write_all()
