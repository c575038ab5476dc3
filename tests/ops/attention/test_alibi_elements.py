"""alibi's slopes and their gradient in the scores' own element, beside the accumulator's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py import alibi, alibi_backward
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import BaracudaError
from baracuda_py.ops.attention.dense.alibi import AlibiDescriptor, AlibiPlan, alibi_slopes
from baracuda_py.ops.attention.dense.alibi_backward import AlibiBackwardDescriptor, AlibiBackwardPlan
from baracuda_py.testing.places import call

ELEMENTS = ("float16", "bfloat16", "float32", "float64")
KEYS = (8, 13)  # rows of whole chunks, and not


def _facts(kind: ElementKind, batched: bool, keys: int) -> dict[str, Any]:
    return {"batch_size": 2, "num_heads": 3, "query_len": 7, "key_len": keys, "element": kind,
            "slope_batch": (2,) if batched else ()}  # fmt: skip


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ELEMENTS)
def test_slopes_of_either_element(place: str, name: str, own: bool, batched: bool, keys: int) -> None:
    """scores + slope (key - query) in float64, rounded once."""
    kind = ElementKind.of(name)
    rng = np.random.default_rng(keys)
    x = rng.standard_normal((2, 3, 7, keys)).astype(kind.dtype)
    slopes = (rng.standard_normal((2, 3)) if batched else alibi_slopes(3) * 3).astype((kind if own else kind.acc).dtype)
    desc = AlibiDescriptor(**_facts(kind, batched, keys))
    got = call(AlibiPlan, desc, ("y",), place, scores=x, slopes=slopes)["y"]
    distance = np.arange(keys) - np.arange(7)[:, None]
    wide = np.longdouble if name == "float64" else np.float64
    exact = x.astype(wide) + slopes.astype(wide)[..., None, None] * distance
    step = np.abs(np.spacing(np.abs(np.array(cast(exact, kind))))).astype(wide)
    product = np.abs(exact - x) * 2.0**-53 if place == "numpy" else 0  # NumPy rounds it, too
    assert (np.abs(got.astype(wide) - exact) <= 0.52 * step + product).all()


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ELEMENTS)
def test_dslopes_of_either_element(place: str, name: str, own: bool, batched: bool, both: bool) -> None:
    """One rounding of a sum in the accumulator: small integers come out exactly where the element holds them."""
    kind = ElementKind.of(name)
    rng = np.random.default_rng(5)
    dy = rng.integers(-3, 4, (2, 3, 7, 13)).astype(kind.dtype)
    to = kind if own else kind.acc
    dslopes = np.full((2, 3) if batched else (3,), np.nan).astype(to.dtype)
    desc = AlibiBackwardDescriptor(**_facts(kind, batched, 13))
    sums = (dy.astype(np.float64) * (np.arange(13) - np.arange(7)[:, None])).sum(axis=(2, 3))
    expected = np.array(cast(sums if batched else sums.sum(axis=0), to))
    wanted = ("dscores", "dslopes") if both else ("dslopes",)
    got = call(AlibiBackwardPlan, desc, wanted, place, dy=dy, dslopes=dslopes)
    assert got["dslopes"].dtype == to.dtype
    np.testing.assert_array_equal(got["dslopes"], expected)


def test_the_functional_layer_takes_and_fills_either() -> None:
    """By default the gradient is in the accumulator; `out` may be of the scores' element."""
    x = np.ones((1, 2, 3, 4), np.float16)
    for dtype in (np.float16, np.float32):
        np.testing.assert_array_equal(alibi(x, np.zeros(2, dtype)), x)
    assert alibi_backward(x, return_dscores=False, return_dslopes=True).dtype == np.float32
    out = np.empty(2, np.float16)
    assert alibi_backward(x, return_dscores=False, return_dslopes=True, out={"dslopes": out}) is out
    np.testing.assert_array_equal(out, [6, 6])
    with pytest.raises(BaracudaError, match="slopes"):
        alibi(x, np.zeros(2, np.float64))
