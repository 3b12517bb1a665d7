"""Every generated source compiles, for the architectures that matter, without a GPU."""

from itertools import chain

from tests.executors.cuda.codegen import cases
from tests.executors.cuda.codegen.running import all_prepared
from tests.executors.cuda.codegen.scatter_cases import scatter_cases
from tests.executors.cuda.codegen.segment_cases import segment_cases
from tests.executors.cuda.codegen.spectrum_cases import spectrum_cases
from tests.executors.cuda.compiling import compile_problems

REGIONS = 300


def kernels_of(made):
    return [kernel for each in made for kernel in each.kernels()]


def test_random_regions_compile_everywhere():
    every = all_prepared(cases.region_cases(REGIONS, cases.REGION_OPS))
    assert sum(node.op.name == "fused" for made in every for node in made.plan.graph.nodes) >= REGIONS
    assert not any("fused" in made.on_host() for made in every)
    assert not compile_problems(kernels_of(every))


def test_every_op_and_dtype_compiles():
    assert not compile_problems(kernels_of(all_prepared(cases.subject_cases())), [90])


def test_every_strategy_compiles_everywhere():
    families = (
        cases.fused_cases,
        cases.moving_cases,
        cases.order_cases,
        cases.found_cases,
        lambda: cases.distinct_cases(dtypes=("f32", "i64")),
        cases.image_cases,
        scatter_cases,
        segment_cases,
        spectrum_cases,
    )
    drawn = chain(cases.row_cases(("f16",)), *(family() for family in families))
    assert not compile_problems(kernels_of(all_prepared(drawn)))
