"""Each module of `baracuda_py.torch.nn` beside torch's own: parameters, values, gradients, and whose kernels run."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from baracuda_py.core.errors import InvalidProblemError, UnsupportedError  # noqa: E402
from baracuda_py.torch import nn  # noqa: E402

F = torch.nn.functional
F64 = torch.float64
SHARED = [name for name in nn.__all__ if hasattr(torch.nn, name)]
GENERATOR = torch.Generator().manual_seed(7)


def real(*shape: int) -> Any:
    return torch.randn(shape, dtype=F64, generator=GENERATOR)


def chance(*shape: int) -> Any:
    return torch.rand(shape, dtype=F64, generator=GENERATOR) * 0.9 + 0.05


def classes(*shape: int) -> Any:
    return torch.randint(0, 5, shape, generator=GENERATOR)


def signs(*shape: int) -> Any:
    return real(*shape).sign()


def compared(name: str, facts: dict[str, Any], *inputs: Any, fixed: tuple[int, ...] = (), train: bool = True) -> None:
    """Values, buffers and the gradients of inputs, but for those `fixed`, and of parameters are torch's."""
    results = []
    for package in (nn, torch.nn):
        torch.manual_seed(3)
        module = getattr(package, name)(**facts).train(train)
        given = [x.clone().requires_grad_(x.is_floating_point() and i not in fixed) for i, x in enumerate(inputs)]
        y = module(*given)
        leaves = [x for x in (*given, *module.parameters()) if x.requires_grad]
        weights = torch.linspace(0.5, 2, y.numel(), dtype=F64).reshape(y.shape)
        results.append([y, *torch.autograd.grad((y * weights).sum(), leaves), *module.buffers()])
        assert sorted(module.state_dict()) == sorted(getattr(torch.nn, name)(**facts).state_dict())
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", SHARED)
def test_parameters_have_torchs_names(name: str) -> None:
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    assert issubclass(ours, theirs)
    given, wanted = (list(inspect.signature(module.forward).parameters) for module in (ours, theirs))
    assert given[: len(wanted)] == wanted


