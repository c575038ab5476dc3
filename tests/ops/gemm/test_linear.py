"""linear, gated_linear, linear_swiglu, and gradients of all products by torch's autograd and by JAX."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


ACTIVATIONS: dict[Any, Any] = {
    None: lambda x: x, "relu": lambda x: np.maximum(x, 0), "silu": silu,
    "gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
}  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (0,)])
def test_linear_is_its_formula(lead: tuple[int, ...], activation: Any) -> None:
    act = ACTIVATIONS[activation]
    x, weight, bias, residual = array(*lead, 6), array(5, 6), array(5), array(*lead, 5)
    for b, r in itertools.product((None, bias), (None, residual)):
        want = act(x @ weight.T + (0 if b is None else b)) + (0 if r is None else r)
        got = bc.linear(x, weight, b, activation=activation, residual=r)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        out = np.full((*want.shape, 2), 7.0)[..., 0]
        assert bc.linear(x, weight, b, activation=activation, residual=r, out=out) is out and np.array_equal(out, got)
    one = bc.linear(x, weight[0], bias[:1].reshape(()), activation=activation, residual=residual[..., 0])
    np.testing.assert_allclose(one, act(x @ weight[0] + bias[0]) + residual[..., 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_gated_layers_are_their_formula(lead: tuple[int, ...]) -> None:
    x, packed, bias, residual = array(*lead, 6), array(10, 6), array(10), array(*lead, 5)
    gate, up = packed[:5], packed[5:]
    want = silu(x @ gate.T + bias[:5]) * (x @ up.T + bias[5:]) + residual
    got = bc.gated_linear(x, gate, up, bias[:5], bias[5:], residual=residual)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert np.array_equal(bc.linear_swiglu(x, packed, bias, residual=residual), got)
    np.testing.assert_allclose(bc.linear_swiglu(x, packed, activation=None), (x @ gate.T) * (x @ up.T), rtol=1e-12)
    refs = [bc.TensorRef(v.ctypes.data, v.shape, None, "float64", device=-1) for v in (x, packed, bias)]
    y = np.empty((*lead, 5))
    bc.linear_swiglu(*refs, out=bc.TensorRef(y.ctypes.data, y.shape, None, "float64", device=-1))
    np.testing.assert_allclose(y, want - residual, rtol=1e-12, atol=1e-12)


def test_what_is_added_is_not_rounded_first() -> None:
    """Of float16: 2048 + 1 is 2048, and 2049 + 1 more is 2050."""
    x, weight = np.full((1, 1), 2048, np.float16), np.ones((1, 1), np.float16)
    one = np.ones(1, np.float16)
    assert bc.linear(x, weight, one, residual=one[None])[0, 0] == 2050


def test_a_residual_may_be_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, residual = (v.astype(np.float16) for v in (array(3, 4), array(5, 4), array(3, 5)))
    y = bc.linear(x, weight, residual=residual.astype(np.float32))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, x.astype(float) @ weight.T.astype(float) + residual, rtol=1e-6, atol=1e-6)


def test_a_shared_matrix_meets_the_rows_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch, long_way: None) -> None:
    """One problem of all rows where they lie evenly, over the caller's memory; a batch with a stride of 0 where not."""
    seen: list[Any] = []
    run = bc.GemmPlan.run

    def watch(self: Any, args: Any, workspace: Any = None, stream: Any = None) -> None:
        seen.append((self.desc, args))
        run(self, args, workspace, stream)

    monkeypatch.setattr(bc.GemmPlan, "run", watch)
    x, weight, bias = array(2, 3, 4), array(5, 4), array(5)
    for given in (x, array(2, 3, 8)[..., :4]):
        y = bc.linear(given, weight, bias)
        desc, args = seen[-1]
        assert (desc.batch_shape, desc.m, y.shape) == ((), 6, (2, 3, 5)) and args.a.ctypes.data == given.ctypes.data
    uneven = array(3, 2, 4).swapaxes(0, 1)
    np.testing.assert_allclose(bc.linear(uneven, weight, bias), uneven @ weight.T + bias, rtol=1e-12, atol=1e-12)
    assert seen[-1][0].batch_shape == (2,) and seen[-1][1].b.strides[0] == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bc.linear(array(2, 3), array(4, 3), activation="tanh"), "activation must be one of"),
        (lambda: bc.linear(array(2, 3), array(4, 5)), "x has 3 columns and weight 5 rows"),
        (lambda: bc.linear(array(2, 3), array(4, 3), residual=array(4)), r"residual must have shape \(2, 4\)"),
        (lambda: bc.linear(array(2, 3), array(4, 3), array(3)), r"bias must broadcast to .*\(2, 4\), got \(3,\)"),
        (lambda: bc.gated_linear(array(2, 3), array(4, 3), array(5, 3)), r"up_weight must be \[out, in\]"),
        (lambda: bc.gated_linear(array(2, 3), array(3), array(3)), r"gate_weight must be \[out, in\]"),
        (lambda: bc.gated_linear(array(2, 3), array(4, 3), array(4, 3), None, array(5)), "up_bias must have shape"),
        (lambda: bc.linear_swiglu(array(2, 3), array(5, 3)), "weight must have two halves"),
        (lambda: bc.linear_swiglu(array(2, 3), array(4, 3), dim=1), "unexpected keyword argument 'dim'"),
    ],
)
def test_what_is_refused(call: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says):
        call()


