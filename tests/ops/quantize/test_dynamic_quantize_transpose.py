"""Codes of a matrix and of its transpose: those of `dynamic_quantize` of both, kernels on the emulator, odd numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.element import decode

P = bc.DynamicQuantizeTransposePlan
BLOCKS = {"tensor": (0, 0), "rows": (1, 0), "groups": (1, 128), "blocks": (128, 128)}
E4, E5 = "float8_e4m3fn", "float8_e5m2"
RNG = np.random.default_rng(3)


def drawn(rows: int, cols: int, element: str) -> Any:
    dtype = bc.ElementKind.of(element).dtype
    x = (RNG.standard_normal((rows, cols)) * np.exp(RNG.standard_normal((rows, 1)))).astype(dtype)
    x[1] = 0
    return x


def dense(desc: Any) -> dict[str, Any]:
    """Outputs that hold nothing yet."""
    shapes = {"y": (desc.rows, desc.cols), "yt": (desc.cols, desc.rows)}
    made: dict[str, Any] = {name: np.full(shape, 0xEE, np.uint8) for name, shape in shapes.items()}
    scales = {"scales": desc.scales_shape, "scales_t": desc.scales_t_shape}
    return made | {name: np.full(shape, -1, np.float32) for name, shape in scales.items()}


def same(desc: Any, got: dict[str, Any], x: Any) -> None:
    wanted = P.reference(desc, x=x, wanted={*got})
    for name, one in got.items():
        assert one.shape == wanted[name].shape
        if one.dtype == np.uint8:
            numbers = [decode(np.asarray(a).view(np.uint8), desc.to_element) for a in (one, wanted[name])]
            np.testing.assert_array_equal(*[np.asarray(a, np.float32) for a in numbers])
            real = ~np.isnan(numbers[1].astype(np.float32))
            np.testing.assert_array_equal(*[np.signbit(a.astype(np.float32))[real] for a in numbers])
        else:
            np.testing.assert_array_equal(one, wanted[name])


@pytest.mark.parametrize("scope", BLOCKS)
@pytest.mark.parametrize("shape", [(5, 300), (130, 7), (1, 1)])
def test_it_is_dynamic_quantize_of_both(scope: str, shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape).astype(np.float16)
    made = bc.dynamic_quantize_transpose(x, scope="tensor", scope_t=scope, to_element="float8_e5m2")
    for one, block, got in ((x, "tensor", made[:2]), (np.ascontiguousarray(x.T), scope, made[2:])):
        wanted = bc.dynamic_quantize(one, block_shape=BLOCKS[block], to_element="float8_e5m2")
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


def test_one_direction_alone() -> None:
    x = drawn(6, 9, "float16")
    both = bc.dynamic_quantize_transpose(x, scope="rows", scope_t="rows")
    alone = bc.dynamic_quantize_transpose(x, scope_t="rows", return_y=False, return_scales=False)
    for a, b in zip(alone, both[2:], strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("shape", "scopes", "element", "to"),
    [((144, 136), ("tensor", "tensor"), "bfloat16", E4), ((144, 264), ("rows", "rows"), "float16", E5),
     ((160, 136), ("groups", "blocks"), "bfloat16", E4), ((16, 136), ("blocks", "blocks"), "float16", E4),
     ((133, 137), ("groups", "rows"), "bfloat16", E5), ((3, 131), ("blocks", "tensor"), "bfloat16", E4)],
)  # fmt: skip
def test_kernels(shape: tuple[int, int], scopes: tuple[str, str], element: str, to: str) -> None:
    """Whole and partial tiles, wide and narrow, of every scope; a row of zeros."""
    x = drawn(*shape, element)
    desc = P.descriptor(
        rows=shape[0], cols=shape[1], scope=scopes[0], scope_t=scopes[1], element=element, to_element=to
    )
    same(desc, call(P, desc, dense(desc), x=x), x)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("scope", BLOCKS)
def test_odd_numbers(scope: str) -> None:
    """NaN, infinities, what underflows and sizes near the ends of the range."""
    x = drawn(20, 24, "bfloat16")
    x[2, 3], x[7, 0], x[9, 5], x[9, 6] = np.nan, np.inf, -0.0, -np.inf
    x[4], x[:, 11], x[5] = x[4] * 1e-38, x[:, 11] * 1e-35, x[5] * 1e36
    desc = P.descriptor(rows=20, cols=24, scope=scope, scope_t=scope, element="bfloat16")
    same(desc, call(P, desc, dense(desc), x=x), x)


@pytest.mark.usefixtures("emulation")
def test_views() -> None:
    """x transposed, outputs in pieces of larger arrays: places beside them stay as they are."""
    whole = drawn(40, 160, "bfloat16")
    desc = P.descriptor(rows=160, cols=40, scope="rows", scope_t="groups", element="bfloat16")
    room = {"y": np.full((160, 41), 0xEE, np.uint8), "yt": np.full((40, 163), 0xEE, np.uint8)}
    made = dense(desc) | {"y": room["y"][:, 1:], "yt": room["yt"][:, 2:162]}
    same(desc, call(P, desc, made, x=whole.T), np.ascontiguousarray(whole.T))
    assert (room["y"][:, 0] == 0xEE).all() and (room["yt"][:, [0, 1, 162]] == 0xEE).all()