PAIRS = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss", "BCEWithLogitsLoss")
SHAPES: tuple[tuple[int, ...], ...] = ((4, 5), (), (0, 3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_two_arrays(reduction: str) -> None:
    facts: dict[str, Any] = {"reduction": reduction}
    for shape in SHAPES:
        for name in PAIRS:
            compared(name, facts, real(*shape), chance(*shape))
        for name in ("SoftMarginLoss", "HingeEmbeddingLoss"):
            compared(name, facts, real(*shape), signs(*shape), fixed=(1,))
        compared("BCELoss", facts, chance(*shape), chance(*shape))
        compared("MarginRankingLoss", facts | {"margin": 0.2}, real(*shape), real(*shape), signs(*shape), fixed=(2,))
        compared("PoissonNLLLoss", facts | {"log_input": False, "full": True}, chance(*shape), 5 * chance(*shape))
        for log_target in (True, False):
            compared("KLDivLoss", facts | {"log_target": log_target}, real(*shape), chance(*shape))
    for more in ({"beta": 0.0}, {"beta": 2.5}):
        compared("SmoothL1Loss", facts | more, real(4, 5), real(4, 5))
    compared("HuberLoss", facts | {"delta": 0.3}, real(4, 5), real(4, 5))
    compared("BCELoss", facts | {"weight": chance(5)}, chance(4, 5), chance(4, 5))
    compared("BCEWithLogitsLoss", facts | {"weight": chance(5), "pos_weight": chance(5)}, real(4, 5), chance(4, 5))
    for var, more in itertools.product((chance(4, 5), chance(4, 1), chance(4)), ({}, {"full": True}, {"eps": 0.5})):
        compared("GaussianNLLLoss", facts | more, real(4, 5), real(4, 5), var)


CLASSES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 5), (4,)), ((5,), ()), ((3, 5, 2), (3, 2)), ((3, 5, 5), (3, 5)), ((2, 5, 3, 4), (2, 3, 4)), ((0, 5), (0,)),
    ((5, 5, 5, 5), (5, 5, 5)),
)  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_losses_of_classes(reduction: str, weighted: bool, ignore_index: int) -> None:
    facts = {"reduction": reduction, "ignore_index": ignore_index, "weight": chance(5) if weighted else None}
    for shape, of_targets in CLASSES:
        for targets in (classes(*of_targets), torch.full(of_targets, ignore_index)):  # none of the latter counts
            for smoothing in (0.0, 0.3):
                compared("CrossEntropyLoss", facts | {"label_smoothing": smoothing}, real(*shape), targets)
            compared("NLLLoss", facts, real(*shape), targets)
    if ignore_index < 0:
        for shape in ((4, 5), (5,), (3, 5, 2), (3, 5, 5)):
            compared("CrossEntropyLoss", facts | {"label_smoothing": 0.3}, real(*shape), chance(*shape), fixed=(1,))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_rows(reduction: str) -> None:
    facts: dict[str, Any] = {"reduction": reduction}
    for p, weight in itertools.product((1, 2), (None, chance(5))):
        compared("MultiMarginLoss", facts | {"p": p, "margin": 0.7, "weight": weight}, real(4, 5), classes(4))
    labels = torch.tensor([[3, 0, -1, 1], [0, 1, 2, 3], [-1, 0, 0, 0]])
    compared("MultiLabelMarginLoss", facts, real(3, 4), labels)
    compared("MultiLabelSoftMarginLoss", facts | {"weight": chance(5)}, real(4, 5), chance(4, 5), fixed=(1,))
    compared("CosineEmbeddingLoss", facts | {"margin": 0.1}, real(4, 5), real(4, 5), torch.tensor([1, -1, 1, -1]))
    for swap, p in itertools.product((True, False), (1.0, 2.0, 3.0)):
        compared("TripletMarginLoss", facts | {"swap": swap, "p": p}, real(4, 5), real(4, 5), real(4, 5))
    far = {"distance_function": lambda a, b: (a - b).abs().sum(-1), "swap": True}
    compared("TripletMarginWithDistanceLoss", facts | far, real(4, 5), real(4, 5), real(4, 5))
    logs, targets = torch.log_softmax(real(9, 3, 5), -1), torch.tensor([[0, 2, 3], [4, 4, 0], [2, 0, 0]])
    lengths = (torch.tensor([9, 8, 2]), torch.tensor([3, 2, 3]))
    compared("CTCLoss", facts | {"zero_infinity": True, "blank": 1}, logs, targets, *lengths)


@pytest.mark.parametrize("train", [True, False])
def test_norms_of_channels(train: bool) -> None:
    some: tuple[dict[str, Any], ...] = (
        {}, {"affine": False}, {"affine": True, "track_running_stats": False}, {"track_running_stats": True},
        {"eps": 0.1, "momentum": 0.5},
    )  # fmt: skip
    for axes, shape in ((1, (6, 4)), (1, (6, 4, 5)), (2, (3, 4, 5, 2)), (3, (2, 4, 3, 2, 2))):
        for facts in (*some, {"momentum": None}):
            compared(f"BatchNorm{axes}d", {"num_features": 4, "dtype": F64} | facts, real(*shape), train=train)
    for axes, shape in ((1, (6, 4, 5)), (1, (4, 5)), (2, (3, 4, 5, 2)), (3, (2, 4, 3, 2, 2))):
        for facts in some:
            compared(f"InstanceNorm{axes}d", {"num_features": 4, "dtype": F64} | facts, real(*shape), train=train)
    for facts in ({}, {"affine": False}, {"eps": 0.5}):
        compared("GroupNorm", {"num_groups": 3, "num_channels": 6, "dtype": F64} | facts, real(2, 6, 2, 3))


