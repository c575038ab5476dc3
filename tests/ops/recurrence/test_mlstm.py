"""mlstm: against the paper's steps in float64, in parts against the whole, gradients against autograd of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
B, T, H, K, V = 2, 9, 3, 4, 5


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def problem(seed: int = 0) -> dict[str, np.ndarray]:
    return {
        "q": made(B, T, H, K, seed=seed), "k": made(B, T, H, K, seed=seed + 1), "v": made(B, T, H, V, seed=seed + 2),
        "i": 3 * made(B, T, H, seed=seed + 3), "f": 2 + 2 * made(B, T, H, seed=seed + 4),
    }  # fmt: skip


def by_steps(q: Any, k: Any, v: Any, i: Any, f: Any, state: Any, eps: float = 1e-6) -> tuple[Any, Any]:
    """The paper's equations 19 to 27, step by step in torch."""
    c, n, m = state
    hs = []
    for t in range(q.shape[1]):
        log_f = torch.nn.functional.logsigmoid(f[:, t])
        after = torch.maximum(log_f + m, i[:, t])
        kept, new = torch.exp(log_f + m - after), torch.exp(i[:, t] - after)
        m = after
        c = kept[..., None, None] * c + new[..., None, None] * k[:, t, :, :, None] * v[:, t, :, None]
        n = kept[..., None] * n + new[..., None] * k[:, t]
        at = q[:, t] / q.shape[-1] ** 0.5
        top, bottom = torch.einsum("bhkv,bhk->bhv", c, at), torch.einsum("bhk,bhk->bh", n, at)
        hs.append(top / (torch.maximum(bottom.abs(), torch.exp(-m)) + eps)[..., None])
    return torch.stack(hs, 1), (c, n, m)


def nothing() -> list[Any]:
    return [torch.zeros(s, dtype=torch.float64) for s in ((B, H, K, V), (B, H, K), (B, H))]


@pytest.mark.parametrize("given", [False, True])
def test_is_the_papers_recurrence(given: bool) -> None:
    operands = {name: torch.tensor(x, requires_grad=True) for name, x in problem().items()}
    state = [torch.tensor(made(*x.shape, seed=9)) for x in nothing()] if given else nothing()
    state = [x.requires_grad_() for x in state]
    h, last = bct.mlstm(**operands, initial_state=state if given else None, output_final_state=True)
    wanted, end = by_steps(**operands, state=state)
    torch.testing.assert_close(h, wanted, rtol=1e-10, atol=1e-10)
    for got, want in zip(last, end, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    inputs = [*operands.values(), *(state if given else [])]
    slopes = [torch.tensor(made(*x.shape, seed=20)) for x in (h, *last)]
    got = torch.autograd.grad((h, *last), inputs, slopes)
    for a, b in zip(got, torch.autograd.grad((wanted, *end), inputs, slopes), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_parts_and_steps_are_the_whole() -> None:
    given = problem(3)
    whole, last = bc.mlstm(**given, output_final_state=True)
    parts, state = [], None
    for start, end in ((0, 4), (4, 4), (4, 5), (5, T)):
        part = {name: x[:, start:end] for name, x in given.items()}
        h, state = bc.mlstm(**part, initial_state=state, output_final_state=True)
        parts.append(h)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-11, atol=1e-12)
    for got, want in zip(state, last, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_gates_of_any_size_stay_finite() -> None:
    given = problem(5)
    given["i"] = given["i"] * 300
    given["f"] = given["f"] * 100
    h = bc.mlstm(**given)
    wanted, _ = by_steps(**{name: torch.tensor(x) for name, x in given.items()}, state=nothing())
    assert np.isfinite(h).all()
    np.testing.assert_allclose(h, wanted.numpy(), rtol=1e-9, atol=1e-9)


def test_writes_to_what_it_is_given() -> None:
    given = problem(7)
    wanted, last = bc.mlstm(**given, output_final_state=True)
    out = (np.zeros_like(wanted), tuple(np.zeros_like(x) for x in last))
    assert bc.mlstm(**given, output_final_state=True, out=out) is out
    np.testing.assert_array_equal(out[0], wanted)
    for got, want in zip(out[1], last, strict=True):
        np.testing.assert_array_equal(got, want)
    alone = np.zeros_like(wanted)
    assert bc.mlstm(**given, out=alone) is alone
    np.testing.assert_array_equal(alone, wanted)


def test_half_is_near_float64() -> None:
    given = {name: torch.tensor(x).to(torch.bfloat16) for name, x in problem(1).items()}
    h = bct.mlstm(**given)
    assert h.dtype is torch.bfloat16
    wanted, _ = by_steps(**{name: x.double() for name, x in given.items()}, state=nothing())
    assert ((h.double() - wanted).abs().max() / wanted.abs().max()) < 2**-5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"i": made(B, T, H + 1)}, "i must have shape"),
        ({"f": made(B, T)}, "f must have shape"),
        ({"v": made(B, T, 1, V)}, "v must have"),
        ({"initial_state": (1, 2)}, "initial_state must be"),
        ({"initial_state": (made(B, H, K, V), made(B, H), made(B, H))}, "n must be"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        bc.mlstm(**(problem() | change))
