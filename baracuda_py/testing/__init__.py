"""Test ops, those of the package and your own: random problems, layouts, tolerances and ready-made checks.

`exercise(MyPlan, check)` runs one of `CHECKS` (no GPU needed) on seeded and drawn problems; `GPU_CHECKS` compare with
the reference on a device, `emulated` where there is none. `exercise(f)` runs all of them on a formula of
`bc.elementwise`. `coverage.search(MyPlan)` finds problems that launch every kernel. Drawn problems need hypothesis,
seeded ones nothing.
"""

from .checks import CHECKS
from .draw import Case, Draw, HypothesisDraw, SeededDraw, combinations, fill, make_case
from .emulated import emulate, emulated
from .emulator import emulated_device, emulating
from .formulas import exercise
from .gpu import GPU_CHECKS
from .layouts import KINDS, Laid, Placement, lay_out, place
from .operands import Operands, operands
from .recording import Record, pointer_view, recording
from .reference import evaluate
from .tolerance import assert_within, check, ulp

__all__ = [
    "CHECKS", "GPU_CHECKS", "KINDS", "Case", "Draw", "HypothesisDraw", "Laid", "Operands", "Placement", "Record",
    "SeededDraw", "assert_within", "check", "combinations", "emulate", "emulated", "emulated_device", "emulating",
    "evaluate", "exercise", "fill", "lay_out", "make_case", "operands", "place", "pointer_view", "recording", "ulp",
]  # fmt: skip
