"""Fields of bits on the emulator (PTX bfe), against their definition by integers of Python."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.jit import Unit
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")

TYPES = {"u32": ("r", "unsigned"), "s32": ("r", "int"), "u64": ("l", "unsigned long long"), "s64": ("l", "long long")}
CODE = """
struct P {{ const {c}* x; const unsigned* at; const unsigned* count; {c}* y; int n; }};
extern "C" __global__ void fields(const __grid_constant__ P p) {{
  for (int i = 0; i < p.n; ++i) {{
    asm("bfe.{ptx} %0, %1, %2, %3;" : "={letter}"(p.y[i]) : "{letter}"(p.x[i]), "r"(p.at[i]), "r"(p.count[i]));
  }}
}}
"""


def field(x: int, at: int, count: int, bits: int, signed: bool) -> int:
    """`count` bits of x from place `at` on, of which those beyond the last are the sign's, or 0."""
    top = x >> min(at + count - 1, bits - 1) & 1 if signed and count else 0
    found = sum((x >> at + n & 1 if n < count and at + n < bits else top) << n for n in range(bits))
    return found - (1 << bits) if signed and found >> bits - 1 else found


@pytest.mark.parametrize("ptx", TYPES)
def test_fields_of_bits(ptx: str) -> None:
    letter, name = TYPES[ptx]
    bits, dtype = int(ptx[1:]), np.dtype(f"{'i' if ptx[0] == 's' else 'u'}{int(ptx[1:]) // 8}")
    rng = np.random.default_rng(0)
    places = np.array([0, 1, 7, 8, 31, 32, 33, 63, 64, 255], np.uint32)
    at, count = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(places, places))
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, at.size, dtype, endpoint=True)
    y = np.zeros_like(x)
    params = np.array([*(a.ctypes.data for a in (x, at, count, y)), x.size], np.uint64).tobytes()
    unit = Unit(f"emulator_fields_{ptx}", CODE.format(c=name, ptx=ptx, letter=letter), symbols=("fields",))
    run_kernel(translated(unit, "sm_80", "fields"), "fields", (1, 1, 1), (1, 1, 1), 0, params, 1)
    wanted = [field(int(a), int(b), int(c), bits, ptx[0] == "s") for a, b, c in zip(x, at, count, strict=True)]
    assert y.tolist() == wanted
