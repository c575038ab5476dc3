"""topk of rows that raise its threshold in every way, emulated: what a block takes twice, drops, or never takes."""

from __future__ import annotations

import numpy as np
import pytest
from call_emulated import call

from baracuda_py.core import ElementKind
from baracuda_py.ops.sort.topk import TopkDescriptor, TopkPlan

COUNT = 13001
RANDOM = np.random.default_rng(5).standard_normal(COUNT)


def _row(kind: str) -> np.ndarray:
    if kind == "ascending":
        return np.sort(RANDOM)
    if kind == "descending":
        return -np.sort(-RANDOM)
    if kind == "few":
        return np.round(RANDOM)
    if kind == "lowest":
        return np.full(COUNT, -np.inf)
    row = np.where(np.abs(RANDOM) < 0.5, np.copysign(0.0, RANDOM), RANDOM)
    row[::400] = np.nan
    row[1::400] = -np.nan
    row[2::300] = np.inf
    row[3::300] = -np.inf
    return row


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [50, 2048])
@pytest.mark.parametrize("kind", ["ascending", "descending", "few", "lowest", "special"])
def test_rows_in_any_order(kind: str, k: int, largest: bool) -> None:
    dtype, element = (np.float16, ElementKind.F16) if k == 50 else (np.float32, ElementKind.F32)
    x = _row(kind).astype(dtype)[None]
    desc = TopkDescriptor(shape=x.shape, k=k, largest=largest, element=element)
    y, indices = np.zeros((1, k), dtype), np.full((1, k), -1, np.int64)
    call(TopkPlan, desc, {"y": y, "indices": indices}, x=x)
    number = np.nan_to_num(x[0].astype(float), nan=1e9, posinf=1e8, neginf=-1e8)  # beyond every one of the row
    expected = np.argsort(-number if largest else number, kind="stable")[:k]
    assert (indices[0] == expected).all()
    assert y.tobytes() == x[:, expected].tobytes()
