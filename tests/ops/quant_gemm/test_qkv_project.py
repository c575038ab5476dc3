"""qkv_project and KAIO's two: unequal widths, leading axes, every way to say a matrix, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from tests.ops.quant_gemm.test_block_gemm import words

WIDTHS = (6, 3, 13)  # 2 mod 4, odd
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 2, 256)).astype(np.float16)


def test_int4_in_kaios_packing_with_odd_widths_and_two_groups() -> None:
    qs = [RNG.integers(-8, 8, (256, n)) for n in WIDTHS]
    scales = [RNG.uniform(0.01, 0.1, (2, n)).astype(np.float16) for n in WIDTHS]
    bias = [None, np.ones(3, np.float16), None]
    made = bc.qkv_project_int4(X, *map(words, qs), *scales, bias=bias)
    for got, q, scale, more in zip(made, qs, scales, bias, strict=True):
        w = (q.astype(np.float16) * np.repeat(scale, 128, axis=0)).astype(np.float64)
        want = X.astype(np.float64) @ w + (0 if more is None else more)
        assert got.dtype == np.float16 and got.shape == want.shape
        assert np.allclose(got, want, rtol=2.0**-10, atol=1e-5)


def test_int8_with_a_scale_of_each_matrix_and_of_columns() -> None:
    ws = [RNG.integers(-128, 128, (256, n), dtype=np.int8) for n in WIDTHS]
    factors = (0.5, np.array(0.01, np.float32), 2.0**-7)
    columns = [None, None, RNG.uniform(0.1, 1, WIDTHS[2]).astype(np.float32)]
    out = [np.empty((2, 2, n), np.float16) for n in WIDTHS]
    made = bc.qkv_project_int8(X, *ws, *factors, scales=columns, out=out)
    for got, to, w, scale, more in zip(made, out, ws, factors, columns, strict=True):
        want = X.astype(np.float64) @ w.astype(np.float64) * np.float32(scale) * (1 if more is None else more)
        assert got is to and np.allclose(got, want, rtol=2.0**-10, atol=1e-5)


def test_each_slot_has_its_own_weights() -> None:
    """Constant weights 1, 2 and 3 on ones: K, 2 K and 3 K exactly."""
    x, ws = np.ones((3, 48), np.float16), [np.full((48, 6), v, np.int8) for v in (1, 2, 3)]
    assert [set(y.ravel().tolist()) for y in bc.qkv_project_int8(x, *ws)] == [{48.0}, {96.0}, {144.0}]


@pytest.mark.parametrize("kind", ["nf4", "uint4", "q3_k"])
def test_any_format_gives_what_three_products_give(kind: str) -> None:
    """A format without a fused kernel goes through three products."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((3, 256)).astype(np.float32)
    weights: list[Any] = []
    for n in WIDTHS:
        if kind == "q3_k":
            codes = rng.integers(0, 256, (n, 110), dtype=np.uint8)
            codes[:, 108:] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
            weights.append((codes,))
        else:
            weights.append(bc.block_quantize(rng.standard_normal((n, 256)).astype(np.float32), kind=kind, group=64))
    bias = (None, np.arange(3, dtype=np.float32), None)
    made = bc.qkv_project(x, *weights, kind=kind, bias=bias)
    named = [dict(zip(("codes", "scales", "zeros"), w, strict=False)) for w in weights]
    again = bc.qkv_project(x, *named, kind=kind, bias=bias)
    for got, same, w, more in zip(made, again, named, bias, strict=True):
        want = bc.quantized_matmul(x, **w, kind=kind, bias=more)
        assert np.array_equal(got, want) and np.array_equal(same, want)


def test_a_scale_of_its_own_comes_in_a_dict() -> None:
    w = bc.block_quantize(np.eye(32, dtype=np.float32), kind="int8")
    parts = {"codes": w[0], "scales": w[1]}
    q, k, v = bc.qkv_project(np.ones((1, 32), np.float32), {**parts, "scale": 2.0}, w, parts, kind="int8")
    assert np.array_equal(q, 2 * k) and np.array_equal(k, v)


CODES = np.zeros((4, 16), np.uint8)
GOOD: dict[str, Any] = {"x": np.zeros((2, 32), np.float32), "kind": "int4"} | {
    f"w_{part}": (CODES, np.ones((4, 1), np.float32)) for part in "qkv"
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w_k": (np.zeros((4, 15), np.uint8), np.ones((4, 1), np.float32))}, r"codes_k .*\(4, 16\).*\(4, 15\)"),
        ({"w_v": (CODES, np.ones((4, 3), np.float32))}, r"scales_v .*\(4, 1\).*\(4, 3\)"),
        ({"w_q": (np.zeros(16, np.uint8),)}, r"rows of bytes .*\(16,\)"),
        ({"w_q": {"code": CODES}}, "w_q must have codes"),
        ({"w_q": (CODES,) * 5}, "got 5 arrays"),
        ({"bias": (np.zeros(4, np.float32),)}, "three arrays"),
        ({"bias": (np.zeros(5, np.float32), None, None)}, r"bias_q .*\(4,\).*\(5,\)"),
        ({"out": np.zeros((2, 4), np.float32)}, "3 arrays"),
        ({"kind": "int5"}, "kind must be one of"),
        ({"x": np.zeros((2, 31), np.float32)}, "31"),
    ],
)
def test_what_qkv_project_refuses(given: dict[str, Any], message: str) -> None:
    assert len(bc.qkv_project(**GOOD)) == 3
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=message):
        bc.qkv_project(**GOOD | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w_v": np.zeros((33, 3), np.int8)}, r"w_v .*\(32, 3\).*\(33, 3\)"),
        ({"w_q": np.zeros((32, 3), np.uint8)}, "w_q in int8, got uint8"),
        ({"x": np.zeros((2, 32), np.float32)}, "x in float16, got float32"),
        ({"w_k": np.zeros(32, np.int8)}, r"w_k must be a matrix .*\(32,\)"),
        ({"scales": [np.ones(4, np.float32), None, None]}, r"scales_q .*\(3,\).*\(4,\)"),
    ],
)
def test_what_qkv_project_int8_refuses(given: dict[str, Any], message: str) -> None:
    good = {"x": np.zeros((2, 32), np.float16)} | {f"w_{part}": np.zeros((32, 3), np.int8) for part in "qkv"}
    assert len(bc.qkv_project_int8(**good)) == 3
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=message):
        bc.qkv_project_int8(**good | given)


def test_int4_matrices_share_their_groups() -> None:
    packed, scales = np.zeros((3, 4), np.int32), [np.ones((groups, 3), np.float16) for groups in (2, 1, 2)]
    with pytest.raises(bc.InvalidProblemError, match=r"same groups, got \[2, 1, 2\]"):
        bc.qkv_project_int4(np.zeros((2, 32), np.float16), packed, packed, packed, *scales)
