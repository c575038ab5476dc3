"""Bits of channel norms on the emulator: the same whether a row is held or read twice, and wherever channels lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.norm.channel_norm import ChannelNormArgs, ChannelNormDescriptor, ChannelNormPlan
from baracuda_py.ops.norm.channel_norm_backward import (
    ChannelNormBackwardArgs, ChannelNormBackwardDescriptor, ChannelNormBackwardPlan,
)  # fmt: skip
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.layouts import aligned_bytes
from baracuda_py.testing.recording import pointer_view

CASES = (("group", 8, 2, (16, 16)), ("group", 12, 4, (8, 272)), ("instance", 5, 5, (64, 68)), ("group", 12, 1, (4, 16)))


def ran(plan: Any, desc: Any, args: Any, row: str | None, arrays: dict[str, np.ndarray]) -> str:
    """Runs a call from the row `row` of the table on; the name of the row that took it."""
    with emulating(1):
        chosen = plan(desc, PlanPreference(), emulated_device(9.0, 3))
        names = [one.name for one in chosen.rows]
        chosen.rows = chosen.rows[names.index(row) if row else 0 :]
        given = args(**{n: pointer_view(a) for n, a in arrays.items()})
        verdict = chosen.can_implement(given)
        assert verdict, verdict.reason
        chosen.run(given)
        return str(verdict.sku)


def laid(data: np.ndarray, last: bool, offset: int) -> np.ndarray:
    """The numbers with their channels last or first, `offset` elements off an aligned address."""
    order = (0, *range(2, data.ndim), 1) if last else tuple(range(data.ndim))
    flat = aligned_bytes((data.size + offset) * data.itemsize).view(data.dtype)[offset:]
    view = flat.reshape([data.shape[a] for a in order]).transpose(np.argsort(order))
    view[...] = data
    return view


def made(case: tuple[str, int, int, tuple[int, ...]], row: str | None, last: bool, offset: int, backward: bool) -> Any:
    """The row that took a case, and what it wrote."""
    over, channels, groups, spatial = case
    rng = np.random.default_rng(0)
    shape, statistics = (3, channels, *spatial), (3, groups)
    facts = {"batch": 3, "channels": channels, "spatial": spatial, "over": over, "num_groups": groups}
    x, dy = ((rng.standard_normal(shape) + 3).astype(np.float32) for _ in range(2))
    weight, bias = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    whole = laid(np.zeros(shape, np.float32), last, offset)
    first, second, third = (np.zeros(statistics, np.float32) for _ in range(3))
    given = {"x": laid(x, last, offset), "weight": weight}
    if backward:
        outputs = {"dx": whole, "dweight": np.zeros(channels, np.float32), "dbias": np.zeros(channels, np.float32)}
        given |= {"dy": laid(dy, last, offset), "mean": first + 3, "rstd": second + 1}
        desc: Any = ChannelNormBackwardDescriptor(**facts, element="float32")
        plan, args = ChannelNormBackwardPlan, ChannelNormBackwardArgs
    else:
        outputs = {"y": whole, "mean": first, "rstd": second, "var": third}
        given |= {"bias": bias}
        desc, plan, args = ChannelNormDescriptor(**facts, element="float32"), ChannelNormPlan, ChannelNormArgs
    sku = ran(plan, desc, args, row, given | outputs)
    return sku, [np.array(one, order="C") for one in outputs.values()]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits(case: tuple[str, int, int, tuple[int, ...]], backward: bool) -> None:
    sku, wanted = made(case, None, False, 0, backward)
    assert "/held/" in sku
    two = "sums" if backward else "moments"
    for row, last, offset in ((two, False, 0), (two, False, 1), (None, True, 0), (None, True, 1)):
        sku, found = made(case, row, last, offset, backward)
        assert f"/{two}/" in sku
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("over", ["batch", "group"])
def test_sixteen_bytes_of_neighbouring_channels(over: str) -> None:
    """Sums of 8 channels at a time are those of one channel, and of a dy that is one number for all channels."""
    element, batch, spatial = ElementKind.BF16, 3, (30, 25)
    channels, groups = (16, 16) if over == "batch" else (32, 2)
    rng = np.random.default_rng(1)
    shape, statistics = (batch, channels, *spatial), (channels,) if over == "batch" else (batch, groups)
    x, dy = ((rng.standard_normal(shape) + 3).astype(element.dtype) for _ in range(2))
    dy[...] = dy[:, :1]
    mean, rstd = rng.standard_normal((2, *statistics)).astype(np.float32)
    weight = rng.standard_normal(channels).astype(element.dtype)
    desc = ChannelNormBackwardDescriptor(
        batch=batch, channels=channels, spatial=spatial, over=over, num_groups=groups, element=element
    )
    wanted: list[np.ndarray] = []
    for last, offset, spread in ((False, 0, False), (True, 0, False), (True, 1, False), (True, 0, True)):
        given = {"dy": laid(dy, last, offset), "x": laid(x, last, offset), "mean": mean, "rstd": rstd, "weight": weight}
        if spread:
            given["dy"] = np.broadcast_to(laid(dy[:, :1], True, 0), shape)
        outputs = {
            "dx": laid(np.zeros_like(x), last, offset), "dweight": np.zeros_like(weight), "dbias": np.zeros_like(weight)
        }  # fmt: skip
        sku = ran(ChannelNormBackwardPlan, desc, ChannelNormBackwardArgs, "sums", given | outputs)
        assert "/sums/" in sku
        found = [np.array(one, order="C") for one in outputs.values()]
        for a, b in zip(found, wanted or found, strict=True):
            np.testing.assert_array_equal(a, b)
        wanted = wanted or found
        assert all(np.any(one) for one in wanted)
