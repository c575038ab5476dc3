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
from baracuda_py.ops.recurrence.selective_state_update_complex import (
    SelectiveStateUpdateComplexDescriptor, SelectiveStateUpdateComplexPlan,
)  # fmt: skip
from baracuda_py.testing.draw import Case

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


def test_decoding_continues_the_scan_in_its_bits() -> None:
    given = problem()
    first = given.pop("initial_state")
    whole, last = bc.selective_scan(**given, initial_state=first, delta_softplus=True, return_last_state=True)
    slots, at = np.zeros((5, 4, 3), complex), np.array([4, 2])
    slots[at] = first
    for t in range(11):
        y = bc.selective_state_update(
            slots, given["u"][..., t], given["delta"][..., t], given["A"], given["B"][..., t], given["C"][..., t],
            given["D"], given["z"][..., t], given["delta_bias"], dt_softplus=True, state_batch_indices=at,
        )  # fmt: skip
        np.testing.assert_array_equal(y, whole[..., t])
    np.testing.assert_array_equal(slots[at], last)
    assert not slots[[0, 1, 3]].any()
    held, before = torch.tensor(slots), slots.copy()
    one = [torch.tensor(given[n][..., 0]) for n in ("u", "delta")] + [torch.tensor(given["A"])]
    one += [torch.tensor(given[n][:, 0, :, 0]) for n in ("B", "C")]  # [batch, states]: one group
    y = bct.selective_state_update(held, *one, state_batch_indices=torch.tensor([7, 4]))
    dt, u = given["delta"][1, :, 0], given["u"][1, :, 0]
    state = np.exp(dt[:, None] * given["A"]) * before[4] + (dt * u)[:, None] * given["B"][1, 0, :, 0]
    np.testing.assert_allclose(held[4], state, rtol=1e-12)
    np.testing.assert_allclose(y[1], 2 * (state @ given["C"][1, 0, :, 0]).real, rtol=1e-11)
    assert not y[0].any() and (held[:4].numpy() == before[:4]).all()


@pytest.mark.parametrize(("element", "states"), [("float32", 8), ("bfloat16", 7), ("float64", 61)])
def test_a_kernel_of_one_step_has_the_scans_bits(element: str, states: int) -> None:
    update = drawn(
        SelectiveStateUpdateComplexPlan,
        SelectiveStateUpdateComplexDescriptor(
            batch=2, dim=6, states=states, slots=2, groups=2, softplus=True, element=element
        ),
        d=True, z=True, delta_bias=True, state_indices=False,
    )  # fmt: skip
    given = dict(update.arrays)
    along = {n: given[n][:, :, None] for n in ("u", "delta", "z")} | {n: given[n][..., None, :] for n in ("b", "c")}
    whole = SelectiveScanComplexDescriptor(
        batch=2, num_states=2, dim=6, length=1, states=states, groups=2, softplus=True, element=element
    )  # fmt: skip
    held = {"initial_state": given["state"].copy(), "cu_seqlens": None}
    kept = {n: given[n] for n in ("a", "d", "delta_bias")}
    scan = Case(SelectiveScanComplexPlan, whole, kept | along | held, frozenset({"y", "last_state"}))
    got, want = emulated(update), emulated(scan)
    np.testing.assert_array_equal(got["y"], want["y"][..., 0])
    np.testing.assert_array_equal(got["state"], want["last_state"])


@pytest.mark.parametrize("name", ["state", "B", "C"])
def test_what_is_real_beside_a_complex_a_is_named(name: str) -> None:
    given = problem()
    operands = {"state": given["initial_state"], "B": given["B"][..., 0], "C": given["C"][..., 0]}
    operands[name] = operands[name].real
    with pytest.raises(InvalidProblemError, match=f"{name} must be complex as A is, got float64"):
        bc.selective_state_update(
            operands["state"], given["u"][..., 0], given["delta"][..., 0], given["A"], operands["B"], operands["C"]
        )
