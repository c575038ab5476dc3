"""Forward mode and gradients of gradients, of every plan that has a gradient: right, or a typed refusal."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bridged import flat, inexact, problems, served, through  # noqa: E402

import baracuda_py as bc  # noqa: E402
from baracuda_py.core import ElementKind, registry  # noqa: E402
from baracuda_py.core.plan import Plan  # noqa: E402

F64, C128 = ElementKind.F64, ElementKind.C128
FACTS: dict[str, Any] = {"fast_mode": True, "atol": 1e-4, "rtol": 1e-3}
REFUSING = {  # of some problems, or of all: what their pages have in torch, torch differentiates once, or not at all
    "attention.flash_sdpa", "attention.sdpa", "conv.conv", "elementwise.frexp", "gemm.gemm", "gemm.gemv",
    "image.interpolate", "image.ps_roi_pool", "image.roi_align", "image.roi_pool", "layout.triangle",
    "recurrence.causal_conv1d", "recurrence.selective_scan",
    "linalg.cholesky", "loss.cross_entropy", "loss.ctc_loss", "loss.linear_cross_entropy", "loss.linear_kl",
    "loss.rnnt_loss", "loss.row_loss", "norm.batch_norm_inference", "norm.channel_norm", "norm.layer_norm",
    "norm.rms_norm", "pooling.pool", "pooling.reduce_window", "quant_gemm.sparse24_decompress",
    "quantize.learnable_fake_quantize", "random.rrelu", "scan.linear_scan", "segment.gather_scatter",
    "segment.segment_reduce", "softmax.gumbel_softmax", "softmax.sparsemax", "sort.sorted_quantile",
}  # fmt: skip
REFUSING_KINDS = {
    *(f"bessel_y{n}" for n in (0, 1)),
    *(f"{scaled}modified_bessel_k{n}" for n in (0, 1) for scaled in ("", "scaled_")),
}
SINGULAR = {"std", "nanstd", "std_mean"}  # whose problems drawn have rows of one element, in which torch has NaN


def items() -> list[Any]:
    """Of each plan's kinds an eighth and two more, in float64 and complex128, as they are served."""
    chance, found = random.Random("derivatives"), []
    for plan in registry.plans().values():
        if plan.vjp is None or plan.pinned:
            continue
        kinds = [k for k in plan.kinds or (None,) if plan.vjp.serves(k) and getattr(k, "value", "") not in SINGULAR]
        for kind in chance.sample(kinds, min(len(kinds), 2 + len(kinds) // 8)):
            for element in (F64, C128):
                if element in served(plan, kind):
                    name = f"{plan.__name__}-{getattr(kind, 'value', kind)}-{element}"
                    found.append(pytest.param(plan, kind, element, id=name))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("plan", "kind", "element"), items())
def test_derivatives_of_every_order_are_right(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    for problem in problems(plan, kind, element):
        leaves = tuple(problem.leaves())
        with torch.no_grad():
            made = dict(zip(problem.wanted, problem(), strict=True))
        ends = sorted(n for n in through(problem) if inexact(made.get(n)))
        if not leaves or not ends or not problem.tame():
            continue

        def outputs(*given: Any, problem: Any = problem, ends: Any = ends) -> tuple[Any, ...]:
            found = dict(zip(problem.wanted, problem(*problem.tangents(given)), strict=True))
            return tuple(t for n in ends for t in flat(found[n]))

        refused = []
        for check, facts in (
            (torch.autograd.gradgradcheck, {}),
            (torch.autograd.gradcheck, {"check_forward_ad": True, "check_backward_ad": False,
                                        "check_undefined_grad": False}),
        ):  # fmt: skip
            try:
                assert check(outputs, leaves, **FACTS, **facts)
            except bc.UnsupportedError as error:
                refused.append(str(error))
        if refused:
            assert plan.op in REFUSING or getattr(kind, "value", "") in REFUSING_KINDS, refused
            assert all("differentiated once, not twice" in one or "has no forward-mode" in one for one in refused)
        return


X = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.3
W = X[0] + 0.2


@pytest.mark.parametrize(
    "text",
    ["x * tanh(x) + w", "where(x > w, x * w, exp(x) / w)", "clamp(x, 0.1, 0.5) * gelu(w)", "y = x * w; z = y + sin(x)",
     "silu(x) * w ** 2", "fma(x, w, lgamma(x)) - maximum(x, w)", "atan2(x, w) + hypot(x, w)"],
)  # fmt: skip
def test_of_formulas(text: str) -> None:
    formula = bc.elementwise(text)
    leaves = X.clone().requires_grad_(), W.clone().requires_grad_()
    assert torch.autograd.gradcheck(formula, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(formula, leaves)


@pytest.mark.parametrize(
    "function",
    [bc.cosine_similarity, bc.cdist, bc.pairwise_distance, lambda x, y: bc.cov(x + y), lambda x, y: bc.syrk(x * y),
     lambda x, y: bc.weight_norm(x, y[:, :1].contiguous()), lambda x, y: bc.local_response_norm(x[None] * y, 3)],
)  # fmt: skip
def test_of_functions_of_several_calls(function: Any) -> None:
    leaves = X.clone().requires_grad_(), (X.flip(0) + 0.7).requires_grad_()
    try:
        assert torch.autograd.gradgradcheck(function, leaves)
        assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    except bc.UnsupportedError as error:
        assert "differentiated once, not twice" in str(error) or "has no forward-mode" in str(error)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_of_short_floats(dtype: Any) -> None:
    """In the dtype of what is differentiated, and as torch's within its rounding."""
    functional = torch.nn.functional
    x, w = X.to(dtype), W.to(dtype)
    for ours, theirs in (
        (lambda x: bc.rms_norm(x, w), lambda x: functional.rms_norm(x, (4,), w, 1e-6)),
        (bc.softmax, lambda x: x.softmax(-1)), (bc.silu, functional.silu),
        (lambda x: bc.matmul(x, x.T), lambda x: x @ x.T),
    ):  # fmt: skip
        for transform in (
            lambda f: torch.func.jvp(f, (x,), (x,))[1],
            lambda f: torch.func.hessian(lambda x: f(x).float().square().sum())(x),
        ):
            a, b = transform(ours), transform(lambda x, f=theirs: f(x))
            assert a.dtype == b.dtype
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(a, b, rtol=64 * eps, atol=64 * eps * float(b.abs().max()))
