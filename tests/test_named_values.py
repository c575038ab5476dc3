"""What named plans compute, by NumPy's and PyTorch's functions of the same names: a name is the kind that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(17)
X = RNG.standard_normal((3, 4, 6)).astype(np.float32)
ROWS = RNG.standard_normal((5, 7)).astype(np.float32)
IDS = np.array([0, 0, 1, 1, 3], np.int64)
MIXED = np.array([3, 0, 1, -1, 0], np.int64)


def run(name: str, out: Any, operands: dict[str, Any], **fields: Any) -> Any:
    """What a plan writes to `out`, (name, shape, dtype)."""
    plan = getattr(bc, f"{name}Plan")
    made = np.empty(out[1], out[2])
    plan.select(plan.descriptor(**{"element": "float32", **fields}), device="cpu")(**operands, **{out[0]: made})
    return made


def y(*shape: int, dtype: Any = np.float32) -> Any:
    return "y", shape, dtype


def segments(name: str, ids: Any, function: Callable[..., Any], empty: float) -> tuple[Any, Any]:
    """(ours, by NumPy) of rows by segments, of which number 2 has none."""
    ours = run(name, y(4, 7), {"x": ROWS, "index": ids}, num_segments=4, tokens=5, row_shape=7)
    right = [function(ROWS[ids == s], axis=0) if (ids == s).any() else np.full(7, empty) for s in range(4)]
    return ours, np.array(right)


@pytest.mark.parametrize("name", ["Segment", "UnsortedSegment"])
def test_segments(name: str) -> None:
    ids = IDS if name == "Segment" else MIXED
    wanted: tuple[tuple[str, Callable[..., Any], float], ...] = (
        ("Sum", np.sum, 0), ("Mean", np.mean, 0), ("Max", np.max, -np.inf), ("Min", np.min, np.inf),
        ("Prod", np.prod, 1),
    )  # fmt: skip
    for kind, function, empty in wanted:
        np.testing.assert_allclose(*segments(name + kind, ids, function, empty), rtol=1e-6, err_msg=name + kind)


def test_moves() -> None:
    shape = X.shape
    for name, fields, right in (
        ("Contiguize", {}, X), ("Permute", {"axes": (2, 0, -2)}, X.transpose(2, 0, 1)),
        ("Flip", {"axes": (-1, 0)}, X[::-1, :, ::-1]), ("Repeat", {"reps": (2, 1, 3)}, np.tile(X, (2, 1, 3))),
        ("Repeat", {"reps": (2, 1, 1, 2)}, np.tile(X, (2, 1, 1, 2))),
        ("Roll", {"shifts": (1, -2, 8)}, np.roll(X, (1, -2, 8), (0, 1, 2))),
        ("Triu", {"diagonal": 1}, np.triu(X, 1)), ("Tril", {"diagonal": -1}, np.tril(X, -1)),
    ):  # fmt: skip
        ours = run(name, y(*right.shape), {"x": X}, shape=shape, **fields)
        assert ours.tobytes() == np.ascontiguousarray(right).tobytes(), name
    assert np.array_equal(run("Contiguize", y(6, 4, 3), {"x": X.T}, shape=(6, 4, 3)), X.T)


def test_gradients_of_moves() -> None:
    """Each undoes its forward, which repeats nothing but in `Repeat`, whose copies add up."""
    for name, fields, dy in (
        ("Permute", {"axes": (2, 0, 1)}, X.transpose(2, 0, 1)), ("Flip", {"axes": (1,)}, X[:, ::-1]),
        ("Roll", {"shifts": (1, -2, 8)}, np.roll(X, (1, -2, 8), (0, 1, 2))),
    ):  # fmt: skip
        ours = run(
            f"{name}Backward", ("dx", X.shape, np.float32), {"dy": np.ascontiguousarray(dy)}, shape=X.shape, **fields
        )
        assert np.array_equal(ours, X), name
    dy = np.tile(X, (2, 1, 2))
    ours = run("RepeatBackward", ("dx", X.shape, np.float32), {"dy": dy}, shape=X.shape, reps=(2, 1, 2))
    assert np.array_equal(ours, 4 * X)


@pytest.mark.parametrize(
    ("scope", "fields", "scales"),
    [("Tensor", {}, (1, 1, 1)), ("Channel", {"axis": -2}, (1, 4, 1)), ("Token", {}, (3, 4, 1)),
     ("Group", {"group_size": 2}, (3, 4, 3))],
)  # fmt: skip
def test_scales(scope: str, fields: dict[str, Any], scales: tuple[int, ...]) -> None:
    descriptor = getattr(bc, f"QuantizePer{scope}Descriptor")
    assert descriptor(shape=X.shape, element="float32", **fields).scale_shape == scales
    each = RNG.uniform(0.01, 0.05, scales).astype(np.float32)
    wide = np.repeat(each, 2, axis=2) if scope == "Group" else each
    codes = run(f"QuantizePer{scope}", y(*X.shape, dtype=np.int8), {"x": X, "scales": each}, shape=X.shape, **fields)
    quotients = np.rint(X / wide)
    assert np.array_equal(codes, np.clip(quotients, -128, 127).astype(np.int8))
    values = run(
        f"DequantizePer{scope}",
        y(*X.shape),
        {"x": codes, "scales": each},
        shape=X.shape,
        **fields | {"element": "int8"},
    )
    assert np.array_equal(values, codes * wide)
    out = ("dx", X.shape, np.float32)
    dx = run(f"QuantizePer{scope}Backward", out, {"dy": X, "x": X, "scales": each}, shape=X.shape, **fields)
    np.testing.assert_allclose(dx, np.where(abs(quotients + 0.5) <= 127.5, X / wide, 0), rtol=1e-6)


def test_indices_and_places() -> None:
    index = np.array([2, 0, 2], np.int64)
    ours = run("IndexSelect", y(3, 3, 6), {"x": X, "indices": index}, shape=X.shape, index_shape=3, axis=1)
    assert np.array_equal(ours, X[:, index])
    src = RNG.integers(0, 9, (3, 3, 6)).astype(np.float32)
    added = X.copy()
    np.add.at(added, np.s_[:, index], src)
    operands = {"x": X, "indices": [index], "values": src}
    np.testing.assert_allclose(
        run("IndexAdd", y(*X.shape), operands, shape=X.shape, axis=-2, index_length=3), added, rtol=1e-6
    )
    kth = run("Kthvalue", y(3, 4, 1), {"x": X}, shape=X.shape, k=2)
    assert np.array_equal(kth, np.sort(X, axis=-1)[..., 1:2])
    counts = run("Bincount", y(4, dtype=np.int64), {"x": np.abs(MIXED), "low": 0, "high": 4}, shape=5, bins=4,
                 element="int64")  # fmt: skip
    assert counts.tolist() == np.bincount(np.abs(MIXED)).tolist()
    for name, kinds in (("BoolReduce", ("any", "all")), ("ArgReduce", ("argmax", "argmin"))):
        dtype = np.bool_ if name == "BoolReduce" else np.int64
        for kind in kinds:
            ours = run(name, y(3, 4, dtype=dtype), {"x": X}, kind=kind, shape=X.shape, axis=-1)
            assert np.array_equal(ours, getattr(np, kind)(X, axis=-1)), kind


LABELS = np.array([1, 0, 6, 3, 2], np.int64)
SIGNS = RNG.choice((-1.0, 1.0), (5, 7)).astype(np.float32)
PARTS = RNG.uniform(0.05, 0.95, (2, 5, 7)).astype(np.float32)
LOSSES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Mse": ("mse_loss", {"target": SIGNS}, {}), "L1": ("l1_loss", {"target": SIGNS}, {}),
    "SmoothL1": ("smooth_l1_loss", {"target": SIGNS}, {"beta": 0.7}),
    "Huber": ("huber_loss", {"target": SIGNS}, {"delta": 0.7}),
    "Bce": ("binary_cross_entropy", {"x": PARTS[0], "target": PARTS[1]}, {}),
    "BceWithLogits": ("binary_cross_entropy_with_logits", {"target": PARTS[1]}, {}),
    "KlDiv": ("kl_div", {"target": PARTS[1]}, {"reduction": "batchmean"}),
    "PoissonNll": ("poisson_nll_loss", {"target": PARTS[1]}, {}),
    "GaussianNll": ("gaussian_nll_loss", {"target": SIGNS, "var": PARTS[0]}, {}),
    "HingeEmbedding": ("hinge_embedding_loss", {"target": SIGNS}, {"margin": 0.7}),
    "MarginRanking": ("margin_ranking_loss", {"other": PARTS[0], "target": SIGNS}, {"margin": 0.7}),
    "Nll": ("nll_loss", {"target": LABELS}, {}), "MultiMargin": ("multi_margin_loss", {"target": LABELS}, {"p": 2}),
    "MultilabelSoftMargin": ("multilabel_soft_margin_loss", {"hits": PARTS[1]}, {}),
    "MultilabelMargin": ("multilabel_margin_loss", {"labels": np.eye(5, 7, dtype=np.int64) - (np.arange(7) > 0)}, {}),
    "CosineEmbedding": ("cosine_embedding_loss", {"other": SIGNS, "target": SIGNS[:, 0].astype(np.int64)}, {}),
    "TripletMargin": ("triplet_margin_loss", {"positive": SIGNS, "negative": PARTS[0]}, {}),
}  # fmt: skip
"""A name → PyTorch's function, its operands in their order, and the options of both."""


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    torch = pytest.importorskip("torch")
    function, operands, options = LOSSES[name]
    operands = {"x": ROWS, **operands}
    shape = (
        {"batch_shape": 5, "features": 7}
        if issubclass(getattr(bc, f"{name}LossPlan"), bc.RowLossPlan)
        else {"shape": (5, 7)}
    )
    ours = run(f"{name}Loss", ("loss", (), np.float32), operands, **shape, **options)
    right = getattr(torch.nn.functional, function)(*map(torch.tensor, operands.values()), **options)
    np.testing.assert_allclose(ours, right, rtol=1e-5)


