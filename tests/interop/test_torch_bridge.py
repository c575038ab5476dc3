"""`baracuda_py.torch`: what users of torch expect of a function, and what they are told where they cannot have it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS

torch = pytest.importorskip("torch")
import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


def leaf(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def same_gradients(ours: Any, theirs: Any, *leaves: Any) -> None:
    """The results and gradients of two functions of the same tensors, whatever the cotangent."""
    y, z = ours(*leaves), theirs(*leaves)
    assert torch.allclose(y, z)
    way = torch.randn_like(z)
    for a, b in zip(torch.autograd.grad(y, leaves, way), torch.autograd.grad(z, leaves, way), strict=True):
        assert a.shape == b.shape and torch.allclose(a, b)


# -- names ----------------------------------------------------------------------------------------------------------


def test_every_function_is_there_with_its_signature() -> None:
    for name in EXPORTS:
        function = getattr(bc, name)
        if isinstance(function, type) or not hasattr(function, "plan"):
            assert not hasattr(bt, name)
            continue
        mirrored = getattr(bt, name)
        if not isinstance(function, bc.Expression) and inspect.isfunction(function):
            assert inspect.signature(mirrored) == inspect.signature(function), name
            assert mirrored.__doc__ == function.__doc__
    assert set(dir(bt)) >= {"rms_norm", "flash_sdpa", "define_all"}
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = bt.nonesuch


def test_importing_costs_little_and_the_package_imports_no_torch() -> None:
    code = "\n".join(
        (
            "import sys, time, baracuda_py",
            "assert 'torch' not in sys.modules",
            "import torch",
            "start = time.process_time()",
            "import baracuda_py.torch",
            "assert time.process_time() - start < 0.5 and 'torch._dynamo' not in sys.modules",
        )
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- routing of the plain functions -----------------------------------------------------------------------------------


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


# -- gradients --------------------------------------------------------------------------------------------------------


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
    q = leaf(1, 1, 3, 4)
    y, lse = bt.flash_sdpa(q, q, q, return_lse=True)
    torch.autograd.grad(y.sum() + lse.detach().sum(), q)
    y, lse = bt.flash_sdpa(q, q, q, return_lse=True)
    with pytest.raises(bc.UnsupportedError, match=r"flash_sdpa: .*output lse; give its \.detach\(\)"):
        lse.sum().backward()


def test_differentiating_twice_is_refused_by_name() -> None:
    x = leaf(3)
    (g,) = torch.autograd.grad(bt.exp(x).sum(), x, create_graph=True)
    assert torch.allclose(g, x.exp())
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


# -- layouts and kinds of tensors --------------------------------------------------------------------------------------


def test_views_expanded_and_0d() -> None:
    base = leaf(6, 8)
    same_gradients(lambda a: bt.silu(a.T[::2]), lambda a: F.silu(a.T[::2]), base)
    same_gradients(lambda a: bt.silu(a.expand(3, 6, 8)), lambda a: F.silu(a.expand(3, 6, 8)), base)
    same_gradients(lambda a: bt.silu(a), lambda a: F.silu(a), leaf())
    y = bt.softmax(base)
    (g,) = torch.autograd.grad(y.sum(), base)  # an expanded cotangent
    assert torch.allclose(g, torch.zeros_like(g), atol=1e-12)
    q = leaf(1, 2, 3, 4)
    way = torch.ones(()).double().expand(1, 2, 3, 4)
    (g,) = torch.autograd.grad(bt.flash_sdpa(q, q, q), q, way)
    (want,) = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q), q, way)
    assert torch.allclose(g, want)


def test_channels_last_stays_so() -> None:
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    y = bt.max_pool2d(x, kernel_size=2)
    assert y.is_contiguous(memory_format=torch.channels_last)
    same_gradients(lambda a: bt.max_pool2d(a, kernel_size=2), lambda a: F.max_pool2d(a, 2), x)


def test_inference_mode() -> None:
    x = leaf(3)
    with torch.inference_mode():
        y = bt.exp(x)
        assert y.is_inference() and not y.requires_grad
    inside = bt.exp(y)  # made by inference, read outside
    assert not inside.requires_grad and torch.allclose(inside, x.detach().exp().exp())


class Wrapper(torch.Tensor):
    """A tensor whose operations are intercepted."""

    @staticmethod
    def __new__(cls, held: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


class Plain(torch.Tensor):
    pass


def test_subclasses() -> None:
    x = torch.randn(3)
    assert torch.allclose(bt.exp(torch.nn.Parameter(x)), x.exp())
    assert torch.allclose(bt.exp(x.as_subclass(Plain)), x.exp())
    assert bt.exp(x.as_subclass(Plain).requires_grad_()).requires_grad
    for function in (bt.exp, bc.exp):
        with pytest.raises(
            bc.UnsupportedError, match="x: a Wrapper is a torch tensor whose operations are intercepted"
        ):
            function(Wrapper(x))


@pytest.mark.parametrize("function", [bt.exp, bc.exp], ids=["torch", "plain"])
def test_transformations_are_refused(function: Any) -> None:
    x = torch.ones(3)
    for act in (
        lambda: torch.func.vmap(function)(x),
        lambda: torch.func.grad(lambda t: function(t).sum())(x),
        lambda: torch.func.jvp(function, (x,), (x,)),
    ):
        with pytest.raises(bc.UnsupportedError, match=r"x: .*transformation .*call outside"):
            act()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(bc.UnsupportedError, match=r"x: .*tangent"):
            function(dual)
        with pytest.raises(bc.UnsupportedError, match=r"x: .*detach"):
            function(dual.requires_grad_())


def test_lazy_bits_are_refused_and_lazy_cotangents_taken() -> None:
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(bc.InvalidProblemError, match="resolve_conj"):
        bt.exp(z.conj())
    way = torch.randn(3, dtype=torch.complex128)
    (g,) = torch.autograd.grad(bt.exp(z), z, way.conj())
    assert torch.allclose(g, torch.autograd.grad(z.exp(), z, way.conj())[0])


def test_other_packages_beside_tensors() -> None:
    with pytest.raises(bc.InvalidProblemError, match="weight must be a torch tensor"):
        bt.rms_norm(leaf(2, 3), np.ones(3))
    assert isinstance(bt.exp(np.ones(3)), np.ndarray)


def test_meta_tensors() -> None:
    x = torch.empty(2, 8, device="meta", requires_grad=True)
    y, rstd = bt.rms_norm(x, return_rstd=True)
    assert y.is_meta and y.requires_grad and rstd.shape == (2,)
    y.sum().backward()
    assert x.grad.is_meta and x.grad.shape == (2, 8)
    with pytest.raises(bc.InvalidProblemError, match="must have shape"):
        bt.rms_norm(x, torch.empty(7, device="meta"))


# -- torch.compile, export, autocast -----------------------------------------------------------------------------------


def block(x: Any, w: Any, up: Any) -> Any:
    """A part of a Llama block."""
    h = bt.rms_norm(x, w)
    q = h.reshape(1, 4, 2, 4)
    y = bt.flash_sdpa(q, q, q, is_causal=True, layout="bshd").reshape(4, 8)
    y, h = bt.rms_norm(y, w, residual=x, return_h=True)
    return h + bt.swiglu(y @ up) + bt.quick_gelu(bt.dropout(y, 0.25, seed=3)) + bt.softmax(h)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_graph_break(backend: str) -> None:
    torch._dynamo.reset()
    x, w, up = leaf(4, 8), leaf(8), leaf(8, 16)
    same_gradients(torch.compile(block, fullgraph=True, backend=backend), block, x, w, up)
    with torch.no_grad():
        assert torch.allclose(torch.compile(block, fullgraph=True, backend=backend)(x, w, up), block(x, w, up))


OPEN = {  # functions of tensors whose first sizes, or another, vary from call to call
    "rms_norm": (lambda a, w: bt.rms_norm(a, w), lambda n: (leaf(n, 8), leaf(8))),
    "add": (lambda a, b: bt.add(a, b), lambda n: (leaf(n, 8), leaf(8))),
    "halves": (lambda a: bt.swiglu(a), lambda n: (leaf(3, 2 * n),)),
    "sum": (lambda a: bt.sum(a, axis=1) * bt.softmax(a, axis=0)[:, 0], lambda n: (leaf(n, 8),)),
    "attention": (lambda q: bt.flash_sdpa(q, q, q, layout="bshd", is_causal=True), lambda n: (leaf(1, n, 2, 8),)),
    "loss": (
        lambda a, t: bt.cross_entropy(a, t, reduction="none"),
        lambda n: (leaf(n, 8), torch.arange(n, dtype=torch.int64) % 8),
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_sizes_that_vary_are_compiled_once_more(name: str) -> None:
    """Once for the first sizes, once for any: the shapes of results are symbols of the trace."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    function, make = OPEN[name]
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for n in (3, 4, 7, 12, 5):
        args = make(n)
        leaves = [t for t in args if t.requires_grad]
        y, z = compiled(*args), function(*args)
        assert y.shape == z.shape and torch.allclose(y, z)
        way = torch.randn_like(z)
        for a, b in zip(torch.autograd.grad(y, leaves, way), torch.autograd.grad(z, leaves, way), strict=True):
            assert torch.allclose(a, b)
    assert counter.frame_count == 2


