"""gated_rms_norm: against torch's parts in float64, groups alone, rows of any size, gradients; its kernels emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError
from baracuda_py.ops.norm.gated_rms_norm import GatedRMSNormDescriptor, GatedRMSNormPlan
from baracuda_py.ops.norm.gated_rms_norm_backward import GatedRMSNormBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
F = torch.nn.functional


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def by_torch(x: Any, z: Any, weight: Any, before: bool, size: int) -> Any:
    """mamba-ssm's rms_norm_ref, by its formula."""
    gate = F.silu(z)
    a = x if before else x * gate
    apart = a.unflatten(-1, (-1, size))
    n = (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5)).flatten(-2)
    n = n if weight is None else n * weight
    return n * gate if before else n


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("size", [None, 4, 12])
@pytest.mark.parametrize("weighted", [True, False])
def test_is_torchs_parts(before: bool, size: int | None, weighted: bool) -> None:
    given = [torch.tensor(made(2, 3, 12, seed=s), requires_grad=True) for s in (0, 1)]
    weight = torch.tensor(made(12, seed=2), requires_grad=True) if weighted else None
    y = bct.gated_rms_norm(*given, weight, norm_before_gate=before, eps=1e-5, group_size=size)
    wanted = by_torch(*given, weight, before, size or 12)
    torch.testing.assert_close(y, wanted, rtol=1e-11, atol=1e-11)
    slope, inputs = torch.tensor(made(2, 3, 12, seed=3)), [*given, *([weight] if weighted else [])]
    for a, b in zip(torch.autograd.grad(y, inputs, slope), torch.autograd.grad(wanted, inputs, slope), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_squares_may_leave_the_range(size: float) -> None:
    x, z = (made(3, 40, seed=s).astype(np.float32) for s in (0, 1))
    y = bc.gated_rms_norm(x * np.float32(size), z, eps=0.0)
    np.testing.assert_allclose(y, bc.gated_rms_norm(x, z, eps=0.0), rtol=1e-5)


PROBLEMS = [
    # element, weights, batch, groups, columns, norm first
    ("bfloat16", "float32", (5,), 2, 64, True),
    ("float32", "float32", (40,), 1, 100, False),
    ("float16", "float16", (3, 2), 3, 128, True),
    ("bfloat16", "bfloat16", (2,), 1, 2048, False),
    ("float32", "float32", (3,), 1, 5000, True),
    ("bfloat16", "bfloat16", (300,), 1, 16, False),
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("element", "weights", "batch", "groups", "cols", "before"), PROBLEMS)
@pytest.mark.parametrize("plan", [GatedRMSNormPlan, GatedRMSNormBackwardPlan])
def test_kernels(
    plan: Any, element: str, weights: str, batch: tuple[int, ...], groups: int, cols: int, before: bool
) -> None:
    desc = GatedRMSNormDescriptor(
        batch_shape=batch, groups=groups, cols=cols, norm_before_gate=before, element=element, weight_element=weights
    )  # fmt: skip
    case = fill(plan, desc, np.random.default_rng(1), {"weight": True})
    emulate(plan.select(desc, device=emulated_device(9.0)), operands(case))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gate": made(2, 11)}, "gate must have the shape"),
        ({"gate": made(2, 12).astype(np.float32)}, "gate must hold"),
        ({"weight": made(6)}, "weight must have shape"),
        ({"group_size": 5}, "group_size must divide"),
        ({"x": np.ones(())}, "x must have an axis"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], said: str) -> None:
    given = {"x": made(2, 12), "gate": made(2, 12), "weight": made(12)} | change
    with pytest.raises(InvalidProblemError, match=said):
        bc.gated_rms_norm(**given)
