"""All families of generated kernels, what is wrong with each, and how long the checks took.

python -m tests.gpu.generated_kernels_report [FAMILY ...] [--every N]

With `--every` one of so many cases is checked, for tools under which kernels take long.
"""

import argparse
import sys
import time
import traceback
from itertools import islice

from tests.gpu.generated_kernels import check
from tests.gpu.test_codegen import FAMILIES

SHOWN = 25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.families or FAMILIES:
        start = time.perf_counter()
        try:
            lines = check(islice(FAMILIES[name](), 0, None, arguments.every))
        except RuntimeError:
            lines = [traceback.format_exc(limit=-3)]
        wrong += len(lines)
        print(f"== {name}: {len(lines)} wrong, {time.perf_counter() - start:.0f} s", flush=True)
        for line in lines[:SHOWN]:
            print("  ", line, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
