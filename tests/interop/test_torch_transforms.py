"""torch.func's transformations of the functions: values and gradients as torch's own, or a typed refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402
from baracuda_py.torch import nn  # noqa: E402
from baracuda_py.torch.operation import Operation  # noqa: E402

F = torch.nn.functional
X = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
W, C = X[1].abs() + 0.5, X[:, :3].T.contiguous()
IDS = torch.tensor([1, 3, 0])
FORMULA = bc.elementwise("x * tanh(x) + w")
ENERGY = bc.reduce("sqrt(mean(x * x) + w)", axis=-1, w=0.5)
SCAN = bc.scan("cumsum(x * x)", axis=-1)


def attention(x: Any) -> Any:
    q = x.reshape(1, 2, -1, 2)
    return bt.flash_sdpa(q, q, q, layout="bshd", is_causal=True)


def attention_of_torch(x: Any) -> Any:
    q = x.reshape(1, 2, -1, 2).transpose(1, 2)
    with sdpa_kernel(SDPBackend.MATH):  # the only one of torch's that has all derivatives
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {  # of matrices, ours and torch's
    "rms_norm": (lambda x: bt.rms_norm(x, W), lambda x: F.rms_norm(x, (8,), W, 1e-6)),
    "layer_norm": (lambda x: bt.layer_norm(x, W), lambda x: F.layer_norm(x, (8,), W)),
    "silu": (bc.silu, F.silu),
    "sign": (bt.sign, torch.sign),
    "mul": (lambda x: bt.mul(x, W), lambda x: x * W),
    "where": (lambda x: bt.where(x > 0, x, 2 * x), lambda x: torch.where(x > 0, x, 2 * x)),
    "matmul": (lambda x: bt.matmul(x, C.T.repeat(2, 1)), lambda x: x @ C.T.repeat(2, 1)),
    "attention": (attention, attention_of_torch),
    "softmax": (bt.softmax, lambda x: F.softmax(x, -1)),
    "sum": (lambda x: bt.sum(x, axis=-1), lambda x: x.sum(-1)),
    "var": (lambda x: bt.var(x, axis=-1), lambda x: x.var(-1)),
    "logsumexp": (lambda x: bt.logsumexp(x, axis=-1), lambda x: x.logsumexp(-1)),
    "cumsum": (bt.cumsum, lambda x: x.cumsum(-1)),
    "sort": (lambda x: bt.sort(x)[0], lambda x: x.sort(-1)[0]),
    "concatenate": (lambda x: bt.concatenate([x, 2 * x, X]), lambda x: torch.cat([x, 2 * x, X])),
    "index_select": (lambda x: bt.index_select(x, IDS, axis=-1), lambda x: x[..., IDS]),
    "cross_entropy": (
        lambda x: bt.cross_entropy(x, IDS[:1].expand(x.shape[0]), reduction="none"),
        lambda x: F.cross_entropy(x, IDS[:1].expand(x.shape[0]), reduction="none"),
    ),
    "cosine_similarity": (lambda x: bt.cosine_similarity(x, W + 0 * x), lambda x: F.cosine_similarity(x, W + 0 * x)),
    "cast": (lambda x: bt.cast(x, "float32").double(), lambda x: x.float().double()),
    "formula": (lambda x: FORMULA(x, W), lambda x: x * x.tanh() + W),
    "number": (lambda x: FORMULA(x, 0.5), lambda x: x * x.tanh() + 0.5),
    "reduction": (lambda x: ENERGY(x), lambda x: ((x * x).mean(-1) + 0.5).sqrt()),
    "scan": (lambda x: SCAN(x), lambda x: (x * x).cumsum(-1)),
    "captured": (lambda x: bt.silu(C).sum() * x, lambda x: F.silu(C).sum() * x),
}  # fmt: skip


def both(make: Callable[[Any], Any], name: str) -> None:
    ours, theirs = (make(function) for function in CASES[name])
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs)


def squares(function: Any) -> Callable[[Any], Any]:
    return lambda x: (function(x) ** 2).sum()


def dual(f: Any) -> Any:
    """The derivative by forward mode outside of torch.func."""
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(X, X.cos()))).tangent


def twice(f: Any) -> Any:
    """The gradient of a function of the gradient, by autograd alone."""
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(squares(f)(x), x, create_graph=True)
    return torch.autograd.grad(slope.sin().sum(), x)[0] if slope.requires_grad else torch.zeros_like(x)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: grad(squares(f))(X),
    "vjp": lambda f: vjp(f, X)[1](torch.ones_like(f(X)))[0],
    "jacrev": lambda f: jacrev(f)(X[:2]),
    "vmap": lambda f: vmap(lambda x: f(x[None]))(X),
    "vmap of another axis": lambda f: vmap(lambda x: f(x[None]), in_dims=1, out_dims=-1)(X.T.contiguous()),
    "vmap of vmap": lambda f: vmap(vmap(lambda x: f(x[None])))(X.reshape(2, 2, 8)),
    "grad of vmap": lambda f: grad(lambda x: squares(vmap(lambda row: f(row[None])))(x))(X),
    "vmap of grad": lambda f: vmap(grad(lambda x: squares(f)(x[None])))(X),
    "jvp": lambda f: jvp(f, (X,), (X.cos(),))[1],
    "dual": dual,
    "jacfwd": lambda f: jacfwd(f)(X[:2]),
    "vmap of jvp": lambda f: vmap(lambda x, t: jvp(lambda y: f(y[None]), (x,), (t,))[1])(X, X.cos()),
    "jvp of vmap": lambda f: jvp(vmap(lambda x: f(x[None])), (X,), (X.cos(),))[1],
    "grad of grad": lambda f: grad(lambda x: grad(squares(f))(x).sin().sum())(X),
    "twice": twice,
    "hessian": lambda f: hessian(squares(f))(X[:2]),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(squares(f)))(X[:2]),
    "jvp of jvp": lambda f: jvp(lambda x: jvp(f, (x,), (X.cos(),))[1], (X,), (X.sin(),))[1],
    "grad three times": lambda f: grad(lambda x: grad(lambda y: grad(squares(f))(y).sin().sum())(x).sin().sum())(X),
    "autograd of vmap": lambda f: torch.autograd.functional.vjp(
        lambda x: squares(vmap(lambda row: f(row[None])))(x), X
    )[1],
}  # fmt: skip


FURTHER = (
    "jvp", "dual", "jacfwd", "vmap of jvp", "jvp of vmap", "grad of grad", "twice", "hessian", "jacrev of jacfwd",
    "jvp of jvp", "grad three times",
)  # fmt: skip
"""Those that take a derivative of another kind than a page links."""
REFUSED = {*(("scan", one) for one in FURTHER), ("reduction", "dual"), ("reduction", "twice")}
"""Formulas that are reduced or scanned by a kernel of their own, of which there is no other form."""


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", CASES)
def test_a_transformation_is_that_of_torch(name: str, transform: str) -> None:
    if (name, transform) in REFUSED:
        with pytest.raises(bc.UnsupportedError, match=r"no forward-mode derivative|differentiated once, not twice"):
            TRANSFORMS[transform](CASES[name][0])
        return
    both(TRANSFORMS[transform], name)


def test_what_is_mapped_is_one_call_where_the_op_has_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    kernel = Operation._kernel
    monkeypatch.setattr(Operation, "_kernel", lambda self, *a, **k: calls.append(self.name) or kernel(self, *a, **k))
    for name in ("rms_norm", "silu", "mul", "matmul", "softmax", "sum", "cumsum", "index_select", "attention"):
        calls.clear()
        vmap(lambda x, f=CASES[name][0]: f(x[None]))(X)
        assert len(calls) == 1, (name, calls)
        calls.clear()
        vmap(grad(lambda x, f=CASES[name][0]: squares(f)(x[None])))(X)
        assert len(calls) == 2, (name, calls)  # and its backward op


def test_gradients_of_samples_of_a_module() -> None:
    linear = nn.Linear(8, 3, dtype=torch.float64)
    parameters = dict(linear.named_parameters())

    def loss(held: Any, x: Any, t: Any) -> Any:
        return bt.cross_entropy(functional_call(linear, held, (x[None],)), t[None])

    def loss_of_torch(held: Any, x: Any, t: Any) -> Any:
        return F.cross_entropy(F.linear(x[None], held["weight"], held["bias"]), t[None])

    t = torch.tensor([0, 2, 1, 1])
    ours, theirs = (vmap(grad(f), (None, 0, 0))(parameters, X, t) for f in (loss, loss_of_torch))
    torch.testing.assert_close(ours, theirs)


def test_no_item_and_results_without_a_gradient() -> None:
    assert vmap(bt.silu)(X[:0]).shape == (0, 8)
    values, indices = vmap(lambda x: bt.topk(x, k=2))(X)
    assert torch.equal(values, X.topk(2)[0]) and torch.equal(indices, X.topk(2)[1])
    assert torch.equal(grad(lambda x: bt.argmax(x).double().sum() + x.sum())(X), torch.ones_like(X))
    assert torch.equal(
        vmap(lambda a: bt.affine(torch.ones(2), alpha=a))(torch.arange(3.0)), torch.arange(3.0)[:, None].expand(3, 2)
    )


def test_a_tensor_that_has_left_its_transformation_is_one_as_others() -> None:
    kept = []
    grad(lambda x: kept.append(x) or x.sum())(X)
    torch.testing.assert_close(bt.silu(kept[0]), F.silu(X))
    torch.testing.assert_close(vjp(bt.silu, X)[1](X)[0], vjp(F.silu, X)[1](X)[0])


def test_compiled() -> None:
    torch._dynamo.reset()
    for make in (lambda f: grad(squares(f)), vmap):
        compiled = torch.compile(make(bt.silu), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(X), make(F.silu)(X))


def test_draws_follow_torch_in_a_vmap() -> None:
    ones = torch.ones(3, 64)
    with pytest.raises(bc.InvalidProblemError, match=r"seed is None.*randomness"):
        vmap(lambda x: bt.dropout(x, 0.5))(ones)
    torch.manual_seed(0)
    same = vmap(lambda x: bt.dropout(x, 0.5), randomness="same")(ones)
    other = vmap(lambda x: bt.dropout(x, 0.5), randomness="different")(ones)
    assert torch.equal(same[0], same[1]) and not torch.equal(other[0], other[1])
    given = grad(lambda x: bt.dropout(x, 0.5, seed=3).sum())(ones)
    assert torch.equal(given, bt.dropout(ones, 0.5, seed=3))


def test_what_is_written_in_a_transformation_is_its_own() -> None:
    """A buffer made there has nothing to follow, and is written; one that is followed or mapped is refused."""

    def filled(x: Any) -> Any:
        out = torch.empty(8, dtype=torch.float64)
        bt.exp(W, out=out)
        return out * x

    torch.testing.assert_close(grad(squares(filled))(X), grad(squares(lambda x: W.exp() * x))(X))
    for call in (
        lambda x: bt.exp(x, out=torch.empty_like(x)),
        lambda x: bt.adam_step([x], [x], [x], [x], lr=0.1, step=1),
    ):
        for transform in (vmap, lambda f: grad(squares(f))):
            with pytest.raises(bc.UnsupportedError, match=r"writes to an array.*no part of a transformation"):
                transform(call)(X)


def with_rstd(x: Any) -> Any:
    y, rstd = bt.rms_norm(x, return_rstd=True)
    return y.sum() + rstd.sum()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: jvp(lambda x: bt.unwrap(x), (X,), (X,)), "x: it has a tangent, and .* no forward-mode"),
        (lambda: jvp(lambda x: bt.exp(x, out=torch.empty_like(x)), (X,), (X,)), "writes to an array"),
        (lambda: jvp(lambda a: bt.affine(W, alpha=a), (X[0, 0],), (X[0, 0],)), "alpha: it has a tangent"),
        (lambda: grad(lambda x: grad(squares(bt.bessel_y0))(x).sum())(X.abs()), "unary_backward .* once, not twice"),
        (lambda: twice(lambda x: bt.linear(x, X, activation="gelu")), "gemm_backward .* once, not twice"),
        (lambda: grad(with_rstd)(X), "no gradient through its output rstd"),
        (lambda: grad(lambda a: bt.affine(W, alpha=a).sum())(torch.tensor(2.0)), "alpha: it requires grad"),
    ],
)
def test_what_has_no_derivative_is_refused(act: Any, says: str) -> None:
    with pytest.raises(bc.UnsupportedError, match=says):
        act()
