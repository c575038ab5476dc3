"""`baracuda_py.nn.functional` on tensors that autograd or torch.compile follows, on devices, and on other packages."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
import baracuda_py.nn.functional as NF
from baracuda_py.core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from tests.interop.test_nn_functional_calls import CALLS, flat, names

torch = pytest.importorskip("torch")
LEAVES = ("X", "Y", "P", "F32", "Z", "S", "LP", "N", "C")
CASTS = ("add(", "sub(", "mul(", "div(", "where(", "clamp(", "cat(", "mse_loss(", "lerp(", "pow(", "xlogy(", "atan2(")
FORMS = (
    "scatter", "std", "var", "norm(", "gradient(", "trap", "masked_select", "select(", "gather", "take", "max(", "min(",
    "sort(", "addmm", "cross_entropy", "ctc_loss", "kl_div", "adaptive", "repeat_inter", "transpose", "view_as",
    "median", "quantile(X", "softmax", "scaled_dot", "index_", "cumsum", "broadcast_to", "pad(", "stack",
)  # fmt: skip
NOT_THERE = ("cross_entropy(X, K, P[0]",)  # a gradient by class weights, which are constants here
GROWN = [
    one for one in CALLS if one.startswith((*CASTS, *FORMS)) and not one.startswith(NOT_THERE) and "out=" not in one
]


def gradients(call: str, module: Any) -> list[Any] | None:
    """The gradients of a weighted sum of the results by the leaves; None where they have none."""
    held, used = names(), set(re.findall(r"[A-Za-z_]\w*", call))
    leaves = {name: held[name].detach().clone().requires_grad_() for name in LEAVES if name in used}
    name = call.partition("(")[0]
    theirs = torch.nn.functional if hasattr(torch.nn.functional, name) else torch
    made = eval(f"M.{call}", {**held, **leaves, "M": module or theirs})
    grown = [y for y in flat(made) if torch.is_tensor(y) and y.requires_grad]
    if not grown:
        return None
    real = [(torch.view_as_real(y) if y.is_complex() else y).double() for y in grown]
    total = sum((y * torch.arange(1, y.numel() + 1).reshape(y.shape)).sum() for y in real)
    return list(torch.autograd.grad(total, list(leaves.values()), allow_unused=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", GROWN)
def test_gradients_are_torchs(call: str) -> None:
    try:
        wanted = gradients(call, None)
    except RuntimeError:  # torch has none of a source that is longer than its index
        return
    if wanted is None:
        return
    made = gradients(call, NF)
    assert made is not None
    for a, b in zip(made, wanted, strict=True):
        if a is None or b is None:
            assert a is b or not (b if a is None else a).any()
            continue
        single = a.dtype in (torch.float32, torch.complex64) or "float" in call or "F32" in call
        within = {"rtol": 1e-4, "atol": 1e-4} if single else {"rtol": 1e-7, "atol": 1e-9}
        torch.testing.assert_close(a, b, equal_nan=True, **within)


X, Y, F32, I, IX = (names()[name] for name in ("X", "Y", "F32", "I", "IX"))  # noqa: E741
COMPILED = {
    "promoted": lambda x: NF.add(x, I) + NF.sin(I),
    "softmax": lambda x: NF.softmax(x, dim=-1, dtype=torch.float32),
    "scatter": lambda x: NF.scatter(x, 1, IX, 2.0, reduce="add"),
    "values": lambda x: NF.max(x, 1).values,
    "unbiased": lambda x: NF.std(x, False),
    "norm": lambda x: NF.norm(x, "fro", dim=(0, 1)),
    "gradient": lambda x: NF.gradient(x, spacing=2.0, dim=0)[0],
    "where": lambda x: NF.where(x > 0, x, 0),
    "select": lambda x: NF.select(x, 1, 2),
    "like": lambda x: NF.zeros_like(x, device="cpu", dtype=torch.float32) + x,
    "made": lambda x: NF.zeros(3, 4, device="cpu") + x,
    "loss": lambda x: NF.mse_loss(x, F32),
    "cat": lambda x: NF.cat([x, F32], 1),
    "pool": lambda x: NF.adaptive_avg_pool2d(x[None, None], (None, 2)),
    "counts": lambda x: NF.one_hot(IX, 5) + x.sum(),
    "number": lambda x: NF.searchsorted(Y[0].sort().values, 0.5) + x.sum(),
    "rows": lambda x: NF.median(x.t()),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_call_is_in_the_graph(name: str) -> None:
    call, made = COMPILED[name], []
    torch._dynamo.reset()
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        x = X.clone().requires_grad_()
        y = function(x)
        made.append([y.detach(), *(torch.autograd.grad(y.double().square().sum(), x) if y.requires_grad else ())])
    torch.testing.assert_close(made[0], made[1])


@pytest.mark.filterwarnings("ignore")
def test_a_shape_that_depends_on_values_ends_the_graph() -> None:
    def call(x: Any) -> Any:
        return NF.masked_select(x, x > 0) * 2, NF.nonzero(x > 0) + 1, NF.one_hot(IX)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(call, backend="aot_eager")(X), call(X))


# ---- what is made ----------------------------------------------------------------------------------------------------


def test_where_things_are_made() -> None:
    assert isinstance(NF.zeros(2, 3), np.ndarray) and isinstance(NF.rand(2, seed=1), np.ndarray)
    assert torch.is_tensor(NF.zeros(2, 3, device="cpu")) and torch.is_tensor(NF.arange(3, like=X))
    meta = NF.empty_like(X, device="meta")
    assert meta.is_meta and meta.shape == X.shape and meta.dtype == X.dtype
    assert NF.ones(2, device="cpu", requires_grad=True).requires_grad and NF.zeros_like(X, requires_grad=True).is_leaf
    last = NF.zeros_like(torch.ones(1, 2, 3, 4), memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    out = torch.empty(2, 2)
    assert NF.full((2, 2), 1.5, out=out) is out and out.eq(1.5).all()


def test_draws_come_from_torchs_generators() -> None:
    for draw in (
        lambda **more: NF.rand(4, device="cpu", **more),
        lambda **more: NF.randint(100, (4,), device="cpu", **more),
        lambda **more: NF.bernoulli(X, 0.5, **more),
        lambda **more: NF.normal(X, 1.0, **more),
    ):
        torch.manual_seed(3)
        first, second = draw(), draw()
        torch.manual_seed(3)
        assert torch.equal(draw(), first) and not torch.equal(first, second)
        own = [draw(generator=torch.Generator().manual_seed(5)) for _ in range(2)]
        assert torch.equal(*own)
    assert NF.rand(3, generator=torch.Generator()).device.type == "cpu"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: NF.rand(2, 3), r"seed is None; give a stream by seed=, or device="),
        (lambda: NF.zeros(2, layout=torch.sparse_coo), "layout must be torch.strided"),
        (lambda: NF.zeros(2, pin_memory=True), "pin_memory"),
        (lambda: NF.zeros(2, requires_grad=True), "requires_grad is of torch's tensors"),
        (lambda: NF.zeros_like(np.ones(2), device="cpu"), "device is of torch's tensors"),
        (lambda: NF.rand(2, generator=7, device="cpu"), "generator must be a torch.Generator"),
        (lambda: NF.norm(X, "nuc"), "nuc"),
        (lambda: NF.scatter(X, 1, IX, Y, reduce="mean"), 'reduce must be "add" or "multiply"'),
        (lambda: NF.select(X, 1, 4), r"index must lie in \[-4, 3\]"),
        (lambda: NF.nonzero(X, out=torch.empty(3, 2, dtype=torch.int64)), "out must have the shape"),
        (lambda: NF.gather(X, 1, IX, sparse_grad=True), "sparse_grad"),
        (lambda: NF.mse_loss(X, Y, reduction="max"), "reduction must be"),
        (lambda: NF.std(X, unbiased=False, correction=0), "correction"),
    ],
)
def test_what_is_refused(call: Any, says: str) -> None:
    with pytest.raises(BaracudaError, match=says):
        call()


# ---- shapes that depend on values ------------------------------------------------------------------------------------


def test_padded_results_are_there_for_the_asking() -> None:
    assert flat(NF.nonzero(X, size=5))[0].shape == flat(bc.nonzero(X, size=5))[0].shape
    assert NF.masked_select(X, X > 0, size=5)[0].shape == (5,)
    assert NF.unique(I, size=7)[0].shape == (7,)
    assert NF.bincount(IX.flatten(), length=7).shape == (7,) and NF.one_hot(IX, classes=4).shape == (3, 2, 4)


def test_arrays_of_other_packages() -> None:
    x = X.numpy()
    assert NF.nonzero(x > 0).shape == tuple(X.gt(0).nonzero().shape) and isinstance(NF.unique(x), np.ndarray)
    assert isinstance(NF.max(x, 1).values, np.ndarray) and NF.add(x.astype(np.float32), x).dtype == np.float64
    assert NF.scatter(x, 1, IX.numpy(), 2.0).tolist() == torch.scatter(X, 1, IX, 2.0).tolist()


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(F32.numpy())
    made = jax.jit(lambda x: NF.softmax(NF.add(x, 2.5), dim=-1))(x)
    np.testing.assert_allclose(made, torch.softmax(F32 + 2.5, -1), rtol=1e-6)
    slope = jax.grad(lambda x: NF.mean(NF.mul(x, NF.sin(jax.numpy.arange(4)))))(x)
    np.testing.assert_allclose(slope[0], torch.arange(4).sin() / 12, rtol=1e-6)
    assert NF.masked_select(x, x > 0).shape == tuple(F32[F32 > 0].shape)
    with pytest.raises(UnsupportedError, match=r"depends on values.*give size="):
        jax.jit(lambda x: NF.nonzero(x))(x)
    with pytest.raises(InvalidProblemError, match="seed is None"):
        NF.rand(2, like=x)


def test_nothing_needs_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np, baracuda_py.nn.functional as F;"
        "x = np.ones((2, 3));"
        "assert F.add(np.arange(3), 2.5).dtype == np.float32 and F.max(x, 1).values.shape == (2,)\n"
        "try: F.zeros(2, device='cpu')\nexcept ValueError as error: assert 'torch' in str(error)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_our_own_words_are_taken_by_what_is_written_by_hand() -> None:
    x, y = X.numpy(), Y.numpy()
    assert NF.addmm(c=np.zeros((3, 3)), a=x, b=y.T).shape == (3, 3) and NF.inner(a=x, b=y).shape == (3, 3)
    assert NF.gather(x=x, index=IX.numpy(), axis=1).shape == (3, 2) and NF.std(x=x, axis=1).shape == (3,)
    assert NF.where(condition=x > 0, a=x, b=y).shape == (3, 4)
    assert NF.cross(a=x[:, :3], b=y[:, :3], axis=1).shape == (3, 3)
    assert NF.tensor_split(x=x, indices_or_sections=2, axis=1)[0].shape == (3, 2)
    assert NF.select(conditions=[x > 0], choices=[x], default=1.0).shape == (3, 4)
    with pytest.raises(InvalidProblemError, match=r"gather\(\) has dim twice"):
        NF.gather(X, dim=1, axis=1, index=IX)


def test_gradients_of_views_and_casts_to_complex() -> None:
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    pairs = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    real = torch.randn(3, dtype=torch.float16, requires_grad=True)
    for made, wanted, leaf in (
        (bc.view_as_real(z), torch.view_as_real(z), z),
        (bc.view_as_complex(pairs).abs(), torch.view_as_complex(pairs).abs(), pairs),
        (bc.cast(real, "complex64").abs(), real.to(torch.complex64).abs(), real),
    ):
        own, theirs = (torch.autograd.grad(y.square().sum(), leaf)[0] for y in (made, wanted))
        assert own.dtype == theirs.dtype
        torch.testing.assert_close(own, theirs)


def test_symbols_of_formulas() -> None:
    formula = bc.elementwise(lambda x, y: NF.where(x > 0, NF.add(x, 1.0), NF.sign(y)) * NF.sin(x))
    torch.testing.assert_close(formula(F32, F32), torch.where(F32 > 0, F32 + 1, F32.sign()) * F32.sin())