def test_sizes_that_are_no_axis_are_traced_anew() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a: bt.max_pool2d(a, kernel_size=2), fullgraph=True, backend="aot_eager")
    for n in (4, 6, 8):
        x = leaf(1, 2, n, n)
        assert torch.allclose(compiled(x), F.max_pool2d(x, 2))


def test_ops_of_a_compiled_graph_are_ours() -> None:
    torch._dynamo.reset()
    names = []

    def backend(graph: Any, inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def inside(traced: Any, inputs: Any) -> Any:
            names.extend(str(node.target) for node in traced.graph.nodes if "baracuda" in str(node.target))
            return traced

        return aot_autograd(fw_compiler=inside)(graph, inputs)

    x = leaf(2, 8)
    torch.compile(lambda a: bt.silu(bt.rms_norm(a)), fullgraph=True, backend=backend)(x).sum().backward()
    assert names == [f"baracuda.{n}.default" for n in ("rms_norm", "unary", "unary_backward", "rms_norm_backward")]


def test_updates_in_place_are_compiled() -> None:
    torch._dynamo.reset()

    def step(p: Any, g: Any, m: Any, v: Any, cache: Any) -> Any:
        bt.adam_step([p], [g], [m], [v], lr=0.1, step=1)
        new = g.reshape(1, 1, 1, 4)
        bt.kv_cache_append(new, new, torch.zeros(1, dtype=torch.int64), cache, cache.clone())
        return p * 2

    runs = []
    for call in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(0)
        held = [torch.rand(4) for _ in range(4)] + [torch.zeros(1, 1, 4, 4)]
        runs.append([call(*held), *held])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True)) and runs[0][-1].any()


