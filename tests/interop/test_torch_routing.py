"""Calls for autograd: which are recorded, which refused, and what a user is told."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch_leaves import leaf, same_gradients  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


def test_plain_functions_are_recorded_where_a_gradient_is_wanted() -> None:
    same_gradients(lambda x, w: bc.rms_norm(x, w), lambda x, w: F.rms_norm(x, (8,), w, 1e-6), leaf(3, 8), leaf(8))
    x = leaf(3, 8)
    with torch.no_grad():
        assert not bc.silu(x).requires_grad
    assert not bc.silu(x.detach()).requires_grad
    assert bc.silu(torch.nn.Parameter(x.detach())).requires_grad


def test_what_has_no_gradient_is_refused_with_what_to_do() -> None:
    x = leaf(3, 3)
    for call, operand in (
        (lambda: bc.gemm(x.detach(), x.detach(), scale_a=leaf(3, dtype=torch.float32)), "scale_a"),
        (lambda: bc.affine(x.detach(), alpha=leaf()), "alpha"),
        (lambda: bc.global_norm([x.detach(), x]), r"tensors\[1\]"),
        (lambda: bc.scatter_amax(x, torch.zeros(3, 3, dtype=torch.int64), x.detach(), axis=0), "x"),
    ):
        with pytest.raises(bc.UnsupportedError, match=rf"{operand}: .*requires grad.*\.detach\(\).*no_grad"):
            call()
    with pytest.raises(bc.UnsupportedError, match="adam_step, which works in place"):
        bc.adam_step([leaf(2, dtype=torch.float32)], [torch.zeros(2)], [torch.zeros(2)], [torch.zeros(2)], step=1)


def test_a_weight_without_a_gradient_is_named() -> None:
    logits, weight = leaf(4, 5), leaf(5)
    targets = torch.tensor([0, 1, 2, 3])
    with pytest.raises(bc.UnsupportedError, match=r"weight: .*cross_entropy has no gradient for it"):
        bt.cross_entropy(logits, targets, weight)
    same_gradients(lambda x: bt.cross_entropy(x, targets), lambda x: F.cross_entropy(x, targets), logits)


def test_results_without_a_derivative_need_no_record() -> None:
    x = leaf(2, 3)
    for result in (bt.argmax(x, axis=1), bt.eq(x, x), bt.isclose(x, x)):
        assert not result.requires_grad
    y = bt.floor(x)  # as in torch, its gradient is 0
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros(2, 3, dtype=torch.float64))


def test_out_and_stream() -> None:
    x = leaf(4)
    with pytest.raises(bc.UnsupportedError, match="out= takes no part in autograd"):
        bt.exp(x, out=torch.empty(4, dtype=torch.float64))
    with torch.no_grad():
        out = torch.empty(4, dtype=torch.float64)
        assert bt.exp(x, out=out) is out and torch.allclose(out, x.exp())


def test_only_the_gradients_asked_for_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    reference = bc.RMSNormBackwardPlan.reference

    def recorded(desc: Any, **given: Any) -> Any:
        asked.append(set(given["wanted"]))
        return reference(desc, **given)

    monkeypatch.setattr(bc.RMSNormBackwardPlan, "reference", staticmethod(recorded))
    x, w = leaf(3, 8), leaf(8)
    torch.autograd.grad(bt.rms_norm(x.detach(), w).sum(), w)
    torch.autograd.grad(bt.rms_norm(x, w.detach()).sum(), x)
    torch.autograd.grad(bt.rms_norm(x, w).sum(), (x, w))
    assert asked == [{"dweight"}, {"dx"}, {"dx", "dweight"}]


def test_a_residual_and_its_sum() -> None:
    def ours(x: Any, r: Any, w: Any) -> Any:
        y, h = bt.rms_norm(x, w, r, return_h=True)
        return y + 2 * h

    def theirs(x: Any, r: Any, w: Any) -> Any:
        return F.rms_norm(x + r, (8,), w, 1e-6) + 2 * (x + r)

    same_gradients(ours, theirs, leaf(3, 8), leaf(3, 8), leaf(8))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_attention(layout: str) -> None:
    def theirs(q: Any, k: Any, v: Any) -> Any:
        views = [t.transpose(1, 2) if layout == "bshd" else t for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*views, is_causal=True)
        return y.transpose(1, 2) if layout == "bshd" else y

    def ours(q: Any, k: Any, v: Any) -> Any:
        y = bt.flash_sdpa(q, k, v, is_causal=True, layout=layout)
        assert y.is_contiguous()  # in the caller's layout
        return y

    same_gradients(ours, theirs, leaf(2, 5, 4, 8), leaf(2, 5, 4, 8), leaf(2, 5, 4, 8))


def test_functions_of_several_ops_and_formulas() -> None:
    same_gradients(lambda a: bt.swiglu(a), lambda a: F.silu(a.chunk(2, -1)[0]) * a.chunk(2, -1)[1], leaf(3, 8))
    same_gradients(lambda a, w: bt.prelu(a, w), F.prelu, leaf(3, 4), leaf(4))
    same_gradients(lambda a: bt.quick_gelu(a), lambda a: a * torch.sigmoid(1.702 * a), leaf(3, 4))
    same_gradients(lambda a: bt.clamp(a, -0.5, 0.5), lambda a: a.clamp(-0.5, 0.5), leaf(3, 4))
    same_gradients(lambda a: bt.mul(a, 3), lambda a: a * 3, leaf(3, 4))
    double = bc.elementwise("x * sin(y)")
    same_gradients(double, lambda x, y: x * y.sin(), leaf(3, 4), leaf(3, 4))


def test_a_gradient_through_a_saved_statistic_is_refused() -> None:
    x = leaf(3, 4)
    y, rstd = bt.rms_norm(x, return_rstd=True)
    torch.autograd.grad(y.sum() + rstd.detach().sum(), x)
    y, rstd = bt.rms_norm(x, return_rstd=True)
    with pytest.raises(bc.UnsupportedError, match=r"rms_norm: .*output rstd; give its \.detach\(\)"):
        rstd.sum().backward()


def test_differentiating_twice_or_a_refusal_by_name() -> None:
    x = leaf(3)
    (g,) = torch.autograd.grad(bt.exp(x).sum(), x, create_graph=True)
    assert torch.allclose(g, x.exp())
    g.sum().backward()
    assert torch.allclose(x.grad, x.exp())
    (g,) = torch.autograd.grad(bt.bessel_y0(x.abs()).sum(), x, create_graph=True)
    with pytest.raises(bc.UnsupportedError, match="unary_backward has no gradient itself"):
        g.sum().backward()


def test_saved_tensors_are_watched() -> None:
    x = torch.ones(3, requires_grad=True)
    h = x * 2
    y = bt.exp(h)
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = bt.softmax(x)  # keeps its result
    z.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize(
    ("unpack", "says"),
    [
        (lambda t: t[:1], r"float64 of shape \(2, 4\) .* is torch.float64 of shape \(1, 4\)"),
        (lambda t: t.float(), "float32"), (lambda t: t.to_sparse(), "sparse_coo"), (lambda t: t.to("meta"), "meta"),
    ],
)  # fmt: skip
def test_saved_tensors_that_come_back_as_others_are_refused(unpack: Any, says: str) -> None:
    def run(unpack: Any) -> None:
        x, w = leaf(2, 4), leaf(4)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            y = bc.rms_norm(x, w)
        y.sum().backward()
        assert x.grad is not None and w.grad is not None

    for _ in range(2):
        run(torch.clone)
    for _ in range(2):
        with pytest.raises(bc.InvalidProblemError, match=f"rms_norm: what it saved .*{says}.* now"):
            run(unpack)
    run(torch.clone)


def test_saved_parameters_whose_data_is_exchanged_are_refused() -> None:
    x = leaf(2, 4)
    for _ in range(2):
        bc.softplus(x).sum().backward()
    y = bc.softplus(x)
    x.data = x.data[:, :1].clone()
    with pytest.raises(bc.InvalidProblemError, match=r"is torch.float64 of shape \(2, 1\)"):
        y.sum().backward()


def test_sparse_cotangents_are_refused_each_time() -> None:
    x = leaf(1, 2, 4, 8, dtype=torch.float32)
    for layout in ("dense", "sparse", "dense", "sparse"):
        y = bc.flash_sdpa(x, x, x)
        if layout == "dense":
            y.backward(torch.ones_like(y))
            continue
        with pytest.raises(bc.UnsupportedError, match=r"sparse_coo is not supported; call .to_dense\(\)"):
            y.backward(torch.ones_like(y).to_sparse())


def test_checks_asked_for_after_the_forward_call_are_made_in_the_backward_pass(monkeypatch: Any) -> None:
    index = torch.tensor([1, 0])

    def forward() -> Any:
        return bc.take(leaf(2, 4), index, axis=0).sum()

    for _ in range(2):
        forward().backward()
    loss = forward()
    index.data[0] = 9
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(bc.InvalidProblemError, match="take_backward: an index must lie"):
        loss.backward()


def test_a_call_that_is_alike_is_not_taken_for_another() -> None:
    """Prepared calls are told apart by attributes, shapes, dtypes and by what requires a gradient."""
    x, w = leaf(4, 8), leaf(8)
    for eps in (1e-6, 0.5, 1):
        same_gradients(
            lambda a, b, e=eps: bt.rms_norm(a, b, eps=e), lambda a, b, e=eps: F.rms_norm(a, (8,), b, e), x, w
        )
    assert bt.sum(x, axis=1, keepdims=True).shape == (4, 1)
    with pytest.raises(bc.InvalidProblemError, match="keepdims must be True or False"):
        bt.sum(x, axis=1, keepdims=1)
    for seed in (1, 2, 2**63 + 5):
        y = bt.dropout(x, 0.5, seed=seed)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert torch.allclose(g * x, y)  # the stream of this very call


def test_a_number_without_memory_beside_operands_with_it_is_refused() -> None:
    x, alpha = torch.ones(2, 3), torch.tensor(2.0, device="meta")
    for one in (x, x.clone().requires_grad_()):
        for _ in range(3):
            bc.affine(one, alpha=torch.tensor(2.0))
            with pytest.raises(bc.DeviceMismatchError, match="alpha is on meta, others are on cpu"):
                bc.affine(one, alpha=alpha)
    assert bc.affine(x.to("meta"), alpha=alpha).is_meta


def test_numbers_on_the_device_are_watched_too() -> None:
    x, scale = leaf(1, 1, 3, 4), torch.tensor(2.0)
    y = bt.rope(x, scale=scale)
    (g,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.allclose(g, torch.autograd.grad(bt.rope(x, scale=2.0).sum(), x)[0])
    scale.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_number_of_another_kind_is_another_call() -> None:
    """A call that is prepared with a number on the device, or one that requires a gradient, is not another's."""
    x, scale = leaf(1, 1, 3, 4), torch.tensor(2.0)
    for one in (2.0, scale, 2, scale):
        (g,) = torch.autograd.grad(bt.rope(x, scale=one).sum(), x)
        assert float(g.abs().sum()) > 0
    with pytest.raises(bc.UnsupportedError, match="scale: it requires grad"):
        bt.rope(x, scale=scale.clone().requires_grad_())
    with torch.no_grad():
        assert not bt.rope(x, scale=scale.clone().requires_grad_()).requires_grad


