"""selective_scan of complex A: mamba-ssm's formula in torch and its autograd, kernels, pairs along time, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recurrences import drawn, emulated, near, truth

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError
from baracuda_py.ops.recurrence.selective import SelectiveScanComplexDescriptor
from baracuda_py.ops.recurrence.selective_scan_complex import SelectiveScanComplexPlan
from baracuda_py.ops.recurrence.selective_scan_complex_backward import SelectiveScanComplexBackwardPlan

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")


def made(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def turned(*shape: int, seed: int) -> np.ndarray:
    return made(*shape, seed=seed) + 1j * made(*shape, seed=seed + 50)


def problem(batch: int = 2, dim: int = 4, length: int = 11, states: int = 3, groups: int = 2) -> dict[str, Any]:
    return {
        "u": made(batch, dim, length, seed=0), "delta": made(batch, dim, length, seed=1),
        "A": -np.abs(made(dim, states, seed=2)) + 2j * made(dim, states, seed=3),
        "B": turned(batch, groups, states, length, seed=4), "C": turned(batch, groups, states, length, seed=5),
        "D": made(dim, seed=6), "z": made(batch, dim, length, seed=7), "delta_bias": made(dim, seed=8),
        "initial_state": turned(batch, dim, states, seed=9),
    }  # fmt: skip


def formula(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any, initial_state: Any) -> Any:
    """mamba-ssm's selective_scan_ref."""
    each = u.shape[1] // B.shape[1]
    b, c = B.repeat_interleave(each, 1), C.repeat_interleave(each, 1)
    dt = torch.log1p(torch.exp(delta + delta_bias[:, None]))
    h, ys = initial_state, []
    for t in range(u.shape[2]):
        h = torch.exp(dt[:, :, t, None] * A) * h + (dt[:, :, t] * u[:, :, t])[..., None] * b[..., t]
        ys.append(2 * (h * c[..., t]).sum(-1).real)
    return (torch.stack(ys, -1) + D[:, None] * u) * torch.nn.functional.silu(z), h


def test_is_the_formula_and_its_gradients_are_autograds() -> None:
    given = {name: torch.tensor(x, requires_grad=True) for name, x in problem().items()}
    got, want = bct.selective_scan(**given, delta_softplus=True, return_last_state=True), formula(**given)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    slopes = (torch.tensor(made(*got[0].shape, seed=10)), torch.tensor(turned(*got[1].shape, seed=11)))
    found = torch.autograd.grad(got, tuple(given.values()), slopes)
    for name, a, b in zip(given, found, torch.autograd.grad(want, tuple(given.values()), slopes), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


def test_inputs_in_pairs_along_time_and_constant_ones() -> None:
    given = problem()
    whole, last = bc.selective_scan(**given, delta_softplus=True, return_last_state=True)
    assert last.dtype == np.complex128
    pairs = {n: np.ascontiguousarray(given[n]).view(np.float64) for n in ("B", "C")}  # [..., states, 2 length]
    np.testing.assert_array_equal(bc.selective_scan(**given | pairs, delta_softplus=True), whole)
    y, state = np.empty_like(whole), np.empty_like(last)
    bc.selective_scan(**given, delta_softplus=True, return_last_state=True, out=(y, state))
    np.testing.assert_array_equal(y, whole)
    np.testing.assert_array_equal(state, last)
    constant = given["B"][0, :, :, 0].repeat(2, 0)  # [dim, states]
    full = np.broadcast_to(constant[None, :, :, None], (2, 4, 3, 11))
    np.testing.assert_array_equal(
        bc.selective_scan(**given | {"B": constant}), bc.selective_scan(**given | {"B": np.ascontiguousarray(full)})
    )


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [40, 21])  # eight steps at once, and one
@pytest.mark.parametrize("plan", [SelectiveScanComplexPlan, SelectiveScanComplexBackwardPlan])
def test_kernels(plan: Any, length: int, element: str) -> None:
    """Warps whose lanes all have their states, and one that has not; tiles that cross a boundary, and whole ones."""
    states = 8 if element == "float32" else 7
    desc = SelectiveScanComplexDescriptor(
        batch=1, num_states=3, dim=9, length=length, states=states, softplus=True, element=element
    )
    case = drawn(plan, desc)
    case.arrays["cu_seqlens"] = np.array([2, 3, 3, length])
    near(emulated(case), truth(case), 2e-5 if element == "float32" else 2e-2)


def test_refuses_real_inputs_and_more_states_than_it_has_lanes() -> None:
    given = problem()
    with pytest.raises(InvalidProblemError, match=r"B must be complex as A is, or real .* of 2 length = 22"):
        bc.selective_scan(**given | {"B": given["B"].real})
    with pytest.raises(InvalidProblemError, match="states must be at most 64, got 65"):
        bc.selective_scan(**problem(states=65))
