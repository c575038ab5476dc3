"""Replayed decode and the selective scan's whole tiles on a GPU: models' sizes, real and complex, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention_replay import LinearAttentionReplayPlan
from baracuda_py.ops.recurrence.selective_scan import SelectiveScanPlan
from baracuda_py.ops.recurrence.selective_scan_backward import SelectiveScanBackwardPlan
from baracuda_py.ops.recurrence.selective_scan_complex import SelectiveScanComplexPlan
from baracuda_py.ops.recurrence.selective_scan_complex_backward import SelectiveScanComplexBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu


def check(plan: type[Any], seed: int, arrays: dict[str, Any] | None = None, **fields: Any) -> None:
    desc = plan.descriptor(**fields)
    case = fill(plan, desc, np.random.default_rng(seed))
    case.arrays |= arrays or {}
    assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", list(RecurrenceKind))
@pytest.mark.parametrize("steps", [1, 4])
def test_replay(kind: RecurrenceKind, element: str, steps: int) -> None:
    """Of 9 sequences some write their state, rings go round, and one has no slot."""
    written = np.arange(9, dtype=np.int32) * 5
    check(
        LinearAttentionReplayPlan, steps, {"written": written, "length": written + np.arange(9, dtype=np.int32)},
        kind=kind, batch_size=9, seq_len=steps, q_heads=2, k_heads=2, v_heads=4, d_k=128, d_v=128, num_slots=11,
        every=7, ring=7 + 2 * steps - 1, element=element,
    )  # fmt: skip


@pytest.mark.parametrize("plan", [SelectiveScanPlan, SelectiveScanBackwardPlan])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("length", [512, 301])  # eight steps at once, and one
@pytest.mark.parametrize("states", [16, 8, 160])
def test_scan(plan: type[Any], element: str, length: int, states: int) -> None:
    length = length if states < 100 else length // 4
    check(plan, 1, batch=2, dim=100, length=length, states=states, groups=2, softplus=True, element=element)


@pytest.mark.parametrize("plan", [SelectiveScanComplexPlan, SelectiveScanComplexBackwardPlan])
@pytest.mark.parametrize("element", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("length", [256, 101])
@pytest.mark.parametrize("states", [32, 5])
def test_complex_scan(plan: type[Any], element: str, length: int, states: int) -> None:
    check(plan, 2, batch=2, dim=64, length=length, states=states, softplus=True, element=element)


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_slopes_of_channels_side_by_side(element: str, width: int) -> None:
    """Rows under way in shared memory, whole sequences of several lengths' rest."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    kind = getattr(torch, element)
    for length in (3, 1037, 1040):
        x, dy = (torch.randn((2, length, 320), device="cuda").to(kind).transpose(1, 2) for _ in range(2))
        weight, bias = torch.randn((320, width), device="cuda").to(kind), torch.randn(320, device="cuda").to(kind)
        given = [one.requires_grad_() for one in (x, weight, bias)]
        found = torch.autograd.grad(bct.causal_conv1d(x, weight, bias, activation="silu"), given, dy)
        wide = [one.detach().double().requires_grad_() for one in given]
        seen = torch.nn.functional.pad(wide[0], (width - 1, 0))
        z = torch.nn.functional.silu(torch.nn.functional.conv1d(seen, wide[1][:, None], wide[2], groups=320))
        limit = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[element]
        for got, want in zip(found, torch.autograd.grad(z, wide, dy.double()), strict=True):
            assert (got.double() - want).abs().max() <= limit * want.abs().max()
