"""Activations, dropouts, paddings and other small modules of `baracuda_py.torch.nn` beside torch's own."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from baracuda_py.core.errors import InvalidProblemError  # noqa: E402
from baracuda_py.torch import nn  # noqa: E402
from baracuda_py.torch.nn import activations, dropout, padding  # noqa: E402

F64 = torch.float64
GENERATOR = torch.Generator().manual_seed(11)


def real(*shape: int) -> Any:
    return torch.randn(shape, dtype=F64, generator=GENERATOR)


def leaves(made: Any) -> list[Any]:
    return [y for y in (made if isinstance(made, tuple) else (made,)) if y is not None]


def compared(name: str, facts: dict[str, Any], *inputs: Any, train: bool = True, **more: Any) -> None:
    """Values, gradients of inputs and parameters, repr and state_dict are torch's."""
    results = []
    for package in (nn, torch.nn):
        torch.manual_seed(3)
        module = getattr(package, name)(**facts).to(F64).train(train)
        given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        made = leaves(module(*given, **more))
        total = sum((y * torch.linspace(0.5, 2, y.numel(), dtype=F64).reshape(y.shape)).sum() for y in made)
        wanted = [x for x in (*given, *module.parameters()) if x.requires_grad]
        gradients = torch.autograd.grad(total, wanted, allow_unused=True)
        results.append(
            [*made, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients, strict=True))]
        )
        assert sorted(module.state_dict()) == sorted(getattr(torch.nn, name)(**facts).state_dict())
        assert repr(module).partition("(")[2] == repr(getattr(torch.nn, name)(**facts)).partition("(")[2]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8, equal_nan=True)  # torch has constants in float32


def made_by(module: Any) -> list[str]:
    """The modules that a file has."""
    return [n for n, one in vars(module).items() if inspect.isclass(one) and n in nn.__all__]


SETTINGS: dict[str, list[dict[str, Any]]] = {
    "CELU": [{"alpha": 0.7}], "ELU": [{"alpha": 1.5}], "GELU": [{"approximate": "tanh"}],
    "Hardshrink": [{"lambd": 0.2}],
    "Hardtanh": [{"min_val": -0.5, "max_val": 2.0}], "LeakyReLU": [{"negative_slope": 0.3}],
    "PReLU": [{"num_parameters": 6, "init": 0.4}], "RReLU": [{"lower": 0.1, "upper": 0.2}],
    "Softplus": [{"beta": 2.0, "threshold": 1.0}], "Softshrink": [{"lambd": 0.3}], "GLU": [{"dim": 1}],
    "Threshold": [{"threshold": 0.1, "value": 20.0}], "Softmax": [{"dim": 1}, {"dim": -2}], "LogSoftmax": [{"dim": 1}],
    "Softmin": [{"dim": 2}],
}  # fmt: skip
NEEDED = {"Threshold"}  # modules that have no defaults


@pytest.mark.parametrize("name", made_by(activations))
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_activations(name: str) -> None:
    train = name != "RReLU"  # whose draws are not torch's
    x = torch.cat([real(3, 6, 4), torch.zeros(1, 6, 4, dtype=F64)])
    for facts in ([] if name in NEEDED else [{}]) + SETTINGS.get(name, []):
        compared(name, facts, x, train=train)
        if name != "Softmax2d":
            compared(name, facts | ({"dim": -1} if "dim" in facts or name == "GLU" else {}), real(3, 6), train=train)
        if name not in ("Softmax2d", "GLU") and "oftm" not in name:  # gradients there are our own policy
            ends = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e300, -1e-300], dtype=F64).expand(2, 6, 5)
            ours, theirs = (getattr(one, name)(**facts).to(F64).train(train)(ends) for one in (nn, torch.nn))
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    if name == "Softmax2d":
        compared(name, {}, real(2, 3, 4, 5))


@pytest.mark.parametrize(
    "name", [n for n in made_by(activations) if "inplace" in inspect.getsource(getattr(torch.nn, n))]
)
def test_in_place_where_no_gradient_is_recorded(name: str) -> None:
    facts = {"inplace": True, **({"threshold": 0.1, "value": 3.0} if name == "Threshold" else {})}
    module, x = getattr(nn, name)(**facts).eval(), real(3, 6)
    before = x.clone()
    y = module(x)
    assert y is x and not torch.equal(x, before)
    torch.testing.assert_close(x, getattr(torch.nn, name)(**facts).eval()(before.clone()))
    leaf = before.clone().requires_grad_()
    made = module(leaf)
    assert torch.equal(leaf, before) and torch.equal(made.detach(), y)
    made.sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("name", made_by(dropout))