def test_embeddings_and_products() -> None:
    table: dict[str, Any] = {"num_embeddings": 7, "embedding_dim": 3, "dtype": F64}
    for facts in ({}, {"padding_idx": -1}, {"max_norm": 0.5, "norm_type": 1.0}, {"scale_grad_by_freq": True}):
        for indices in (classes(3, 4), torch.tensor(3), classes(0), classes(3).int()):
            compared("Embedding", table | facts, indices)
    for mode, facts in itertools.product(("sum", "mean", "max"), ({}, {"padding_idx": 2}, {"max_norm": 0.5})):
        compared("EmbeddingBag", table | facts | {"mode": mode}, classes(3, 4))
        compared("EmbeddingBag", table | facts | {"mode": mode}, classes(9), torch.tensor([0, 3, 3, 7]))
    for bias, shape in itertools.product((True, False), ((3, 4), (2, 3, 4), (4,), (0, 4))):
        compared("Linear", {"in_features": 4, "out_features": 6, "bias": bias, "dtype": F64}, real(*shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_default_eps_is_the_accumulators(dtype: Any) -> None:
    """1 / sqrt(x² + ε) of float32's ε, by the definition: torch's own is of no narrower one."""
    x = torch.full((1, 4), 0.01, dtype=dtype)
    held = x[0, 0].double()
    want = held / (held * held + torch.finfo(torch.float32).eps).sqrt()
    y = nn.RMSNorm(4, dtype=dtype)(x).double()
    torch.testing.assert_close(y, want.expand(1, 4), rtol=torch.finfo(dtype).eps, atol=0)
    assert torch.equal(nn.RMSNorm(4, dtype=dtype)(x), torch.nn.RMSNorm(4, dtype=dtype)(x))


# -- linear cross entropy ----------------------------------------------------------------------------------------------


def logits_loss(x: Any, w: Any, targets: Any, bias: Any, facts: dict[str, Any]) -> Any:
    """The definition over whole logits."""
    held = dict(facts)
    z_loss, cap, reduction = held.pop("z_loss", 0.0), held.pop("softcap", 0.0), held.pop("reduction", "mean")
    logits = F.linear(x, w, bias).flatten(0, -2)
    logits = cap * torch.tanh(logits / cap) if cap else logits
    flat, ignored = targets.flatten(), held.get("ignore_index", -100)
    counts = flat != ignored
    rows = F.cross_entropy(logits, flat, reduction="none", **held)
    rows = rows + torch.where(counts, z_loss * torch.logsumexp(logits, -1) ** 2, 0)
    weight = held.get("weight")
    own = counts.double() if weight is None else torch.where(counts, weight[flat.clamp(min=0)], 0)
    total = {"none": rows.reshape(targets.shape), "sum": rows.sum(), "mean": rows.sum() / own.sum()}
    return total[reduction]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize(
    "facts",
    [
        {}, {"label_smoothing": 0.1}, {"z_loss": 0.3}, {"softcap": 1.5},
        {"weight": torch.linspace(0.2, 2, 5, dtype=F64)},
        {"label_smoothing": 0.2, "z_loss": 0.1, "softcap": 2.0, "ignore_index": 2,
         "weight": torch.linspace(2, 0.2, 5, dtype=F64)},
    ],
    ids=["plain", "smoothing", "z_loss", "softcap", "weight", "all"],
)  # fmt: skip
def test_linear_cross_entropy_by_its_definition(reduction: str, chunk: Any, facts: dict[str, Any]) -> None:
    x, w, b, targets = real(2, 5, 6), real(5, 6), real(5), classes(2, 5)
    targets[0, 1] = facts.get("ignore_index", -100)
    loss, results = nn.FusedLinearCrossEntropyLoss(reduction=reduction, chunk_size=chunk, **facts), []
    for fused in (True, False):
        given = [t.clone().requires_grad_() for t in (x, w, b)]
        if fused:
            y = loss(given[0], given[1], targets, given[2])
        else:
            y = logits_loss(given[0], given[1], targets, given[2], {**facts, "reduction": reduction})
        weights = torch.linspace(0.5, 2, y.numel(), dtype=F64).reshape(y.shape)
        results.append([y, *torch.autograd.grad((y * weights).sum(), given)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert [*loss.state_dict()] == (["weight"] if "weight" in facts else [])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_without_a_label_moves_nothing(reduction: str) -> None:
    x, w, b = (t.requires_grad_() for t in (real(4, 6), real(5, 6), real(5)))
    y = nn.FusedLinearCrossEntropyLoss(reduction=reduction, z_loss=0.1)(x, w, torch.full((4,), -100), b)
    assert torch.all(torch.isnan(y) if reduction == "mean" else y == 0)  # the mean of none, as torch has it
    for slope in torch.autograd.grad(y.sum(), (x, w, b)):
        assert torch.equal(slope, torch.zeros_like(slope))


def test_what_modules_refuse() -> None:
    for name in ("BCELoss", "BCEWithLogitsLoss"):
        with pytest.raises(InvalidProblemError, match=rf"{name}: target must have shape \(4, 1\), got \(4,\)"):
            getattr(nn, name)()(chance(4, 1), chance(4))
    with pytest.raises(InvalidProblemError, match="reduction must be one of mean, sum, none, got 'batch'"):
        nn.FusedLinearCrossEntropyLoss(reduction="batch")
    with pytest.raises(UnsupportedError, match="class_weight: it requires grad"):
        nn.FusedLinearCrossEntropyLoss(weight=chance(5).requires_grad_())(real(4, 6), real(5, 6), classes(4))


# -- whose kernels -----------------------------------------------------------------------------------------------------

VIEWS = (
    "AccumulateGrad", "View", "Reshape", "Unsqueeze", "Squeeze", "Split", "SplitWithSizes", "Unbind", "Select", "Slice",
    "Transpose", "Permute",
)  # fmt: skip
X = real(2, 5, 8)
MODULES = {
    "RMSNorm": lambda: nn.RMSNorm(8, dtype=F64)(X), "LayerNorm": lambda: nn.LayerNorm(8, dtype=F64)(X),
    "GroupNorm": lambda: nn.GroupNorm(5, 5, dtype=F64)(X), "BatchNorm1d": lambda: nn.BatchNorm1d(5, dtype=F64)(X),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(5, affine=True, dtype=F64)(X),
    "Linear": lambda: nn.Linear(8, 4, dtype=F64)(X), "tanh": lambda: nn.Linear(8, 4, activation="tanh", dtype=F64)(X),
    "SwiGLU": lambda: nn.SwiGLU(8, 6, dtype=F64)(X),
    "Attention": lambda: nn.Attention(8, 2, dtype=F64)(X),
    "Embedding": lambda: nn.Embedding(5, 3, dtype=F64)(classes(4)),
    "EmbeddingBag": lambda: nn.EmbeddingBag(5, 3, dtype=F64)(classes(4, 2)),
    "CrossEntropyLoss": lambda: nn.CrossEntropyLoss()(real(4, 5).requires_grad_(), classes(4)),
    "FusedLinearCrossEntropyLoss":
        lambda: nn.FusedLinearCrossEntropyLoss()(real(4, 6).requires_grad_(), real(5, 6), classes(4)),
    "MSELoss": lambda: nn.MSELoss()(X.clone().requires_grad_(), X),
    "BCEWithLogitsLoss": lambda: nn.BCEWithLogitsLoss()(X.clone().requires_grad_(), X),
}  # fmt: skip


def nodes(node: Any) -> Iterator[str]:
    yield type(node).__name__
    for after, _ in node.next_functions:
        if after is not None:
            yield from nodes(after)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_made_of_our_own_ops(name: str) -> None:
    """Between its result and its leaves there is nothing of torch but views."""
    found = {one.removesuffix("0").removesuffix("Backward") for one in nodes(MODULES[name]().grad_fn)}
    assert found & {"Node", "Composition"}
    assert not {one for one in found - {"Node", "Composition"} if not one.endswith(VIEWS)}


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int) -> None:
    size, both = (5, 4, 6)[:rank], {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "dtype": F64}
    for facts in ({}, {"stride": 2, "padding": 1, "groups": 2}, {"padding": "same", "dilation": 2, "bias": False}):
        compared(f"Conv{rank}d", both | facts, real(2, 4, *size))
    for mode in ("reflect", "replicate", "circular"):
        compared(f"Conv{rank}d", both | {"padding": 2, "padding_mode": mode}, real(2, 4, *size))
    for facts in ({}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2, "bias": False}):
        compared(f"ConvTranspose{rank}d", both | facts, real(2, 4, *size))
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, dtype=F64)
    assert layer(real(2, 4, 5, 4), output_size=(12, 10)).shape == (2, 6, 12, 10)
