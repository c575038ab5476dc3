"""Casts between every two elements on the emulator: each source in one kernel, a row of results for each destination.

16-bit and narrower sources have all their codes; wider ones the neighbourhoods of every midpoint of the small floats,
of the ends of every range and of powers of two. The truth is `core.element.cast`, which rational arithmetic checks.
"""

from __future__ import annotations

import numpy as np
import pytest
from call_emulated import call

from baracuda_py import CastPlan
from baracuda_py.core.element import ElementKind, cast, decode, encode
from baracuda_py.jit import Unit
from baracuda_py.ops.elementwise.cast import CODES, PACKED, carrier_shape
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = [
    pytest.mark.usefixtures("emulation"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # among all codes are signaling NaNs
]
K = ElementKind
THREADS = 256
SMALL = (K.FP4E2M1, K.FP8E4M3, K.FP8E5M2)

CODE = """
#include <baracuda/types.cuh>
namespace baracuda {{
struct CastParams {{ void *y, *x; i64 step, columns; i32 to, saturate; }};
}}
#include "elementwise/cast.cu"
using namespace baracuda;
struct P {{ u8* y; const stored_t<{source}>* x; i64 n; i32 saturate; i32 none; }};
extern "C" __global__ void all(const __grid_constant__ P p) {{
  const i64 i = 2 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (i >= p.n) return;
  Vec<stored_t<{source}>, 2> x;
  x[0] = p.x[i], x[1] = p.x[i + 1];
{lines}
}}
"""
LINE = """  {{
    const Vec<stored_t<{to}>, 2> y = convert_all<{source}, {to}>(x, p.saturate);
    stored_t<{to}>* const to = reinterpret_cast<stored_t<{to}>*>(p.y + {row} * p.n);
    to[i] = y[0], to[i + 1] = y[1];
  }}"""


def numbers(source: K) -> np.ndarray:
    """Stored values: all codes of at most 16 bits, one 4-bit element in a byte; else around everything that matters."""
    if source in PACKED:
        return np.arange(16, dtype=np.uint8)
    if source is K.BOOL:
        return np.array([False, True])
    if source.bits <= 16:
        return np.arange(2**source.bits, dtype=f"u{source.itemsize}").view(source.carrier)
    rng = np.random.default_rng(source.bits)
    powers = 2.0 ** np.arange(-1100, 1024)
    named = [0.0, *powers, *(1.5 * powers[:-1]), *(float(k.limits.max) for k in K if not k.is_complex)]
    for kind in (*SMALL, K.F16, K.BF16):
        bits = 16 if kind.itemsize == 2 else 8
        codes = np.arange(0, 2 ** (min(bits, kind.bits) - 1), 37 if bits == 16 else 1, dtype=f"u{bits // 8}")
        values = codes.view(kind.dtype).astype(np.float64)
        named += [*values, *((values[1:] + values[:-1]) / 2)]
    points = np.array([x for x in named if np.isfinite(x)])
    if source.is_float:
        held = np.unique(points.astype(source.dtype))
        held = held[np.isfinite(held)]
        around = [held, np.nextafter(held, np.inf), np.nextafter(held, -np.inf)]
        bits = rng.integers(0, 2**64, 2000, np.uint64).astype(f"u{source.itemsize}").view(source.dtype)
        one = np.concatenate([*around, bits, np.array([np.inf, np.nan], source.dtype)])
        return np.concatenate([one, -one])
    low, high = int(source.limits.min), int(source.limits.max)
    near = {s * int(x) + d for x in points if x < 2.0**65 for d in (-2, -1, 0, 1, 2) for s in (1, -1)}
    mids = {(2 * m + 1) << k for m in range(128, 256) for k in range(56)}  # midpoints of bfloat16, and neighbours
    mids |= {(2 * m + 1) << k for m in range(1024, 2048, 61) for k in range(52)}
    near |= {s * x + d for x in mids for d in (-1, 0, 1) for s in (1, -1)} | {low, high, low + 1, high - 1}
    return np.array(sorted(x for x in near if low <= x <= high), source.dtype)


def stored(values: np.ndarray, kind: K) -> np.ndarray:
    """The bits of an element, 4-bit ones in a byte each; the wanted NaN is any."""
    return values.view(np.uint8) & 15 if kind in PACKED else values.view(f"u{kind.itemsize}")


def is_nan(bits: np.ndarray, kind: K) -> np.ndarray:
    if not kind.is_float or kind in PACKED:
        return np.zeros(bits.shape, bool)
    values = bits.view(kind.dtype)
    return np.asarray(values != values)


@pytest.mark.parametrize("source", CODES, ids=str)
def test_every_destination(source):
    x = numbers(source)
    lines, row = [], 0
    for code, kind in enumerate(CODES):
        lines.append(LINE.format(source=CODES.index(source), to=code, row=row))
        row += kind.itemsize
    unit = Unit(f"cast_{source}", CODE.format(source=CODES.index(source), lines="\n".join(lines)), symbols=("all",))
    library = translated(unit, "sm_90", "all")
    n = -(-x.size // 16) * 16  # rows stay aligned
    given = np.concatenate([x, np.repeat(x[:1], n - x.size)])
    values = decode(encode(x.view(source.dtype), source), source)[: x.size] if source in PACKED else x
    values = values if source in PACKED or source.carrier == source.dtype else x.view(source.dtype)
    for saturate in (False, True):
        y = np.zeros(row * n, np.uint8)
        params = np.array([y.ctypes.data, given.ctypes.data, n, int(saturate)], np.uint64).tobytes()
        run_kernel(library, "all", (-(-n // (2 * THREADS)), 1, 1), (THREADS, 1, 1), 0, params, 1)
        at = 0
        for kind in CODES:
            got = y[at : at + n * kind.itemsize].view(f"u{kind.itemsize}")[: x.size]
            at += n * kind.itemsize
            wanted = stored(cast(values, kind, saturate), kind)
            wrong = (got != wanted) & ~(is_nan(got, kind) & is_nan(wanted, kind))
            first = int(np.argmax(wrong))
            assert not wrong.any(), (
                f"{kind} saturate={saturate}: {wrong.sum()}, {x[first]}: {got[first]} {wanted[first]}"
            )


def run(source: K, goal: K, shape: tuple[int, ...], x: np.ndarray, y: np.ndarray, saturate: bool = False) -> np.ndarray:
    desc = CastPlan.descriptor(shape=shape, element=source, to_element=goal, saturate=saturate)
    return call(CastPlan, desc, {"y": y}, x=x)["y"]


PAIRS = [
    (K.F32, K.FP4E2M1), (K.FP4E2M1, K.BF16), (K.I8, K.S4), (K.U4, K.F64), (K.F64, K.U4), (K.S4, K.U4), (K.S4, K.I8),
]  # fmt: skip


@pytest.mark.parametrize(("source", "goal"), PAIRS, ids=lambda k: str(k))
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 18), (3, 3000), (5, 2, 66), (7,), (2, 1), (4, 0), (0, 6)], ids=str)
def test_packed_rows(source, goal, shape):
    rng = np.random.default_rng(len(shape) + shape[-1])
    held = carrier_shape(shape, source)
    x = rng.integers(0, 256, held, np.uint8) if source in PACKED else cast(4 * rng.standard_normal(shape), source)
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    wide[...] = x
    turned = np.array(x.T, order="C").T
    values = decode(x, source)[..., : shape[-1]] if source in PACKED else x
    wanted = encode(cast(values, goal), goal)
    for given in (x, wide, turned, *([x[::-1]] if x.ndim > 1 else [])):
        made = np.full(carrier_shape(shape, goal), 255 if goal in PACKED else 7, goal.carrier)
        right = wanted[::-1] if given.base is x else wanted
        np.testing.assert_array_equal(run(source, goal, shape, given, made), right)
        gaps = np.full((*made.shape[:-1], made.shape[-1] * 3), 77, made.dtype)
        run(source, goal, shape, given, gaps[..., ::3])
        np.testing.assert_array_equal(gaps[..., ::3], right)
        assert (gaps[..., 1::3] == 77).all() and (gaps[..., 2::3] == 77).all()


@pytest.mark.parametrize(("source", "goal"), [(K.F32, K.FP8E4M3), (K.FP8E5M2, K.F64), (K.I64, K.I8), (K.U8, K.F16)])
def test_rows_of_whole_bytes(source, goal):
    rng = np.random.default_rng(5)
    for shape in ((1000,), (33, 16), (7, 1029), (4, 5, 6)):
        values = cast(50 * rng.standard_normal(shape), source)
        x = encode(values, source)
        wanted = encode(cast(values, goal), goal)
        for given, right in ((x, wanted), (x[::-1], wanted[::-1]), (np.array(x.T, order="C").T, wanted)):
            for made in (np.zeros(shape, goal.carrier), np.zeros((*shape[:-1], 2 * shape[-1]), goal.carrier)[..., ::2]):
                np.testing.assert_array_equal(run(source, goal, shape, given, made), right)