def test_formulas_that_differ_in_names_alone() -> None:
    """Their plans have one name, and each has a torch op of its own; one that is made again has the op of the first."""
    x = leaf(3)
    for text in ("x * 2.5 + 1", "zz * 2.5 + 1", "x * 2.5 + 1"):
        same_gradients(bc.elementwise(text), lambda t: t * 2.5 + 1, x)
    for i in range(3):
        same_gradients(bc.elementwise(f"x{i} * y{i}"), lambda a, b: a * b, x, leaf(3))


def test_formulas_of_reductions_and_scans_are_recorded() -> None:
    x, y = leaf(3, 4), leaf(3, 4)
    same_gradients(bc.reduce("x * y", "sum", axis=1), lambda a, b: (a * b).sum(1), x, y)
    same_gradients(bc.reduce("x * x", "mean", then="sqrt(mean)"), lambda a: a.square().mean().sqrt(), x)
    same_gradients(bc.scan("x * y", "cumsum", axis=1), lambda a, b: (a * b).cumsum(1), x, y)
    same_gradients(lambda a, b: bc.reduce("x * y", "sum", axis=1)(a, y=b), lambda a, b: (a * b).sum(1), x, leaf())
    with pytest.raises(bc.UnsupportedError, match="out= takes no part in autograd"):
        bc.reduce("x * y", "sum", axis=1)(x, y, out=torch.empty(3, dtype=torch.float64))