def test_an_output_given_is_filled_in_a_trace() -> None:
    torch._dynamo.reset()

    def fill(x: Any) -> Any:
        out = torch.empty_like(x)
        bt.exp(x, out=out)
        return out * 2

    x = torch.randn(3)
    assert torch.allclose(torch.compile(fill, fullgraph=True, backend="aot_eager")(x), x.exp() * 2)


def test_a_statistic_returned_from_a_compiled_function_is_to_be_detached() -> None:
    torch._dynamo.reset()
    q = leaf(1, 1, 3, 4)

    def attend(q: Any, detach: bool) -> Any:
        y, lse = bt.flash_sdpa(q, q, q, return_lse=True)
        return y, lse.detach() if detach else lse

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(q, True)[1], attend(q, True)[1])
    with pytest.raises(Exception, match=r"no gradient through its output lse; give its \.detach\(\)"):
        compiled(q, False)


def test_export() -> None:
    class Norm(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return bt.rms_norm(x) + bt.silu(x)

    x = torch.randn(2, 8)
    for strict in (True, False):
        program = torch.export.export(Norm(), (x,), strict=strict)
        assert str(program.graph).count("torch.ops.baracuda") == 2
        assert torch.allclose(program.module()(x), Norm()(x))


def test_a_mode_sees_the_ops() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    q = torch.randn(1, 3, 2, 4)
    with Watch():
        y = bt.flash_sdpa(q, q, q, layout="bshd")
    assert "baracuda.flash_sdpa.default" in seen and torch.allclose(y, bt.flash_sdpa(q, q, q, layout="bshd"))


def test_autocast() -> None:
    half, full = torch.bfloat16, torch.float32
    q, x, w = leaf(1, 1, 3, 8, dtype=full), torch.randn(3, 8, dtype=half), torch.randn(8)
    with torch.autocast("cpu", half):
        y = bt.flash_sdpa(q, q, q)
        assert y.dtype is half and bt.matmul(w[None], w[:, None]).dtype is half
        assert bt.softmax(x).dtype is full and bt.exp(x).dtype is full and bt.layer_norm(x, w).dtype is full
        assert bt.silu(x).dtype is half and bt.rms_norm(x, w).dtype is half
        assert bt.add(x, w).dtype is full and bt.cross_entropy(x, torch.tensor([0, 1, 2])).dtype is full
        assert bt.rope(q.detach()).dtype is full and bc.exp(x).dtype is half  # the plain layer casts nothing
        cache = torch.zeros(1, 1, 4, 8)
        bt.kv_cache_append(
            q[:, :, :1].detach(), q[:, :, :1].detach(), torch.zeros(1, dtype=torch.int64), cache, cache * 1
        )
    y.sum().backward()
    assert q.grad.dtype is full and bt.softmax(x).dtype is half


def test_define_all_names_every_op() -> None:
    names = bt.define_all()
    assert len(set(names)) == len(names) >= 60
    assert all(hasattr(torch.ops.baracuda, name) for name in names)


# -- a GPU ----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
class TestOnGpu:
    """Streams, graphs, memory and devices, which only CUDA has."""

    def tensors(self, *shapes: tuple[int, ...]) -> list[Any]:
        return [torch.randn(*shape, device="cuda", requires_grad=True) for shape in shapes]

    def test_training_is_torchs(self) -> None:
        x, w = self.tensors((64, 256), (256,))
        y, z = bt.rms_norm(x, w), F.rms_norm(x, (256,), w, 1e-6)
        way = torch.randn_like(y)
        for a, b in zip(torch.autograd.grad(y, (x, w), way), torch.autograd.grad(z, (x, w), way), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        q = torch.randn(2, 64, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        ours = bt.flash_sdpa(q, q, q, is_causal=True, layout="bshd")
        theirs = F.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3, is_causal=True).transpose(1, 2)
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
        way = torch.randn_like(ours)
        torch.testing.assert_close(
            torch.autograd.grad(ours, q, way)[0], torch.autograd.grad(theirs, q, way)[0], rtol=5e-2, atol=5e-2
        )

    def test_the_plain_layer_routes(self) -> None:
        x, w = self.tensors((8, 64), (64,))
        for _ in range(3):  # the first call, and the prepared ones
            assert bc.rms_norm(x.detach(), w.detach()).requires_grad is False
            assert bc.rms_norm(x, w).requires_grad
        torch.autograd.grad(bc.rms_norm(x, w).sum(), (x, w))

    def test_another_stream(self) -> None:
        (x,) = self.tensors((1 << 20,))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = bt.exp(x)
            y.sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(x.grad, x.detach().exp())
        with pytest.raises(bc.UnsupportedError, match="stream= is not torch's current one"):
            bt.exp(x, stream=side)
        with torch.cuda.stream(side):
            assert bt.exp(x, stream=side).requires_grad

    def test_a_graph_of_torch(self) -> None:
        x, w = self.tensors((32, 128), (128,))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())

        def step() -> Any:
            return torch.autograd.grad(bt.silu(bt.rms_norm(x, w)).sum(), (x, w))

        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            grads = step()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        want = torch.autograd.grad(F.silu(F.rms_norm(x, (128,), w, 1e-6)).sum(), (x, w))
        for a, b in zip(grads, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_memory_used_on_another_stream_is_not_given_away(self) -> None:
        side = torch.cuda.Stream()
        for _ in range(20):
            x = torch.full((1 << 22,), 2.0, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            y = bt.exp(x, stream=side)
            del x
            torch.full((1 << 22,), 7.0, device="cuda")  # may take x's memory, if that was let go
            side.synchronize()
            assert float(y.min()) == float(y.max()) and abs(float(y[0]) - np.exp(2.0)) < 1e-4

    def test_host_tensors_beside_cuda_ones(self) -> None:
        x, w = self.tensors((4, 8), (8,))
        for weight in (w.detach().cpu(), w.detach().cpu().requires_grad_()):
            for function in (bt.rms_norm, bc.rms_norm):
                with pytest.raises(bc.DeviceMismatchError, match="weight"):
                    function(x, weight)

    def test_compiled(self) -> None:
        torch._dynamo.reset()
        x, w, up = self.tensors((4, 8), (8,), (8, 16))
        compiled = torch.compile(block, fullgraph=True)
        way = torch.randn(4, 8, device="cuda")
        ours = torch.autograd.grad(compiled(x, w, up), (x, w, up), way)
        for a, b in zip(ours, torch.autograd.grad(block(x, w, up), (x, w, up), way), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_reduced_overhead(self) -> None:
        torch._dynamo.reset()
        x, w = (t.detach() for t in self.tensors((4, 8), (8,)))
        compiled = torch.compile(lambda a, b: bt.silu(bt.rms_norm(a, b)) * 2, fullgraph=True, mode="reduce-overhead")
        for _ in range(4):
            torch.testing.assert_close(compiled(x, w), bt.silu(bt.rms_norm(x, w)) * 2)

    def test_autocast(self) -> None:
        q = torch.randn(1, 2, 64, 64, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.float16):
            y = bt.flash_sdpa(q, q, q)
            assert y.dtype is torch.float16 and bt.softmax(y.detach()).dtype is torch.float32
        y.sum().backward()
        assert q.grad.dtype is torch.float32
