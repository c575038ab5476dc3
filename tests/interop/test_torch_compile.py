"""`baracuda_py.torch` under torch.compile, torch.export, modes and autocast."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch_leaves import block, leaf, same_gradients  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


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
    x = leaf(3, 4)

    def norm(x: Any, detach: bool) -> Any:
        y, rstd = bt.rms_norm(x, return_rstd=True)
        return y, rstd.detach() if detach else rstd

    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, True)[1], norm(x, True)[1])
    with pytest.raises(Exception, match=r"no gradient through its output rstd; give its \.detach\(\)"):
        compiled(x, False)


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
        assert bt.rope(q.detach()).dtype is full and bc.exp(x).dtype is full
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
