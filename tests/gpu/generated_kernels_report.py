"""All families of generated kernels, what is wrong with each, and how long the checks took.

python -m tests.gpu.generated_kernels_report
"""

import time
import traceback

from tests.gpu.generated_kernels import check
from tests.gpu.test_codegen import FAMILIES

SHOWN = 25


def main() -> None:
    for name, cases in FAMILIES.items():
        start = time.perf_counter()
        try:
            lines = check(cases())
        except RuntimeError:
            lines = [traceback.format_exc(limit=-3)]
        print(f"== {name}: {len(lines)} wrong, {time.perf_counter() - start:.0f} s", flush=True)
        for line in lines[:SHOWN]:
            print("  ", line, flush=True)


if __name__ == "__main__":
    main()
