"""torch.autocast over the functions: operands are cast by the rule of the op, and by nothing else."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from tests.interop.sample_calls import functions, sample_calls

torch = pytest.importorskip("torch")
import baracuda_py.torch as bt  # noqa: E402
from baracuda_py.core.args import arrays_of, scalars_of  # noqa: E402
from baracuda_py.torch.autocast import KINDS, rule_of  # noqa: E402
from tests.interop.bridged import tensor  # noqa: E402

HALF, FULL, SHORT = torch.bfloat16, torch.float32, torch.float16
F = torch.nn.functional


def made(*shape: int, dtype: Any = FULL, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def leaf(*shape: int, dtype: Any = FULL, seed: int = 0) -> Any:
    return made(*shape, dtype=dtype, seed=seed).requires_grad_()


def tensors(value: Any) -> Any:
    """Arrays of 32-bit floats as tensors, which autocast may cast, and others as they are in torch."""
    if isinstance(value, (list, tuple)):
        return type(value)([tensors(one) for one in value])
    return tensor(value) if isinstance(value, np.ndarray) else value


def floats(value: Any) -> list[Any]:
    each = value if isinstance(value, (list, tuple)) else [value]
    return [t for t in each if isinstance(t, torch.Tensor) and t.dtype in (FULL, HALF, SHORT)]


def cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([cast(one, dtype) for one in value])
    return value.to(dtype) if floats(value) else value


def outcome(function: Any, operands: list[Any], facts: dict[str, Any]) -> Any:
    """The results of a call, or of which kind its error is."""
    try:
        made = function(*operands, **facts)
    except bc.BaracudaError as error:
        return type(error)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def cases() -> dict[str, tuple[Any, Any, Any]]:
    """A call with floats of every function that autocast casts the operands of to a dtype of its own."""
    found = {}
    for name in functions():
        plan = getattr(getattr(bc, name), "plan", None)
        if isinstance(plan, type) and rule_of(plan, getattr(bc, name).fixed.get("kind")) in ("lower", "float32"):
            for operands, facts in sample_calls(name, 1).values():
                given = [tensors(one) for one in operands]
                if any(map(floats, given)):
                    found[name] = plan, given, facts
                    break
    return found


def by_hand(name: str, plan: Any, given: list[Any]) -> list[Any]:
    """The operands as the rule of a function has them under autocast to bfloat16."""
    rule = rule_of(plan, getattr(bc, name).fixed.get("kind"))
    specs = {s.local: s for s in arrays_of(plan.args)}
    apart = {n for n, s in specs.items() if s.element not in ("element", "first")} | {
        s.local for s in scalars_of(plan.args)
    }
    names = [*bc_names(name)]
    names += names[-1:] * (len(given) - len(names))
    goal = HALF if rule == "lower" else FULL
    return [v if n in apart else cast(v, goal) for n, v in zip(names, given, strict=False)]


def bc_names(name: str) -> list[str]:
    shown = inspect.signature(getattr(bc, name)).parameters.values()
    return [p.name for p in shown if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]


def test_every_function_of_the_table() -> None:
    """It computes what it computes of operands that were cast by hand, be they halves or floats."""
    wrong, held = [], cases()
    for name, (plan, given, facts) in held.items():
        function = getattr(bc, name)
        for dtype in (FULL, HALF):
            operands = [cast(one, dtype) for one in given]
            expected = outcome(function, by_hand(name, plan, operands), facts)
            with torch.autocast("cpu", HALF):
                got = [outcome(f, operands, facts) for f in (function, getattr(bt, name))]
            for one in got:
                if not same(one, expected):
                    wrong.append((name, dtype))
    assert not wrong
    assert len(held) > 100 and {n for n in KINDS if hasattr(bc, n)} <= set(held)


def same(got: Any, expected: Any) -> bool:
    if isinstance(got, type) or isinstance(expected, type):
        return got is expected
    pairs = [(a, b) for a, b in zip(got, expected, strict=True) if isinstance(a, torch.Tensor)]
    return all(a.dtype == b.dtype and repr(a.tolist()) == repr(b.tolist()) for a, b in pairs)


BESIDE_TORCH = {  # ours and torch's own, of a float32 and a bfloat16 operand; those that torch casts on the CPU, too
    "matmul": (lambda x, y: bc.matmul(x, y), lambda x, y: x @ y),
    "linear": (lambda x, y: bc.linear(x, y), F.linear),
    "attention": (
        lambda x, y: bc.flash_sdpa(x[None, None], y[None, None], x[None, None]),
        lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None]),
    ),
    "mse_loss": (lambda x, y: bc.mse_loss(x, y), F.mse_loss),
    "silu": (lambda x, y: bc.silu(y), lambda x, y: F.silu(y)),
    "relu": (lambda x, y: bc.relu(x), lambda x, y: F.relu(x)),
    "add": (lambda x, y: bc.add(x, y), lambda x, y: x + y),
    "concatenate": (lambda x, y: bc.concatenate([x, y]), lambda x, y: torch.cat([x, y])),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_TORCH)
def test_dtypes_and_gradients_are_those_of_torch(name: str) -> None:
    ends = []
    for function in BESIDE_TORCH[name]:
        x, y = leaf(8, 8), leaf(8, 8, dtype=HALF, seed=1)
        with torch.autocast("cpu", HALF):
            made = function(x, y)
        made.float().square().sum().backward()
        ends.append([made.detach(), *[t.grad for t in (x, y) if t.grad is not None]])
    assert [t.dtype for t in ends[0]] == [t.dtype for t in ends[1]]
    torch.testing.assert_close(*ends, rtol=5e-2, atol=5e-2)


def test_tensors_with_and_without_a_gradient_are_cast_alike() -> None:
    x, w = leaf(4, 8), leaf(8, 8, seed=1)
    with torch.autocast("cpu", HALF):
        recorded = bc.matmul(x, w), bc.softmax(x), bc.cosine_similarity(x, x.to(HALF))
        with torch.no_grad():
            direct = bc.matmul(x, w), bc.softmax(x), bc.cosine_similarity(x, x.to(HALF))
    for a, b in zip(recorded, direct, strict=True):
        assert a.requires_grad and not b.requires_grad and same([a.detach()], [b])


def test_it_is_over_where_it_is_disabled_and_after_it() -> None:
    x, w = made(4, 8), made(8, 8)
    for _ in range(2):  # as the first call finds out what the second one knows
        assert bc.matmul(x, w).dtype is FULL
        with torch.autocast("cpu", HALF):
            assert bc.matmul(x, w).dtype is HALF
            with torch.autocast("cpu", enabled=False):
                assert bc.matmul(x, w).dtype is FULL
            with torch.autocast("cpu", SHORT):
                assert bc.matmul(x, w).dtype is SHORT
            assert bc.matmul(x, w).dtype is HALF
        with torch.autocast("cpu", enabled=False):
            assert bc.matmul(x, w).dtype is FULL


def test_it_is_that_of_the_device() -> None:
    """Tensors of the CPU are left alone by autocast for CUDA, and the other way round."""
    from torch._subclasses import FakeTensorMode

    x, w = made(4, 8), made(8, 8)
    with FakeTensorMode() as mode:
        there = torch.empty(4, 8, device="cuda"), torch.empty(8, 8, device="cuda")
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    try:
        torch.set_autocast_enabled("cuda", True)  # which the context refuses where there is no device
        torch.set_autocast_dtype("cuda", SHORT)
        assert bc.matmul(x, w).dtype is FULL
        for layer in (bc, bt):
            assert layer.matmul(*there).dtype is SHORT and layer.softmax(there[0].to(SHORT)).dtype is FULL
            with mode:
                assert layer.matmul(*there).dtype is SHORT and layer.add(there[0], there[0].half()).dtype is FULL
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
    with torch.autocast("cpu", HALF):
        assert bc.matmul(*there).dtype is FULL


def test_a_backward_pass_inside_is_that_outside() -> None:
    """What was cast by the forward call is not cast again, nor is what is composed of several calls."""

    def forward() -> tuple[Any, list[Any]]:
        leaves = [leaf(4, 8), leaf(8, 8, seed=1), leaf(8, dtype=HALF, seed=2)]
        x, w, g = leaves
        y = bc.matmul(x, w)
        return bc.rms_norm(y, g).sum() + bc.cosine_similarity(y, y * g).sum() + bc.logsumexp(y).sum(), leaves

    grads = []
    for inside in (True, False):
        with torch.autocast("cpu", HALF):
            loss, leaves = forward()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        grads.append([t.grad.detach() for t in leaves])
    assert same(*grads)


def test_a_second_derivative_inside_is_that_outside() -> None:
    """What it is composed of is in the dtypes of the operands, whatever autocast would make of them."""
    ends = []
    for inside in (True, False):
        x = leaf(4, 4)
        (slope,) = torch.autograd.grad(bc.matmul(bc.softmax(x), x).square().sum(), x, create_graph=True)
        with torch.autocast("cpu", HALF, enabled=inside):
            ends.append(torch.autograd.grad(slope, x, slope.detach())[0])
    assert same(ends[:1], ends[1:])


def test_formulas_arrays_of_others_and_ops_of_the_dispatcher() -> None:
    x, y = made(4, 8), made(4, 8, dtype=HALF)
    with torch.autocast("cpu", HALF):
        assert bc.axpby(x, y, alpha=2.0, beta=1.0).dtype is FULL and bc.quick_gelu(y).dtype is HALF
        assert bc.matmul(x.numpy(), x.numpy().T).dtype == np.float32
        assert torch.ops.baracuda.unary(y, kind="exp").dtype is HALF  # an op is called with what it is called with
        assert bc.exp(y, out=torch.empty(4, 8)).dtype is FULL
        assert bc.exp(x.double()).dtype is torch.float64
        assert bc.argmax(y).dtype is torch.int64


def test_compiled_and_mapped() -> None:
    torch._dynamo.reset()
    x, w = made(4, 8), made(8, 8)

    def f(x: Any, w: Any) -> Any:
        return bc.softmax(bc.matmul(x, w))

    with torch.autocast("cpu", HALF):
        expected = f(x, w)
        assert same([torch.compile(f, backend="aot_eager", fullgraph=True)(x, w)], [expected])
        assert same([torch.func.vmap(lambda row: f(row[None], w))(x)[:, 0]], [expected])
        torch.func.grad(lambda x: f(x, w).sum())(x)