def test_pools() -> None:
    torch = pytest.importorskip("torch")
    for rank in (1, 2, 3):
        x = RNG.standard_normal((2, 3, *(6, 5, 7)[:rank])).astype(np.float32)
        pools = [("MaxPool", "max_pool", {"kernel_size": 2}), ("AvgPool", "avg_pool", {"kernel_size": 3, "padding": 1}),
                 ("AdaptiveMaxPool", "adaptive_max_pool", {"output_size": 3}),
                 ("AdaptiveAvgPool", "adaptive_avg_pool", {"output_size": 3})]  # fmt: skip
        pools += [("LpPool", "lp_pool", {"norm_type": 2.0, "kernel_size": 2})] if rank < 3 else []
        for name, function, options in pools:
            right = getattr(torch.nn.functional, f"{function}{rank}d")(torch.tensor(x), **options).numpy()
            ours = run(f"{name}{rank}d", y(*right.shape), {"x": x}, shape=x.shape, **options)
            np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-6, err_msg=f"{name}{rank}d")


def test_norms_and_bags() -> None:
    torch = pytest.importorskip("torch")
    f, x = torch.nn.functional, torch.tensor(X)
    shape = {"batch": 3, "channels": 4, "spatial": 6}
    for name, right, fields in (
        ("BatchNorm", f.batch_norm(x, None, None, training=True), {}), ("InstanceNorm", f.instance_norm(x), {}),
        ("GroupNorm", f.group_norm(x, 2), {"num_groups": 2}),
    ):  # fmt: skip
        ours = run(name, y(*X.shape), {"x": X}, **shape, **fields)
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5, err_msg=name)
    src, bounds = np.array([4, 0, 1, 1, 3, 0], np.int64), np.array([0, 2, 2, 6], np.int64)
    bags = {"num_segments": 3, "rows": 5, "tokens": 6, "row_shape": 7}
    operands = {"x": ROWS, "src": src, "index": bounds, "empty": 0}
    for name, kind in (("EmbeddingBag", "sum"), ("EmbeddingBag", "mean"), ("EmbeddingBagMax", "max")):
        right = f.embedding_bag(
            torch.tensor(src), torch.tensor(ROWS), torch.tensor(bounds), mode=kind, include_last_offset=True
        )
        ours = run(name, y(3, 7), operands, kind=kind, **bags)
        np.testing.assert_allclose(ours, right, rtol=1e-5, err_msg=kind)
