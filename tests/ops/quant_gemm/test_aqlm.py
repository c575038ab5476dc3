"""AQLM's weights beside sums of vectors that are looked up one by one, and layers of them beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from call_emulated import call
from baracuda_py.core.element import ElementKind

RNG = np.random.default_rng(7)


def stored(out_groups: int, in_groups: int, books: int, bits: int, out_group: int, in_group: int, element: str) -> Any:
    """codes as AQLM stores them, of either sign, codebooks and scales."""
    dtype, code = ElementKind.of(element).dtype, np.int8 if bits <= 8 else np.int16
    codes = RNG.integers(0, 1 << bits, (out_groups, in_groups, books))
    codes = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(code)
    tables = RNG.standard_normal((books, 1 << bits, out_group, in_group)).astype(dtype)
    return codes, tables, RNG.standard_normal(out_groups).astype(dtype)


def weights(codes: Any, tables: Any, scales: Any) -> Any:
    """In float64, element by element."""
    groups, along, books = codes.shape
    _, entries, rows, columns = tables.shape
    w = np.zeros((groups * rows, along * columns))
    for i in range(groups):
        for j in range(along):
            vector = sum(tables[m, int(codes[i, j, m]) % entries].astype(np.float64) for m in range(books))
            w[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] = vector * float(scales[i])
    return w


CASES = [(6, 5, 1, 16, 1, 8), (7, 3, 2, 8, 1, 8), (3, 4, 3, 5, 2, 4), (5, 9, 2, 4, 1, 3), (2, 70, 1, 12, 1, 16)]


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_weights_and_layers(element: str, case: tuple[int, ...]) -> None:
    codes, tables, scales = stored(*case, element)
    want = weights(codes, tables, scales)
    step = {"float32": 2.0**-22, "float16": 2.0**-11, "bfloat16": 2.0**-8}[element]
    got = bc.aqlm_dequantize(codes, tables, scales)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=step, atol=step / 4)
    bias = RNG.standard_normal(len(want)).astype(tables.dtype)
    for lead in ((), (1,), (3,), (2, 4), (9,), (3, 5)):
        x = RNG.standard_normal((*lead, want.shape[1])).astype(tables.dtype)
        y = bc.aqlm_linear(x, codes, tables, scales.reshape(-1, 1, 1, 1), bias)
        exact = x.astype(np.float64) @ want.T + bias.astype(np.float64)
        assert y.shape == exact.shape and y.dtype == x.dtype
        size = np.abs(x.astype(np.float64)) @ np.abs(want).T + 4
        assert (np.abs(y.astype(np.float64) - exact) <= 2 * step * size).all()


def test_strided_outputs_and_views() -> None:
    codes, tables, scales = stored(6, 5, 2, 8, 1, 8, "float32")
    x, y = RNG.standard_normal((3, 80)).astype(np.float32)[:, :40], np.zeros((3, 12), np.float32)
    bc.aqlm_linear(x, codes, tables, scales, out=y[:, ::2])
    np.testing.assert_allclose(y[:, ::2], x @ weights(codes, tables, scales).T, rtol=1e-4, atol=1e-4)
    assert not y[:, 1::2].any()


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_unaligned_rows_have_the_same_bits(element: str) -> None:
    codes, tables, scales = stored(5, 40, 2, 8, 1, 8, element)
    room = np.zeros((3, 321), tables.dtype)
    room[:, 1:] = RNG.standard_normal((3, 320))
    desc = bc.AqlmGemvDescriptor(
        m=3, out_groups=5, in_groups=40, books=2, entries=256, out_group=1, in_group=8, element=element
    )
    parts = {"codes": codes, "codebooks": tables, "scales": scales, "bias": None}
    made = [
        call(bc.AqlmGemvPlan, desc, {"y": np.zeros((3, 5), tables.dtype)}, x=x, **parts)["y"]
        for x in (room[:, 1:], np.ascontiguousarray(room[:, 1:]))
    ]
    assert np.array_equal(*made)
    exact = room[:, 1:].astype(np.float64) @ weights(codes, tables, scales).T
    np.testing.assert_allclose(made[0].astype(np.float64), exact, rtol=5e-3, atol=5e-2)


def test_gradient() -> None:
    torch = pytest.importorskip("torch")
    codes, tables, scales = stored(6, 5, 2, 8, 1, 8, "float32")
    dy = RNG.standard_normal((2, 3, 6)).astype(np.float32)
    x = torch.from_numpy(RNG.standard_normal((2, 3, 40)).astype(np.float32)).requires_grad_()
    bc.aqlm_linear(x, *(torch.from_numpy(part) for part in (codes, tables, scales))).backward(torch.from_numpy(dy))
    np.testing.assert_allclose(x.grad.numpy(), dy @ weights(codes, tables, scales), rtol=1e-4, atol=1e-4)


def test_empty() -> None:
    codes, tables, scales = stored(4, 0, 2, 8, 1, 8, "float32")
    assert bc.aqlm_dequantize(codes, tables, scales).shape == (4, 0)
    bias = np.arange(4, dtype=np.float32)
    assert np.array_equal(bc.aqlm_linear(np.zeros((2, 0), np.float32), codes, tables, scales, bias), [bias, bias])


def test_errors() -> None:
    codes, tables, scales = stored(4, 3, 2, 8, 1, 8, "float32")
    x = np.zeros((2, 24), np.float32)
    for given, match in (
        ((x[:, :8], codes, tables), r"x must be \[\*, 24\]"),
        ((x, codes[..., 0], tables), "codes must be"),
        ((x, codes, tables[:1]), "codes must be"),
        ((x, codes, tables[:, :100].copy()), "entries must be a power of two"),
        ((x, codes, tables, scales[:3]), "scales must have shape"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=match):
            bc.aqlm_linear(*given)
    with pytest.raises(bc.InvalidProblemError, match="m must be at most 8"):
        bc.aqlm_gemv(np.zeros((9, 24), np.float32), codes, tables)