def test_dropouts(name: str) -> None:
    x = torch.ones(40, 50, *(3,) * (int(name[-2]) if name[-1] == "d" else 0), dtype=F64)
    module = getattr(nn, name)(p=0.3)
    torch.manual_seed(5)
    y = module(x)
    torch.manual_seed(5)
    assert torch.equal(module(x), y) and not torch.equal(module(x), y)
    kept = (y == y.max()).double().mean().item()
    assert abs(kept - 0.7) < 0.06
    values = torch.unique(y)
    assert len(values) == 2 and (values[0] == 0 or "Alpha" in name)
    if "Alpha" not in name:
        torch.testing.assert_close(values[1], torch.tensor(1 / 0.7, dtype=F64))
    if name[-1] == "d" or name.startswith("Feature"):
        assert all(len(torch.unique(y[i, j])) == 1 for i in range(5) for j in range(5))
    assert torch.equal(module.eval()(x), x)
    leaf = x.clone().requires_grad_()
    torch.manual_seed(5)
    (slope,) = torch.autograd.grad(module.train()(leaf).sum(), leaf)
    assert torch.equal(slope == 0, y == values[0])
    assert torch.equal(getattr(nn, name)(p=1.0)(x) == 0, torch.ones_like(x).bool()) or "Alpha" in name


@pytest.mark.parametrize("name", made_by(padding))
def test_paddings(name: str) -> None:
    axes = int(name[-2])
    needed = {"value": -2.5} if name.startswith("Constant") else {}
    uneven = tuple(range(1, 2 * axes + 1)) if axes < 3 else (1, 2, 2, 1, 0, 3)
    for x in (real(2, 3, *(5, 6, 7)[:axes]), real(3, *(5, 6, 7)[:axes])):
        for size in (1, 2, tuple(min(n, 4) for n in uneven)):
            compared(name, {"padding": size} | needed, x)
    if name.startswith(("Constant", "Zero")):
        compared(name, {"padding": (-1, 2) * axes} | needed, real(2, 3, *(5, 6, 7)[:axes]))


def test_windows_and_channels() -> None:
    for facts in ({"kernel_size": 2}, {"kernel_size": (3, 2), "dilation": 2, "padding": 1, "stride": (2, 1)}):
        compared("Unfold", facts, real(2, 3, 7, 6))
        columns = torch.nn.Unfold(**facts)(real(2, 3, 7, 6))
        compared("Fold", {"output_size": (7, 6)} | facts, columns)
        compared("Fold", {"output_size": (7, 6)} | facts, columns[0])
    compared("ChannelShuffle", {"groups": 3}, real(2, 6, 4, 5))


def test_modules_of_two() -> None:
    for bias in (True, False):
        compared(
            "Bilinear",
            {"in1_features": 3, "in2_features": 4, "out_features": 5, "bias": bias},
            real(2, 6, 3),
            real(2, 6, 4),
        )
    for facts in ({}, {"dim": -1, "eps": 0.5}):
        compared("CosineSimilarity", facts, real(3, 4, 5), real(3, 4, 5))
    for facts in ({}, {"p": 1.0, "keepdim": True}, {"p": 3.5, "eps": 0.1}):
        compared("PairwiseDistance", facts, real(4, 5), real(4, 5))
    for facts in ({"size": 2}, {"size": 5, "alpha": 0.3, "beta": 0.5, "k": 2.0}):
        compared("LocalResponseNorm", facts, real(2, 6, 4, 3))


def test_multihead_attention() -> None:
    base: dict[str, Any] = {"embed_dim": 8, "num_heads": 2}
    q, k = real(5, 3, 8), real(6, 3, 8)
    for facts in ({}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}):
        compared("MultiheadAttention", base | facts, q, k, k)
        compared("MultiheadAttention", base | facts, q, k, k, average_attn_weights=False)
        compared(
            "MultiheadAttention",
            base | facts | {"batch_first": True},
            q,
            real(5, 6, 8),
            real(5, 6, 8),
            need_weights=False,
        )
    compared("MultiheadAttention", base | {"kdim": 4, "vdim": 7}, q, real(6, 3, 4), real(6, 3, 7))
    compared("MultiheadAttention", base, q[:, 0], k[:, 0], k[:, 0])
    causal = torch.triu(torch.full((5, 5), -torch.inf, dtype=F64), 1)
    compared("MultiheadAttention", base, q, q, q, attn_mask=causal, is_causal=True, need_weights=False)
    compared("MultiheadAttention", base, q, q, q, attn_mask=causal)
    hidden = torch.zeros(3, 6, dtype=torch.bool)
    hidden[1, 4:] = True
    compared("MultiheadAttention", base, q, k, k, key_padding_mask=hidden)
    with pytest.raises(InvalidProblemError):
        nn.MultiheadAttention(8, 2, dtype=F64)(q, k, k[:-1])


def test_adaptive_log_softmax() -> None:
    facts = {"in_features": 12, "n_classes": 20, "cutoffs": [5, 10, 15], "div_value": 2.0}
    target = torch.tensor([0, 4, 5, 9, 10, 14, 15, 19])
    for more in ({}, {"head_bias": True}):
        compared("AdaptiveLogSoftmaxWithLoss", facts | more, real(8, 12), target)
        compared("AdaptiveLogSoftmaxWithLoss", facts | more, real(12), target[3])
        ours = nn.AdaptiveLogSoftmaxWithLoss(**facts, **more).to(F64)
        theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(**facts, **more).to(F64)
        theirs.load_state_dict(ours.state_dict())
        x = real(30, 12)
        torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x))
        assert torch.equal(ours.predict(x), ours.log_prob(x).argmax(1))
    with pytest.raises(InvalidProblemError, match="one class for each row"):
        ours(real(8, 12), target[:7])
