"""What stands inside of a compiled function: PyTorch's spellings, draws, formulas, plans."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
import baracuda_py.nn.functional as NF  # noqa: E402
import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional
WEIGHT, CLASSES = torch.rand(8), torch.tensor([1, 3, 0, 2])
MASK = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)


def compiled(function: Any, full: bool = True) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=full, backend="aot_eager")


def heads(x: Any) -> Any:
    return x.reshape(1, 2, 4, 4)


SPELT = {  # of a module, ours or torch's, and a matrix
    "attention": lambda f, x: f.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
    "three axes": lambda f, x: f.scaled_dot_product_attention(heads(x)[0], heads(x)[0], heads(x)[0], MASK),
    "grouped": lambda f, x: f.scaled_dot_product_attention(heads(x), heads(x)[:, :1], heads(x)[:, 1:], enable_gqa=True),
    "gelu": lambda f, x: f.gelu(x, approximate="tanh"),
    "rms_norm": lambda f, x: f.rms_norm(x, (8,), WEIGHT),
    "layer_norm": lambda f, x: f.layer_norm(x, (8,), WEIGHT),
    "softmax": lambda f, x: f.softmax(x, dim=0),
    "cross_entropy": lambda f, x: f.cross_entropy(x, CLASSES, label_smoothing=0.1),
    "kl_div": lambda f, x: f.kl_div(x, WEIGHT, reduction="sum"),
    "cosine_similarity": lambda f, x: f.cosine_similarity(x, x.flip(0), dim=1),
    "pairwise_distance": lambda f, x: f.pairwise_distance(x, x.flip(0)),
    "unfold": lambda f, x: f.unfold(x.reshape(1, 1, 4, 8), 2),
    "max_pool2d": lambda f, x: f.max_pool2d(x.reshape(1, 1, 4, 8), 2),
}


@pytest.mark.parametrize("name", SPELT)
def test_spellings_of_pytorch_are_in_one_graph(name: str) -> None:
    results = []
    for module, wrap in ((NF, compiled), (F, lambda function: function)):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
        y = wrap(lambda x, module=module: SPELT[name](module, x))(x)
        (y**2).sum().backward()
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_a_pair_and_a_truth_value() -> None:
    x = torch.randn(4, 8)
    values, indices = compiled(lambda x: NF.max(x, dim=1))(x)
    assert torch.equal(values, x.max(1)[0]) and torch.equal(indices, x.max(1)[1])
    assert bool(compiled(lambda x: NF.equal(x, x))(x)) and torch.equal(
        compiled(lambda x: NF.take(x, CLASSES))(x), x.take(CLASSES)
    )


def test_dropout_of_attention_draws_anew() -> None:
    x = torch.randn(1, 2, 16, 8)
    attend = compiled(lambda x: NF.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
    assert not torch.equal(attend(x), attend(x))


@pytest.mark.parametrize("name", ["normal", "uniform", "randn", "rand", "bits"])
def test_draws_without_operands_are_tensors(name: str) -> None:
    """With a seed they are those of the package; without one they follow torch's generator."""
    draw = getattr(bt, name)
    plain = getattr(bc, name)(shape=(4, 8), seed=3)
    inside = compiled(lambda x: draw(shape=(4, 8), seed=3))(torch.ones(1))
    for made in (draw(shape=(4, 8), seed=3), inside):
        assert isinstance(made, torch.Tensor) and (made.numpy() == plain).all()
    free = compiled(lambda x: draw(shape=(4, 8)))
    assert not torch.equal(free(WEIGHT), free(WEIGHT))
    torch.manual_seed(0)
    first = draw(shape=(64,))
    torch.manual_seed(0)
    assert torch.equal(first, draw(shape=(64,)))
    assert draw(shape=(3,), seed=1, like=torch.empty(1, device="meta")).is_meta


MADE = {
    "elementwise": lambda x: bc.elementwise("x * tanh(x)")(x),
    "of a function": lambda x: bc.elementwise(lambda x: x * bc.tanh(x))(x),
    "reduce": lambda x: bc.reduce("sum(x * x)", axis=-1)(x),
    "scan": lambda x: bc.scan("cumsum(x * x)")(x),
    "product": lambda x: bc.product("silu(x)")(x, x.T),
    "attention": lambda x: bc.attention("s * 2")(heads(x), heads(x), heads(x)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_formula_is_made_before_a_compiled_function(name: str) -> None:
    """In one graph it is refused, and the message says what to do; where a graph may end it is made."""
    x = torch.randn(4, 8)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a formula is made before a compiled function"):
        compiled(MADE[name])(x)
    torch.testing.assert_close(compiled(MADE[name], full=False)(x), MADE[name](x))


DESC = bc.UnaryDescriptor(shape=(4,), kind="exp", element="float32")


def run(x: Any) -> Any:
    y = torch.empty_like(x)
    bc.UnaryPlan.select(DESC, device="cpu").run(bc.UnaryArgs(x=x, y=y))
    return y


def run_described(x: Any) -> Any:
    y = torch.empty_like(x)
    desc = bc.UnaryDescriptor(shape=(4,), kind="exp", element="float32")
    bc.UnaryPlan.select(desc, device="cpu").run(bc.UnaryArgs(x=x, y=y))
    return y


KNOWN = bc.UnaryPlan.select(DESC, device="cpu")


def run_known(x: Any) -> Any:
    y = torch.empty_like(x)
    KNOWN.run(bc.UnaryArgs(x=x, y=y))
    return y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [run, run_described, run_known])
def test_a_plan_is_no_part_of_a_graph(function: Any) -> None:
    x = torch.randn(4)
    with pytest.raises(
        torch._dynamo.exc.Unsupported, match=r"no part of a graph; call the function of baracuda_py\.torch"
    ):
        compiled(function)(x)
    torch.testing.assert_close(compiled(function, full=False)(x), x.exp())
