"""Formulas under torch.compile and torch.export: each is one op of the graph, with a gradient and any sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch_leaves import leaf, same_gradients  # noqa: E402


def using(formula: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: function(formula, *given)


def _attention() -> Any:
    scored = bc.attention("s + bias[h, q - k + 7]")
    return lambda q, bias: scored(q, q, q, bias=bias)


def _attention_in_torch(q: Any, bias: Any) -> Any:
    at = torch.arange(8)[:, None] - torch.arange(8) + 7
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=bias[:, at])


FORMULAS: dict[str, tuple[Callable[[], Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise": (lambda: bc.elementwise("x * sin(y)"), lambda x, y: x * y.sin(), ((3, 4), (3, 4))),
    "broadcast": (lambda: bc.elementwise("x * y + y"), lambda x, y: x * y + y, ((3, 4), (4,))),
    "numbers": (
        lambda: using(bc.elementwise("silu(x) * a + b", b=2.0), lambda f, x: f(x, 0.5) - f(x, a=2, b=1.5)),
        lambda x: torch.nn.functional.silu(x) * -1.5 + 0.5,
        ((3, 4),),
    ),
    "outputs": (
        lambda: using(bc.elementwise("p = x * y; q = p + y"), lambda f, x, y: f(x, y)[0] * f(x, y)[1]),
        lambda x, y: x * y * (x * y + y),
        ((3, 4), (3, 4)),
    ),
    "python": (lambda: bc.elementwise(lambda x, y: bc.silu(x) * y), lambda x, y: torch.nn.functional.silu(x) * y,
               ((3, 4), (3, 4))),
    "reduce": (lambda: bc.reduce("x * y", "sum", axis=1), lambda x, y: (x * y).sum(1), ((3, 4), (3, 4))),
    "then": (lambda: bc.reduce("x * x", "mean", then="sqrt(mean)"), lambda x: x.square().mean().sqrt(), ((3, 4),)),
    "largest": (lambda: bc.reduce("x * y", "amax", axis=1), lambda x, y: (x * y).amax(1), ((3, 4), (3, 4))),
    "scan": (lambda: bc.scan("x * y", "cumsum", axis=1), lambda x, y: (x * y).cumsum(1), ((3, 4), (3, 4))),
    "product": (
        lambda: using(bc.product("silu(x) * d"), lambda f, a, b, c: f(a, b, d=c)),
        lambda a, b, c: torch.nn.functional.silu(a @ b) * c,
        ((3, 4), (4, 5), (3, 5)),
    ),
    "attention": (_attention, _attention_in_torch, ((1, 2, 8, 16), (2, 16))),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True], ids=["default", "dynamic"])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_a_call_of_the_graph(name: str, dynamic: bool | None) -> None:
    torch._dynamo.reset()
    make, theirs, shapes = FORMULAS[name]
    ours = make()
    compiled = torch.compile(lambda *given: ours(*given), fullgraph=True, backend="aot_eager", dynamic=dynamic)
    leaves = [leaf(*shape) for shape in shapes]
    if name == "product":  # whose gradient is `vjp` alone
        leaves = [one.detach() for one in leaves]
        assert torch.allclose(compiled(*leaves), theirs(*leaves))
    else:
        same_gradients(compiled, theirs, *leaves)


def test_sizes_and_strides_that_vary_are_compiled_once_more() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, swish = CompileCounterWithBackend("aot_eager"), bc.elementwise("silu(x) * y")
    compiled = torch.compile(lambda x, y: swish(x, y), fullgraph=True, backend=counter)
    for n in (3, 4, 7, 12):
        wide, y = leaf(n, 2 * n + 5), leaf(1, n)
        same_gradients(
            lambda x, y: compiled(x[:, : y.shape[1]], y),
            lambda x, y: torch.nn.functional.silu(x[:, : y.shape[1]]) * y,
            wide,
            y,
        )
    assert counter.frame_count == 2


def test_formulas_are_told_apart_in_one_graph() -> None:
    torch._dynamo.reset()
    first, second, again = (bc.elementwise(text) for text in ("x * 2 + 1", "x * 2 - 1", "x * 2 + 1"))
    compiled = torch.compile(lambda x: (first(x), second(x), again(x)), fullgraph=True, backend="aot_eager")
    x = torch.randn(5)
    a, b, c = compiled(x)
    assert torch.equal(a, x * 2 + 1) and torch.equal(b, x * 2 - 1) and torch.equal(a, c)


def test_the_gradient_of_a_formula_is_a_call_too() -> None:
    torch._dynamo.reset()
    f, scored = bc.elementwise("x * sin(y)"), bc.attention("s + bias[h, q - k + 7]")
    x, y, q, bias = torch.randn(3, 4), torch.randn(3, 4), torch.randn(1, 2, 8, 16), torch.randn(2, 16)

    def gradients(x: Any, y: Any, q: Any) -> Any:
        out, lse = scored(q, q, q, bias=bias, return_lse=True)
        return (*f.vjp(x, x, y), *scored.backward(q, q, q, out, lse, q, bias=bias))

    for got, want in zip(
        torch.compile(gradients, fullgraph=True, backend="aot_eager")(x, y, q), gradients(x, y, q), strict=True
    ):
        assert torch.equal(got, want)


class Gate(torch.nn.Module):
    """A module that holds a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.w = bc.elementwise("silu(x) * w * a", a=0.5), torch.nn.Parameter(torch.randn(4))

    def forward(self, x: Any) -> Any:
        return self.gate(x, self.w)


def test_a_module_with_a_formula_is_compiled_copied_and_exported() -> None:
    torch._dynamo.reset()
    module, x = Gate(), torch.randn(3, 4)
    want = torch.nn.functional.silu(x) * module.w * 0.5
    for one in (module, copy.deepcopy(module)):
        assert torch.allclose(torch.compile(one, fullgraph=True, backend="aot_eager")(x), want)
    rows = torch.export.Dim("rows", min=2, max=64)
    for strict in (True, False):
        program = torch.export.export(module, (x,), dynamic_shapes=({0: rows},), strict=strict)
        assert str(program.graph).count("torch.ops.baracuda.formula") == 1
        assert torch.allclose(program.module()(x), want)
        assert torch.allclose(program.module()(torch.cat([x, x])), torch.cat([want, want]))


def test_a_formula_is_its_own_op() -> None:
    """One op of torch, which torch's own checks of ops pass; equal formulas are one."""
    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    names = []

    def inside(traced: Any, inputs: Any) -> Any:
        names.extend(str(node.target) for node in traced.graph.nodes if "baracuda" in str(node.target))
        return traced

    def run(x: Any) -> Any:
        return bc.silu(bc_double(x))

    bc_double = bc.elementwise("x * 2 + 1")
    torch.compile(run, fullgraph=True, backend=aot_autograd(fw_compiler=inside))(leaf(2, 8)).sum().backward()
    assert [name.rsplit("_", 1)[0].rsplit("_", 1)[0] for name in names[:1]] == ["baracuda.formula"]
    assert names[1] == "baracuda.unary.default" and names[2] == "baracuda.unary_backward.default"
    assert len(names) == 4 and names[3].startswith("baracuda.formula")
