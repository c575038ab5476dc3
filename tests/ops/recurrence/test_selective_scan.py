"""selective_scan: against a float64 recurrence written out, torch's autograd of it, chunks and single steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError
from baracuda_py.ops.recurrence.selective import SelectiveScanDescriptor
from baracuda_py.ops.recurrence.selective_scan import SelectiveScanPlan
from baracuda_py.ops.recurrence.selective_scan_backward import SelectiveScanBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 7 * sum(shape)).standard_normal(shape)


def problem(batch: int = 2, dim: int = 4, length: int = 11, states: int = 3, groups: int = 2) -> dict[str, Any]:
    return {
        "u": made(batch, dim, length), "delta": made(batch, dim, length, seed=1), "A": -np.abs(made(dim, states)),
        "B": made(batch, groups, states, length), "C": made(batch, groups, states, length, seed=2), "D": made(dim),
        "z": made(batch, dim, length, seed=3), "delta_bias": made(dim, seed=4),
        "initial_state": made(batch, dim, states),
    }  # fmt: skip


def stepwise(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any, initial_state: Any) -> Any:
    """torch, one channel and step at a time."""
    batch, dim, length = u.shape
    ys, lasts = [], []
    for b in range(batch):
        for d in range(dim):
            group = d // (dim // B.shape[1])
            h = initial_state[b, d]
            for t in range(length):
                dt = torch.log1p(torch.exp(delta[b, d, t] + delta_bias[d]))
                h = torch.exp(dt * A[d]) * h + dt * B[b, group, :, t] * u[b, d, t]
                y = (h * C[b, group, :, t]).sum() + D[d] * u[b, d, t]
                ys.append(y * z[b, d, t] * torch.sigmoid(z[b, d, t]))
            lasts.append(h)
    return torch.stack(ys).reshape(u.shape), torch.stack(lasts).reshape(batch, dim, -1)


def test_is_the_recurrence_and_its_gradients_are_autograds() -> None:
    given = {name: torch.tensor(x, requires_grad=True) for name, x in problem().items()}
    y, last = bct.selective_scan(**given, delta_softplus=True, return_last_state=True)
    wanted = stepwise(**given)
    torch.testing.assert_close(y, wanted[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(last, wanted[1], rtol=1e-11, atol=1e-11)
    slopes = (torch.tensor(made(*y.shape, seed=5)), torch.tensor(made(*last.shape, seed=6)))
    got = torch.autograd.grad((y, last), tuple(given.values()), slopes)
    for name, a, b in zip(given, got, torch.autograd.grad(wanted, tuple(given.values()), slopes), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


def test_chunks_and_steps_have_the_bits_of_the_whole() -> None:
    given = problem(length=19)
    state = given.pop("initial_state")
    whole, last = bc.selective_scan(**given, initial_state=state, delta_softplus=True, return_last_state=True)
    parts, chunk = [], state
    for start, end in ((0, 1), (1, 1), (1, 12), (12, 19)):
        part = {n: x[..., start:end] if n in ("u", "delta", "z", "B", "C") else x for n, x in given.items()}
        y, chunk = bc.selective_scan(**part, initial_state=chunk, delta_softplus=True, return_last_state=True)
        parts.append(y)
    np.testing.assert_array_equal(np.concatenate(parts, -1), whole)
    np.testing.assert_array_equal(chunk, last)
    slots, at = np.zeros((5, 4, 3)), np.array([4, 2])
    slots[at] = state
    for t in range(19):
        y = bc.selective_state_update(
            slots, given["u"][..., t], given["delta"][..., t], given["A"], given["B"][..., t], given["C"][..., t],
            given["D"], given["z"][..., t], given["delta_bias"], dt_softplus=True, state_batch_indices=at,
        )  # fmt: skip
        np.testing.assert_array_equal(y, whole[..., t])
    np.testing.assert_array_equal(slots[at], last)
    np.testing.assert_array_equal(slots[[0, 1, 3]], 0)


@pytest.mark.parametrize("bounds", [(0, 7, 7, 19), (2, 5, 16), (0, 19), (4,)])
def test_packed_is_each_alone(bounds: tuple[int, ...]) -> None:
    n = len(bounds) - 1
    given = {
        name: torch.tensor(x, requires_grad=True)
        for name, x in (problem(batch=1, length=19) | {"initial_state": made(n, 4, 3)}).items()
    }
    at = torch.tensor(bounds)
    y, last = bct.selective_scan(**given, delta_softplus=True, return_last_state=True, cu_seqlens=at)
    slopes = (torch.tensor(made(*y.shape, seed=5)), torch.tensor(made(*last.shape, seed=6)))
    got = torch.autograd.grad((y, last), tuple(given.values()), slopes)
    shown = torch.zeros_like(y)
    parts, lasts = torch.zeros_like(y), []
    for s, (start, end) in enumerate(pairwise(bounds)):
        one = {k: x[..., start:end] if k in ("u", "delta", "z", "B", "C") else x for k, x in given.items()}
        one["initial_state"] = given["initial_state"][s : s + 1]
        made_y, made_last = bct.selective_scan(**one, delta_softplus=True, return_last_state=True)
        shown[..., start:end] = made_y.detach()
        parts = parts + torch.nn.functional.pad(made_y, (start, 19 - end))
        lasts.append(made_last)
    assert torch.equal(y, shown)
    assert n == 0 or torch.equal(last, torch.cat(lasts))
    if n == 0:
        assert all(not x.any() for x in got)
        return
    wanted = torch.autograd.grad((parts, torch.cat(lasts)), tuple(given.values()), slopes)
    for name, a, b in zip(given, got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("element", "length", "count", "states"), [("bfloat16", 75, 3, 4), ("float32", 40, 5, 20)])
@pytest.mark.parametrize("plan", [SelectiveScanPlan, SelectiveScanBackwardPlan])
def test_packed_kernels(plan: Any, element: str, length: int, count: int, states: int) -> None:
    desc = SelectiveScanDescriptor(
        batch=1, dim=6, length=length, states=states, groups=2, softplus=True, num_states=count, element=element
    )  # fmt: skip
    case = fill(plan, desc, np.random.default_rng(states), {"cu_seqlens": True, "z": True})
    emulate(plan.select(desc, device=emulated_device(9.0)), operands(case))


def test_inputs_of_fewer_axes_and_groups() -> None:
    given = problem(groups=2)
    shared = {**given, "B": given["B"][:, :1], "C": given["C"]}
    full = {**shared, "B": np.repeat(shared["B"], 2, axis=1)}
    np.testing.assert_array_equal(bc.selective_scan(**shared), bc.selective_scan(**full))
    np.testing.assert_array_equal(
        bc.selective_scan(**{**given, "B": given["B"][:, 0], "C": given["C"][:, 0]}),
        bc.selective_scan(**{**given, "B": given["B"][:, :1], "C": given["C"][:, :1]}),
    )
    b = made(4, 3)
    fixed = np.broadcast_to(b[None, :, :, None], (2, 4, 3, 11))
    np.testing.assert_array_equal(
        bc.selective_scan(**{**given, "B": b}),
        bc.selective_scan(**{**given, "B": fixed, "C": np.repeat(given["C"], 2, axis=1)}),
    )


def test_nan_in_a_state_reaches_its_channel_only() -> None:
    given = problem()
    given["initial_state"][0, 1, 2] = np.nan
    y, last = bc.selective_scan(**given, delta_softplus=True, return_last_state=True)
    assert np.isnan(y[0, 1]).all() and np.isnan(last[0, 1, 2])
    assert np.isfinite(np.delete(y[0], 1, 0)).all() and np.isfinite(y[1]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"u": made(4, 11)}, "u must be"),
        ({"B": made(5)}, "B must be"),
        ({"A": made(4, 300)}, "states"),
        ({"B": made(2, 3, 3, 11), "C": made(2, 3, 3, 11)}, "groups"),
        ({"cu_seqlens": np.array([0, 11])}, "batch 1 for packed"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], said: str) -> None:
    given = problem() | {"initial_state": None} | change
    if said == "states":
        given |= {"B": made(2, 2, 300, 11), "C": made(2, 2, 300, 11)}
    with pytest.raises(InvalidProblemError, match=said):
        bc.selective_scan(**given)