# -- gradients --------------------------------------------------------------------------------------------------------

SHAPES = [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((0, 2, 3), (3, 4)),
    ((5, 2, 0), (0, 4)), ((7, 1, 2, 3), (1, 6, 3, 1)),
]  # fmt: skip


def compared(ours: Any, theirs: Any, *values: np.ndarray, turned: bool = False) -> None:
    """Results and gradients are torch's."""
    torch = pytest.importorskip("torch")

    def leaf(x: np.ndarray) -> Any:
        made = torch.from_numpy(np.array(x))
        made = made.mT.contiguous().mT if turned and made.dim() > 1 else made
        return made.requires_grad_()

    mine, other = [leaf(v) for v in values], [leaf(v) for v in values]
    got, want = ours(*mine), theirs(*other)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want)
    dy = torch.from_numpy(np.array(array(*want.shape)))
    got.backward(dy)
    want.backward(dy)
    for i, (x, y) in enumerate(zip(mine, other, strict=True)):
        torch.testing.assert_close(x.grad, y.grad, msg=lambda text, i=i: f"operand {i}: {text}")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_is_differentiated_as_torchs(left: Any, right: Any, turned: bool) -> None:
    torch = pytest.importorskip("torch")
    compared(bc.matmul, torch.matmul, array(*left), array(*right), turned=turned)
    shape = np.matmul(np.ones(left), np.ones(right)).shape
    for keep in itertools.product((False, True), repeat=len(shape)):
        c = array(*(n if kept else 1 for n, kept in zip(shape, keep, strict=True)))
        compared(
            lambda a, b, c: bc.matmul(a, b, c, alpha=0.5, beta=-2.0),
            lambda a, b, c: 0.5 * torch.matmul(a, b) - 2 * c,
            array(*left), array(*right), c, turned=turned,
        )  # fmt: skip


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_layers_are_differentiated_as_torchs(activation: Any, lead: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    act = {None: lambda x: x, "relu": f.relu, "gelu": f.gelu, "silu": f.silu,
           "gelu_tanh": lambda x: f.gelu(x, approximate="tanh")}[activation]  # fmt: skip
    x, weight, up, bias, residual = array(*lead, 6), array(5, 6), array(5, 6), array(5), array(*lead, 5)
    compared(
        lambda *g: bc.linear(*g[:3], activation=activation, residual=g[3]), lambda *g: act(f.linear(*g[:3])) + g[3],
        x, weight, bias, residual,
    )  # fmt: skip
    compared(lambda *g: bc.linear(*g, activation=activation), lambda *g: act(f.linear(*g)), x, weight)
    compared(
        lambda *g: bc.gated_linear(*g[:5], activation=activation, residual=g[5]),
        lambda x, w, u, b, c, r: act(f.linear(x, w, b)) * f.linear(x, u, c) + r,
        x, weight, up, bias, array(5), residual,
    )  # fmt: skip
    compared(
        lambda *g: bc.linear_swiglu(*g, activation=activation),
        lambda x, w, b: act(f.linear(x, w[:5], b[:5])) * f.linear(x, w[5:], b[5:]),
        x, array(10, 6), array(10),
    )  # fmt: skip


def test_gradcheck() -> None:
    torch = pytest.importorskip("torch")

    def leaf(*shape: int) -> Any:
        return torch.from_numpy(array(*shape)).requires_grad_()

    assert torch.autograd.gradcheck(bc.matmul, (leaf(2, 1, 3, 4), leaf(5, 4, 2), leaf(3, 1)))
    assert torch.autograd.gradcheck(bc.addmm, (leaf(2), leaf(3, 4), leaf(4, 2)))
    gated = (leaf(2, 3, 4), leaf(6, 4), leaf(6), leaf(2, 3, 3))
    assert torch.autograd.gradcheck(lambda x, w, b, r: bc.linear_swiglu(x, w, b, residual=r), gated)


def test_only_what_is_needed_is_kept_and_made(monkeypatch: pytest.MonkeyPatch, long_way: None) -> None:
    """No pre-activation without an activation, no gradient of what is frozen; the weight's lies as the weight does."""
    torch = pytest.importorskip("torch")
    wanted: list[set[str]] = []
    run = bc.GemmBackwardPlan.run

    def watch(self: Any, args: Any, workspace: Any = None, stream: Any = None) -> None:
        wanted.append({n for n in ("da", "db", "dbias", "dc", "pre") if getattr(args, n) is not None})
        run(self, args, workspace, stream)

    monkeypatch.setattr(bc.GemmBackwardPlan, "run", watch)
    x, weight, bias = (torch.from_numpy(array(*s)) for s in ((2, 3, 4), (5, 4), (5,)))
    bc.linear(x.clone().requires_grad_(), weight, bias).sum().backward()
    bc.linear(x, weight.clone().requires_grad_(), bias.clone().requires_grad_()).sum().backward()
    bc.linear(x, weight, bias.clone().requires_grad_(), activation="silu").sum().backward()
    assert wanted == [{"da"}, {"db", "dbias"}, {"dbias", "pre"}]
    half = weight.bfloat16().requires_grad_()
    (grad,) = torch.autograd.grad(bc.linear(x.bfloat16(), half, activation="gelu").float().sum(), half)
    assert grad.is_contiguous() and grad.dtype is torch.bfloat16


def test_a_c_that_broadcasts_on_a_gpu_has_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is written out first, and where autograd looks on, not over the result."""
    torch = pytest.importorskip("torch")
    for one in (bc.matmul, bc.linear):
        monkeypatch.setattr(sys.modules[one.__module__], "ordinal", lambda array: 0)
    linear = torch.nn.functional.linear
    compared(bc.linear, linear, array(2, 3, 4), array(5, 4), array(5))
    compared(lambda c, a, b: bc.addmm(c, a, b), torch.addmm, array(5), array(3, 4), array(4, 5))
    compared(lambda a, b, c: bc.matmul(a, b, c), lambda a, b, c: a @ b + c, array(2, 3, 4), array(2, 4, 5), array(3, 1))
    with torch.no_grad():
        x, weight, bias = (torch.from_numpy(array(*s)) for s in ((2, 3, 4), (5, 4), (5,)))
        torch.testing.assert_close(bc.linear(x, weight, bias), linear(x, weight, bias))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic: bool) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
        return bt.linear_swiglu(bt.linear(x, w, b, activation="gelu"), w, residual=r) + bt.matmul(x, w.mT)[..., :2]

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (3, 4):
        given = [torch.from_numpy(array(*s)).requires_grad_() for s in ((2, rows, 4), (4, 4), (4,), (2, rows, 2))]
        twins = [t.detach().clone().requires_grad_() for t in given]
        compiled(*given).sum().backward()
        layer(*twins).sum().backward()
        for one, two in zip(given, twins, strict=True):
            torch.testing.assert_close(one.grad, two.grad)


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    shapes = ((2, 3, 4), (5, 4), (5, 4), (5,), (5,), (2, 3, 5))
    given = [jnp.asarray(array(*s).astype(np.float32)) for s in shapes]

    def ours(x: Any, w: Any, u: Any, b: Any, c: Any, r: Any) -> Any:
        y = bc.gated_linear(x, w, u, b, c, activation="gelu", residual=r)
        return (y * bc.linear(x, w, b, activation="silu") + bc.matmul(x, w.T, c)).sum()

    def theirs(x: Any, w: Any, u: Any, b: Any, c: Any, r: Any) -> Any:
        y = jax.nn.gelu(x @ w.T + b, approximate=False) * (x @ u.T + c) + r
        return (y * jax.nn.silu(x @ w.T + b) + (x @ w.T + c)).sum()

    for made in (ours, jax.jit(ours)):
        got, want = jax.grad(made, argnums=range(6))(*given), jax.grad(theirs, argnums=range(6))(*given)
        for one, two in zip(got, want, strict=True):
            np.testing.assert_allclose(one, two, rtol=2e-5, atol=2e-5)
