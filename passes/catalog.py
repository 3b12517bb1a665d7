"""Every pass by name, and the pipeline of each optimization level."""

from collections.abc import Mapping
from types import MappingProxyType

from ..ir.errors import UnsupportedError
from .cleanup.canonicalize import Canonicalize
from .cleanup.keep_reduced_axes import KeepReducedAxes
from .cleanup.redundancy import Cse, EliminateDeadCode, FoldConstants
from .cleanup.simplify_indices import SimplifyIndices
from .cleanup.static_shapes import StaticShapes
from .control_flow.simplify_control_flow import SimplifyControlFlow
from .fold.batch_norm import FoldBatchNorm, SpreadBatchNorm
from .fold.fold_scales import FoldScales
from .fold.matmul_forms import MatmulForms
from .fold.merge_matmuls import MergeMatmuls
from .fold.pointwise_convolutions import PointwiseConvolutions
from .fold.rotary import MergeRotary, NarrowRotary
from .fold.windows import FoldPadding, GlobalPooling
from .framework.base import Pass
from .framework.pipeline import Pipeline, parse_pipeline
from .fuse.fuse import Fuse
from .fuse.list_segments import ListSegments
from .fuse.split_hidden_rows import SplitHiddenRows
from .layout.sink_transposes import SinkTransposes
from .quantize.clean_up_quantization import CleanUpQuantization
from .quantize.recognize_coded_weights import RecognizeCodedWeights
from .recognize.recognize_activations import RecognizeActivations
from .recognize.recognize_attention import RecognizeAttention
from .recognize.recognize_norms import RecognizeNorms
from .recognize.recognize_rotary import RecognizeRotary

_PASSES: tuple[type[Pass], ...] = (
    Canonicalize,
    CleanUpQuantization,
    Cse,
    EliminateDeadCode,
    FoldBatchNorm,
    FoldConstants,
    FoldPadding,
    FoldScales,
    Fuse,
    KeepReducedAxes,
    ListSegments,
    MergeMatmuls,
    MergeRotary,
    NarrowRotary,
    PointwiseConvolutions,
    MatmulForms,
    RecognizeActivations,
    RecognizeAttention,
    RecognizeCodedWeights,
    RecognizeNorms,
    RecognizeRotary,
    SimplifyControlFlow,
    SimplifyIndices,
    SinkTransposes,
    SplitHiddenRows,
    SpreadBatchNorm,
    StaticShapes,
    GlobalPooling,
)

PASSES: Mapping[str, type[Pass]] = MappingProxyType({each.name: each for each in _PASSES})
"""The passes that pipelines and the command line can name."""

_CLEAN_UP: tuple[Pass, ...] = (
    EliminateDeadCode(),
    FoldConstants(),
    SimplifyControlFlow(),
    StaticShapes(),
    Canonicalize(),
    Cse(),
)
_RECOGNIZE: tuple[Pass, ...] = (
    SimplifyIndices(),
    RecognizeActivations(),
    RecognizeNorms(),
    RecognizeRotary(),
    RecognizeAttention(),
)
_FOLD: tuple[Pass, ...] = (
    FoldBatchNorm(),
    FoldPadding(),
    GlobalPooling(),
    FoldScales(),
    PointwiseConvolutions(),
    SinkTransposes(),
    MatmulForms(),
    CleanUpQuantization(),
)


def _with_folding(*fold: Pass) -> Pipeline:
    return Pipeline((_CLEAN_UP, (*_RECOGNIZE, *_CLEAN_UP), (*fold, *_RECOGNIZE, *_CLEAN_UP)))


_LEVELS: Mapping[int, Pipeline] = MappingProxyType(
    {
        0: Pipeline(()),
        1: Pipeline((_CLEAN_UP,)),
        2: _with_folding(*_FOLD),
        3: _with_folding(*_FOLD, FoldScales(rounds_inverses=True)),
    }
)


def level_pipeline(level: int) -> Pipeline:
    """The pipeline of a level: 0 nothing, 1 clean-up (bit-exact), 2 fusion and folding (may re-associate), 3 lossy.

    Raises `UnsupportedError` for another number.
    """
    if level not in _LEVELS:
        raise UnsupportedError(f"there is no level {level}", remedy="levels go from 0 to 3")
    return _LEVELS[level]


_FOR_LAUNCHES: tuple[Pass, ...] = (
    RecognizeCodedWeights(),
    MergeMatmuls(spares_epilogues=True),
    NarrowRotary(),
    RecognizeRotary(),
    RecognizeAttention(),
    MergeRotary(),
    SplitHiddenRows(),
    *_CLEAN_UP,
)


def launch_pipeline(level: int) -> Pipeline:
    """The pipeline of a level where kernels are launched one by one: fewer of them, which scale sums in f32."""
    stages = tuple(tuple(map(_for_launches, stage)) for stage in level_pipeline(level).stages)
    return Pipeline((*stages, _FOR_LAUNCHES)) if level >= 2 else Pipeline(stages)


def _for_launches(each: Pass) -> Pass:
    return FoldBatchNorm(keeps_small_images=True) if isinstance(each, FoldBatchNorm) else each


def pipeline(text: str) -> Pipeline:
    """The pipeline that `text` describes (see `passes.pipeline`)."""
    return parse_pipeline(text, dict(PASSES))
