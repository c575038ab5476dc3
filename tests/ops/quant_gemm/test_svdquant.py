"""svdquant_linear beside float64 sums of the numbers that codes of inputs and weights mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind

RNG = np.random.default_rng(11)


def layer(rows: tuple[int, ...], k: int, n: int, rank: int, element: str) -> dict[str, Any]:
    def made(*shape: int) -> Any:
        return RNG.standard_normal(shape).astype(ElementKind.of(element).dtype)

    smooth = np.exp(0.5 * RNG.standard_normal(k)).astype(np.float32)
    return {
        "x": made(*rows, k), "proj_down": made(k, rank), "proj_up": made(n, rank), "smooth_factor": smooth,
        "bias": made(n),
    }  # fmt: skip


def wanted(given: dict[str, Any], left: Any, w: Any) -> Any:
    """Of what x and W decode to, in float64."""
    x = given["x"].astype(np.float64).reshape(-1, given["x"].shape[-1])
    y = left @ w.T + given["bias"].astype(np.float64)
    y += x @ given["proj_down"].astype(np.float64) @ given["proj_up"].astype(np.float64).T
    return y.reshape(*given["x"].shape[:-1], -1)


def near(y: Any, want: Any, element: str) -> None:
    step = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[element]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=0, atol=step * (1 + np.abs(want).max()))


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "k", "n", "rank", "group"), [((5,), 128, 9, 4, 64), ((2, 3), 192, 16, 3, 32), ((), 128, 7, 1, 128)]
)
def test_int4(element: str, rows: tuple[int, ...], k: int, n: int, rank: int, group: int) -> None:
    given = layer(rows, k, n, rank, element)
    codes, scales = bc.block_quantize(RNG.standard_normal((n, k), dtype=np.float32), kind="int4", group=group)
    y = bc.svdquant_linear(codes=codes, scales=scales, **given)
    even = given["x"].reshape(-1, k).astype(np.float32) / given["smooth_factor"]
    left, by = bc.dynamic_quantize(even, scope="group", group_size=group, to_element="int4")
    numbers = [bc.cast(c, "int8", element="int4").astype(np.float64) for c in (left, codes)]
    assert np.abs(numbers[0]).max() <= 8 and np.abs(numbers[0] * np.repeat(by, group, 1) - even).max() < by.max()
    left, w = (c * np.repeat(s.astype(np.float64), group, 1) for c, s in zip(numbers, (by, scales), strict=True))
    near(y, wanted(given, left, w), element)
    plain = bc.cast(codes, "int8", element="int4")
    assert np.array_equal(bc.svdquant_linear(codes=plain, scales=scales, **given), y)


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16"])
def test_nvfp4(element: str) -> None:
    given = layer((2, 3), 96, 10, 4, element)
    codes, scales = bc.block_quantize(RNG.standard_normal((10, 96), dtype=np.float32), kind="nvfp4")
    y = bc.svdquant_linear(codes=codes, scales=scales, kind="nvfp4", **given)
    even = given["x"].reshape(-1, 96).astype(np.float32) / given["smooth_factor"]
    stored = (bc.block_quantize(even, kind="nvfp4"), (codes, scales))
    left, w = (bc.block_dequantize(*one, kind="nvfp4", element="float32").astype(np.float64) for one in stored)
    near(y, wanted(given, left, w), element)


def test_parts_may_be_absent() -> None:
    x = RNG.standard_normal((4, 64), dtype=np.float32)
    codes, scales = bc.block_quantize(RNG.standard_normal((5, 64), dtype=np.float32), kind="int4", group=64)
    left, by = bc.dynamic_quantize(x, scope="group", group_size=64, to_element="int4")
    numbers = [bc.cast(c, "int8", element="int4").astype(np.float64) for c in (left, codes)]
    y = np.zeros((4, 5), np.float32)
    assert bc.svdquant_linear(x, codes, scales, out=y) is y
    near(y, (numbers[0] * by) @ (numbers[1] * scales).T, "float32")
    assert bc.svdquant_linear(x[:0], codes, scales).shape == (0, 5)


@pytest.mark.parametrize("kind", ["int4", "nvfp4"])
def test_gradients_are_refused(kind: str) -> None:
    torch = pytest.importorskip("torch")
    stored = bc.block_quantize(np.ones((5, 64), np.float32), kind=kind, group={"int4": 64}.get(kind))
    codes, scales = (torch.from_numpy(part) for part in stored)
    with pytest.raises(bc.UnsupportedError, match="gradient"):
        bc.svdquant_linear(torch.ones(4, 64, requires_grad=True), codes, scales, kind=kind)


def test_errors() -> None:
    x = np.zeros((4, 64), np.float32)
    codes, scales = bc.block_quantize(np.ones((5, 64), np.float32), kind="int4", group=64)
    for given, facts, match in (
        ((x, codes[:, :8], scales), {}, r"x must be \[\*, in\]"),
        ((x, codes, scales[:3]), {}, "scales must be"),
        ((x, codes, scales, np.ones((64, 2), np.float32)), {}, "both be given"),
        ((x, codes, scales, np.ones((63, 2), np.float32), np.ones((5, 2), np.float32)), {}, "proj_down must be"),
        ((x, codes, scales), {"smooth_factor": np.ones(3, np.float32)}, "smooth_factor must have"),
        ((x, codes, scales), {"kind": "nf4"}, "kind must be int4 or nvfp4"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=match):
            bc.svdquant_linear(*given, **facts)
