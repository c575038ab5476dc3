"""Runs every plan's kernels once or twice on small problems: the program to put under compute-sanitizer.

    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 python tools/sanitize.py [PLAN …]
    compute-sanitizer --tool racecheck --error-exitcode 1 python tools/sanitize.py [PLAN …]

Operands are strided and unaligned, with guard bands, as in the tests; results are checked there, memory and races here.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from baracuda_py.core import registry
from baracuda_py.testing import exercise
from baracuda_py.testing.gpu import gpu_layout_bits


def main() -> int:
    names, plans = sys.argv[1:], registry.plans()
    if unknown := [name for name in names if name not in plans]:
        sys.exit(f"no such plan: {', '.join(unknown)}")
    for name, plan in plans.items():
        if not names or name in names:
            exercise(plan, gpu_layout_bits, examples=0)
            print(f"{name}: ran", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