def test_functions_of_several_calls_are_one_node() -> None:
    """Their gradients are the functions of that name; what the gradient does not read is not kept."""
    x, y = leaf(4, 6), leaf(4, 6)
    same_gradients(lambda a, b: bt.cosine_similarity(a, b), lambda a, b: F.cosine_similarity(a, b), x, y)
    same_gradients(lambda a, b: bt.cdist(a, b), torch.cdist, x, y)
    same_gradients(lambda a: bt.cov(a), torch.cov, x)
    same_gradients(lambda a: bt.affine(a, 3.0, 1.0), lambda a: 3 * a + 1, x)
    same_gradients(lambda a: bt.cast(a, torch.float32).double(), lambda a: a.float().double(), x)
    z = bt.cast(x, torch.bfloat16)
    assert z.dtype is torch.bfloat16 and all(t.numel() == 0 for t in z.grad_fn.saved_tensors)
    (g,) = torch.autograd.grad(bt.cosine_similarity(x, y).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(F.cosine_similarity(x, y).sum(), x, create_graph=True)
    ours, theirs = (torch.autograd.grad(one.square().sum(), (x, y)) for one in (g, h))
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    with torch.no_grad():
        assert not bt.cov(x).requires_grad
    weights = torch.ones(6, dtype=torch.float64)
    kept = bt.cov(x, aweights=weights)
    weights.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()
    with pytest.raises(bc.UnsupportedError, match="aweights: it requires grad, and cov has no gradient for it"):
        bt.cov(x, aweights=weights.requires_grad_())


def test_an_overload_may_have_other_numbers() -> None:
    z, w = leaf(3, dtype=torch.complex128), leaf(3, dtype=torch.complex128)
    for _ in range(2):
        same_gradients(bt.mul, torch.mul, z, w)
        same_gradients(bt.div, torch.div, z, w)
        same_gradients(lambda a: bt.mul(a, 2 + 1j), lambda a: a * (2 + 1j), z)
        same_gradients(lambda a: bt.add(a, 2.5), lambda a: a + 2.5, z)
