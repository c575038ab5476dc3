"""Encoders of GGML's super-blocks: searches number by number, errors, special blocks, and every format at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.quantize import gguf_searches
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.ops.quantize.gguf_encoders import BLOCK_ENCODERS
from baracuda_py.ops.quantize.gguf_formats import IQ4_VALUES

F = np.float32
# Of standard normal numbers the error over their norm, a little above what the searches come to.
ERRORS = {"q2_k": 0.31, "q3_k": 0.16, "q4_k": 0.075, "q5_k": 0.038, "q6_k": 0.0185, "iq4_xs": 0.08}
SUPER = (*ERRORS, "tq1_0", "tq2_0")


def normal(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k), dtype=F)


def there_and_back(x: Any, kind: str) -> np.ndarray:
    return bc.block_dequantize(bc.block_quantize(x, kind=kind), kind=kind, element="float32")


def within(y: Any, low: int, high: int) -> Any:
    return F(min(max(np.rint(y), low), high))


def line(x: list[Any], weights: list[Any], top: int, first: float, steps: int, sizes: bool) -> tuple[Any, Any]:
    """make_qkx2_quants of ggml-quants.c, a number after the other."""
    low, high = min(F(0), *x), max(x)
    sum_w = sum_x = F(0)
    for v, w in zip(x, weights, strict=True):
        sum_w, sum_x = sum_w + w, sum_x + w * v

    def error(codes: list[Any], scale: Any, least: Any) -> Any:
        total = F(0)
        for v, w, code in zip(x, weights, codes, strict=True):
            off = scale * code + least - v
            total = total + w * (abs(off) if sizes else off * off)
        return total

    def codes(by: Any) -> list[Any]:
        return [within(by * (v - low), 0, top) for v in x]

    by = F(top) / (high - low)
    scale = F(1) / by
    best = error(codes(by), scale, low)
    for step in range(steps):
        made = codes((F(first) + F(0.1) * F(step) + F(top)) / (high - low))
        sum_l = sum_l2 = sum_xl = F(0)
        for v, w, code in zip(x, weights, made, strict=True):
            sum_l, sum_l2, sum_xl = sum_l + w * code, sum_l2 + w * code * code, sum_xl + w * code * v
        det = sum_w * sum_l2 - sum_l * sum_l
        if det > 0:
            own, least = (sum_w * sum_xl - sum_x * sum_l) / det, (sum_l2 * sum_x - sum_l * sum_xl) / det
            if least > 0:
                own, least = sum_xl / sum_l2, F(0)
            off = error(made, own, least)
            if off < best:
                best, scale, low = off, own, least
    return scale, low


@pytest.mark.parametrize(("size", "top", "first", "steps", "sizes"), [(16, 3, -0.5, 16, True), (32, 15, -1, 21, False)])
def test_lines_number_by_number(size: int, top: int, first: float, steps: int, sizes: bool) -> None:
    x = normal(24, size) * np.exp2(np.arange(24, dtype=F) - 12)[:, None]
    x[::5] += 3 * np.abs(x[::5]).max(-1, keepdims=True)  # all above 0
    weights = np.abs(x) + F(0.25)
    with np.errstate(all="ignore"):
        scale, least = gguf_searches._line(x, weights, top, first, steps, sizes=sizes)
    want = [line(list(a), list(w), top, first, steps, sizes) for a, w in zip(x, weights, strict=True)]
    np.testing.assert_array_equal(np.concatenate([scale, least], -1), np.array(want, F))


def test_scales_number_by_number() -> None:
    """make_qx_quants, and what IQ4_XS does alike."""
    x = normal(24, 32) * F(3)
    far = [row[np.abs(row).argmax()] for row in x]
    six = [F(-32), *(-(F(32) + F(0.1) * F(i)) for i in range(-9, 10) if i)]
    table = [F(-127), *(F(i - 127) for i in range(-7, 8))]
    levels = {
        "six": (six, lambda y: within(y, -32, 31)),
        "table": (table, lambda y: IQ4_VALUES[15 - np.abs(IQ4_VALUES[::-1] - y).argmin()]),
    }
    rounded = {
        "six": lambda y: gguf_searches._nearest(y, -32, 31),
        "table": lambda y: IQ4_VALUES[gguf_searches._iq4_code(y)],
    }
    for name, (tries, level) in levels.items():
        want = []
        for row, most in zip(x, far, strict=True):
            scale = best = None
            for one in tries:
                sum_x = sum_q = F(0)
                for v in row:
                    q = level(one / most * v)
                    sum_x, sum_q = sum_x + v * v * v * q, sum_q + v * v * q * q
                if scale is None or sum_x * sum_x > best * sum_q:
                    scale, best = sum_x / sum_q, sum_x / sum_q * sum_x
            want.append(scale)
            got = gguf_searches._scale(x, rounded[name], tries[0], tries[1:])
        np.testing.assert_array_equal(got[:, 0], np.array(want, F))


def test_turns_number_by_number() -> None:
    """make_q3_quants."""
    x, want = normal(24, 16, 5), []
    for row in x:
        by = F(-4) / row[np.abs(row).argmax()]
        codes = [within(by * v, -4, 3) for v in row]
        sum_x = sum_q = F(0)
        for v, code in zip(row, codes, strict=True):
            sum_x, sum_q = sum_x + v * v * v * code, sum_q + v * v * code * code
        for _ in range(5):
            before = list(codes)
            for i, v in enumerate(row):
                w = v * v
                rest_x, rest_q = sum_x - w * v * codes[i], sum_q - w * codes[i] * codes[i]
                if rest_x > 0 and (new := within(v * rest_q / rest_x, -4, 3)) != codes[i]:
                    next_x, next_q = rest_x + w * v * new, rest_q + w * new * new
                    if next_q > 0 and next_x * next_x * sum_q > sum_x * sum_x * next_q:
                        codes[i], sum_x, sum_q = new, next_x, next_q
            if codes == before:
                break
        want.append(sum_x / sum_q)
    np.testing.assert_array_equal(gguf_searches._scale_by_turns(x)[:, 0], np.array(want, F))


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_are_those_of_a_search(kind: str) -> None:
    """Of normal numbers, of groups of all sizes within a few powers of two, and of numbers of one sign."""
    x = normal(32, 1024)
    uneven = x * np.exp2(np.random.default_rng(1).integers(-2, 3, (32, 32)).repeat(32, -1)).astype(F)
    for one, more in ((x, 1), (uneven, 1.5), (np.abs(x), 1.3)):
        assert np.linalg.norm(there_and_back(one, kind) - one) < more * ERRORS[kind] * np.linalg.norm(one)


@pytest.mark.parametrize(
    ("kind", "plain"), [("q4_k", "q4_1"), ("q5_k", "q5_1"), ("iq4_xs", "iq4_nl"), ("q4_k", "q4_0")]
)
def test_a_search_is_no_worse_than_rounding(kind: str, plain: str) -> None:
    x = normal(32, 1024, 2)
    assert np.linalg.norm(there_and_back(x, kind) - x) < 1.02 * np.linalg.norm(there_and_back(x, plain) - x)


@pytest.mark.parametrize("kind", ["tq1_0", "tq2_0"])
def test_ternary_blocks_are_those_of_gguf(kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    for x in (normal(9, 768), np.sign(normal(3, 256)) * F(0.75), np.rint(normal(4, 512) * 2) / 2):
        assert np.array_equal(
            bc.block_quantize(x, kind=kind), gguf.quantize(x, gguf.GGMLQuantizationType[kind.upper()])
        )


@pytest.mark.parametrize("kind", SUPER)
def test_special_blocks(kind: str) -> None:
    zero = np.zeros((1, 256), F)
    assert not there_and_back(zero, kind).any() and not there_and_back(-zero, kind).any()
    one = zero.copy()
    one[0, 77] = -1024.0
    back = there_and_back(one, kind)
    # Its neighbours have the group's least value as the search found it, or what is next to 0 in a table without 0.
    assert abs(back[0, 77] + 1024) < 4 and np.abs(np.delete(back[0], 77)).max() < 8.2
    assert not np.delete(back[0], np.arange(64, 96)).any() or kind == "iq4_xs"
    holes = normal(1, 256)
    holes[0, 5:40] = np.nan
    assert np.array_equal(
        bc.block_quantize(holes, kind=kind), bc.block_quantize(np.where(holes != holes, 0, holes), kind=kind)
    )
    constant = np.full((1, 256), 1.5, F)
    assert np.abs(there_and_back(constant, kind) - 1.5).max() < 0.02
    huge = np.full((2, 256), np.inf, F)
    huge[1] = np.finfo(F).max * np.sign(normal(1, 256)[0])
    assert bc.block_quantize(huge, kind=kind).shape == (2, FormatKind(kind).row.bytes(256))
    for shape in ((0, 256), (3, 0)):
        assert there_and_back(np.zeros(shape, F), kind).shape == shape


@pytest.mark.parametrize("kind", ["q4_k", "q6_k", "tq1_0", "tq2_0"])
def test_what_is_held_exactly_comes_back(kind: str) -> None:
    """Numbers that blocks hold: all codes in every group, whose scales are whole multiples of a power of two.

    Not q2_k: zeros have no weight in GGML's search there, which may take a line that misses them.
    """
    rng = np.random.default_rng(4)
    if kind[0] == "t":
        x = rng.integers(-1, 2, (3, 256)) * 0.5
    else:
        top, levels, group = {"q4_k": (15, 63, 32), "q6_k": (31, 127, 16)}[kind]
        groups = 256 // group
        low = -32 if kind == "q6_k" else 0
        codes = rng.integers(low, top + 1, (3, groups, group))
        codes[..., :2] = low, top
        scales = rng.integers(levels // 2, levels + 1, (3, groups, 1))
        scales[:, 0] = -128 if kind == "q6_k" else levels
        x = (codes * scales / 64).reshape(3, 256)
    assert np.array_equal(there_and_back(x.astype(F), kind), x.astype(F))


@pytest.mark.parametrize("kind", ["iq2_xs", "iq1_m", "gguf_mxfp4"])
def test_kinds_without_an_encoder_are_refused(kind: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"kind must be one of .*; got {kind}"):
        bc.block_quantize(np.zeros((1, 256), F), kind=kind)


BLOCKS = [kind for kind in FormatKind if not kind.row.scales]


@pytest.mark.parametrize("seed", range(10))
def test_options_at_random(seed: int) -> None:
    """Quantise, unpack and multiply in a format, shape, layout and element at random."""
    rng = np.random.default_rng(seed)
    kind = FormatKind(rng.choice([one.value for one in BLOCK_ENCODERS]))
    unit, batch = kind.row.multiple, tuple(rng.integers(1, 4, rng.integers(0, 3)))
    n, k, m = int(rng.integers(1, 9)), unit * int(rng.integers(1, 4)), int(rng.integers(1, 5))
    element = str(rng.choice(["float32", "float16"]))
    room = rng.standard_normal((*batch, n, k + 8 * int(rng.integers(0, 2)))).astype(element)
    x = room[..., :k]  # rows apart
    codes = bc.block_quantize(x, kind=kind)
    assert codes.tobytes() == bc.block_quantize(x.astype(F), kind=kind.value).tobytes()
    out = np.empty(x.shape, element)
    assert bc.block_dequantize(codes, kind=kind, element=element, out=out) is out
    w = bc.block_dequantize(codes, kind=kind, element="float32")
    assert np.array_equal(out, w.astype(element)) and w.shape == x.shape
    if kind not in (FormatKind.Q8_1, FormatKind.Q8_K):
        gguf = pytest.importorskip("gguf")
        assert np.array_equal(w, gguf.dequantize(codes, gguf.GGMLQuantizationType[kind.value.upper()]))
    a = rng.standard_normal((m, k)).astype(element)
    rows = codes.reshape(-1, n, codes.shape[-1])[0]
    y = bc.block_gemm(rows, a, kind=kind)
    want = a.astype(np.float64) @ w.reshape(-1, n, k)[0].astype(element).astype(np.float64).T
    np.testing.assert_allclose(y, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("seed", range(10))
def test_bytes_at_random_in_products(seed: int) -> None:
    """Formats without an encoder, too, by bytes of small scales; experts and batches."""
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(100 + seed)
    known = [one for one in BLOCKS if one not in (FormatKind.Q8_1, FormatKind.Q8_K)]
    kind = known[int(rng.integers(len(known)))] if seed else FormatKind.IQ1_M
    k, n = kind.row.multiple * int(rng.integers(1, 3)), int(rng.integers(1, 20))
    codes = rng.integers(0, 256, (n, kind.row.bytes(k)), dtype=np.uint8) & 0x2F
    if kind is FormatKind.GGUF_MXFP4:
        codes[:, ::17] = 120
    w = gguf.dequantize(codes, gguf.GGMLQuantizationType[kind.value.removeprefix("gguf_").upper()])
    x = rng.standard_normal((int(rng.integers(1, 7)), k), dtype=F)
    y = bc.quantized_matmul(x, codes, kind=kind)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-3, atol=1e-3 * np.abs(x @ w.T).max() + 1e-12)
