"""lora_matmul against PEFT's formula token by token: adapters in any order, segments, ranks, what is beyond them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(11)
X, A, B, BASE = (RNG.standard_normal(shape) for shape in ((7, 20), (3, 6, 20), (3, 9, 6), (7, 9)))
IDS = np.array([2, 0, 0, -1, 1, 2, 7])
SCALE = np.array([0.5, 2.0, -1.0], np.float32)


def by_token(ids, ranks=(6, 6, 6), base=BASE):
    y = base.copy()
    for t, i in enumerate(ids):
        if 0 <= i < 3:
            y[t] += SCALE[i] * (B[i, :, : ranks[i]] @ (A[i, : ranks[i]] @ X[t]))
    return y


def test_tokens_in_any_order() -> None:
    np.testing.assert_allclose(bc.lora_matmul(X, A, B, IDS, scale=SCALE, base=BASE), by_token(IDS), rtol=1e-12)
    y = BASE.copy()
    bc.lora_matmul(X, A, B, IDS, scale=SCALE, base=y, out=y)
    np.testing.assert_allclose(y, by_token(IDS), rtol=1e-12)
    np.testing.assert_array_equal(bc.lora_matmul(X, A, B, IDS)[[3, 6]], 0)


def test_segments_are_tokens_of_one_adapter() -> None:
    """Bounds that decrease are those before them; tokens of no segment have no adapter."""
    ids, bounds = np.array([1, 2, -1, 0], np.int32), np.array([1, 4, 2, 5, 6], np.int32)
    owners = [-1, 1, 1, 1, -1, 0, -1]
    np.testing.assert_allclose(bc.lora_matmul(X, A, B, ids, bounds, SCALE, base=BASE), by_token(owners), rtol=1e-12)


def test_what_is_beyond_a_rank_is_not_used() -> None:
    a, b, ranks = A.copy(), B.copy(), np.array([2, 0, 9])
    a[0, 2:], b[0, :, 2:], a[1], b[1] = np.nan, np.inf, np.nan, np.nan
    y = bc.lora_matmul(X, a, b, IDS, scale=SCALE, ranks=ranks, base=BASE)
    np.testing.assert_allclose(y, by_token(IDS, (2, 0, 6)), rtol=1e-12)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    x, base = (torch.tensor(one, requires_grad=True) for one in (X, BASE))
    a, b, ids, scale = (torch.tensor(one) for one in (A, B, IDS, SCALE))
    y = bct.lora_matmul(x, a, b, ids, scale=scale, base=base)
    dy = torch.tensor(RNG.standard_normal((7, 9)))
    dx, dbase = torch.autograd.grad(y, (x, base), dy)
    torch.testing.assert_close(dbase, dy)
    for t, i in enumerate(IDS):
        want = scale[i] * (dy[t] @ b[i]) @ a[i] if 0 <= i < 3 else torch.zeros(20, dtype=dy.dtype)
        torch.testing.assert_close(dx[t], want)


def by_definition(x, a, b, owners, scale, ranks, base):
    """The formula token by token, of tensors."""
    torch = pytest.importorskip("torch")
    rows = []
    for t, i in enumerate(owners):
        row = torch.zeros(b.shape[1], dtype=x.dtype) if base is None else base[t]
        if 0 <= i < len(a):
            rank = a.shape[1] if ranks is None else min(max(int(ranks[i]), 0), a.shape[1])
            made = b[i, :, :rank] @ (a[i, :rank] @ x[t])
            row = row + (made if scale is None else scale[i].to(x.dtype) * made)
        rows.append(row)
    return torch.stack(rows)


SEGMENTS = (np.array([1, 2, -1, 0], np.int32), np.array([1, 4, 2, 5, 6], np.int32), [-1, 1, 1, 1, -1, 0, -1])


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("ranks", [None, np.array([2, 0, 9])], ids=["whole", "ranks"])
@pytest.mark.parametrize(("ids", "offsets", "owners"), [(IDS, None, IDS), SEGMENTS], ids=["tokens", "segments"])
def test_every_adapter_is_trained(ids, offsets, owners, ranks, scaled) -> None:
    """Gradients of x, a, b, scale and base are those of the definition, of tokens in any order and of segments."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    ids, offsets, ranks = (None if one is None else torch.tensor(one) for one in (ids, offsets, ranks))
    weights = torch.linspace(-1, 2, 63, dtype=torch.float64).reshape(7, 9)
    results = []
    for ours in (True, False):
        x, a, b, base = leaves = [torch.tensor(one, requires_grad=True) for one in (X, A, B, BASE)]
        scale = torch.tensor(SCALE, requires_grad=True) if scaled else None
        if ours:
            y = bct.lora_matmul(x, a, b, ids, offsets, scale, ranks, base)
        else:
            y = by_definition(x, a, b, owners, scale, ranks, base)
        found = torch.autograd.grad((y * weights).sum(), [*leaves, *([scale] if scaled else [])])
        results.append([y, *found])
    for got, want in zip(*results, strict=True):
        tight = got.dtype == torch.float64
        torch.testing.assert_close(got, want, rtol=1e-10 if tight else 1e-6, atol=1e-10 if tight else 1e-5)


def test_only_what_is_asked_for_is_made() -> None:
    dy = RNG.standard_normal((7, 9))
    every = bc.lora_matmul_backward(
        dy, A, B, IDS, scale=SCALE, x=X, return_da=True, return_db=True, return_dscale=True
    )  # fmt: skip
    dx, dbase = bc.lora_matmul_backward(dy, A, B, IDS, scale=SCALE)
    assert len(every) == 5 and np.array_equal(every[0], dx) and np.array_equal(every[1], dbase)
    none = {"return_dx": False, "return_dbase": False}
    db = bc.lora_matmul_backward(dy, A, B, IDS, scale=SCALE, x=X, return_db=True, **none)
    np.testing.assert_array_equal(db, every[3])
    out = [np.full_like(A, np.nan), np.full(3, np.nan, np.float32)]
    given = bc.lora_matmul_backward(
        dy, A, B, IDS, scale=SCALE, x=X, return_da=True, return_dscale=True, out=out, **none
    )  # fmt: skip
    assert given[0] is out[0] and given[1] is out[1]
    np.testing.assert_array_equal(out[0], every[2])
    np.testing.assert_array_equal(out[1], every[4])
    with pytest.raises(InvalidProblemError, match="x is None; the gradients da, db need the x of the call"):
        bc.lora_matmul_backward(dy, A, B, IDS, return_da=True, return_db=True)
    with pytest.raises(InvalidProblemError, match="scale is None"):
        bc.lora_matmul_backward(dy, A, B, IDS, x=X, return_dscale=True)
    with pytest.raises(InvalidProblemError, match="no gradient is asked for"):
        bc.lora_matmul_backward(dy, A, B, IDS, **none)


@pytest.mark.parametrize(("tokens", "adapters", "rank"), [(0, 3, 6), (7, 0, 6), (7, 3, 0)])
def test_adapters_without_tokens_have_gradients_of_zero(tokens: int, adapters: int, rank: int) -> None:
    x, a, b = np.ones((tokens, 20)), np.ones((adapters, rank, 20)), np.ones((adapters, 9, rank))
    ids, flags = np.zeros(tokens, np.int64), {"return_dx": False, "return_dbase": False}
    da, db = bc.lora_matmul_backward(np.ones((tokens, 9)), a, b, ids, x=x, return_da=True, return_db=True, **flags)
    assert da.shape == a.shape and db.shape == b.shape and not da.any() and not db.any()
    segments = {"ids": np.zeros(0, np.int64), "offsets": np.zeros(1, np.int64)}  # and no segment at all
    da = bc.lora_matmul_backward(np.ones((tokens, 9)), a, b, **segments, x=x, return_da=True, **flags)
    assert da.shape == a.shape and not da.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_are_trained(dtype: str) -> None:
    """Against the definition in float64 of the same numbers; the sums of the rank are rounded once between."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    kind, eps = getattr(torch, dtype), torch.finfo(getattr(torch, dtype)).eps
    held = [torch.tensor(one).to(kind) for one in (X, A, B)]
    short = [one.clone().requires_grad_() for one in held]
    wide = [one.double().requires_grad_() for one in held]
    dy = torch.tensor(BASE).to(kind)
    got = torch.autograd.grad(bct.lora_matmul(*short, torch.tensor(IDS)), short, dy)
    want = torch.autograd.grad(by_definition(*wide, IDS, None, None, None), wide, dy.double())
    for one, true in zip(got, want, strict=True):
        assert one.dtype == kind
        torch.testing.assert_close(one.double(), true, rtol=4 * eps, atol=4 * eps * float(true.abs().max()))


def test_in_jax_every_adapter_is_trained() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    x, a, b, base = (jax.numpy.asarray(one, "float32") for one in (X, A, B, BASE))
    ids, scale = jax.numpy.asarray(IDS), jax.numpy.asarray(SCALE)

    def plain(x, a, b, scale, base):
        own = jax.numpy.clip(ids, 0, 2)
        made = scale[own][:, None] * jax.numpy.einsum("tnr,trk,tk->tn", b[own], a[own], x)
        return (base + jax.numpy.where(((ids >= 0) & (ids < 3))[:, None], made, 0)).sum()

    def ours(x, a, b, scale, base):
        return bj.lora_matmul(x, a, b, ids, scale=scale, base=base).sum()

    every = (0, 1, 2, 3, 4)
    for run in (lambda f: f, jax.jit):
        for got, want in zip(run(jax.grad(ours, every))(x, a, b, scale, base),
                             jax.grad(plain, every)(x, a, b, scale, base), strict=True):  # fmt: skip
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def emulated(sms: int, element: str, *kernels: str, backward: bool = False, **arrays: np.ndarray) -> np.ndarray:
    """y, or dx of x as dy, after launches of these kernels; of none given, whichever there are."""
    tokens = len(arrays["x"])
    adapters, rank, k = arrays["a"].shape
    n = arrays["b"].shape[1]
    facts = {"tokens": tokens, "in_features": k, "out_features": n, "adapters": adapters, "max_rank": rank}
    y = np.full((tokens, k if backward else n), np.nan, arrays["x"].dtype)
    given = {name: pointer_view(a) for name, a in (arrays | {"y": y}).items()}
    if backward:
        given = {{"x": "dy", "y": "dx"}.get(name, name): a for name, a in given.items()}
        given["dbase"] = pointer_view(copy := np.zeros_like(arrays["x"]))
    page, args = (
        (bc.LoraMatmulBackwardPlan, bc.LoraMatmulBackwardArgs) if backward else (bc.LoraMatmulPlan, bc.LoraMatmulArgs)
    )
    with emulating() as emulator:
        desc = page.descriptor(**facts, num_ids=len(arrays["ids"]), element=element)
        page.select(desc, device=emulated_device(8.0, sms)).run(args(**given))
        launched = [launch.function.symbol.split("__")[1] for launch in emulator.record.launches]
    assert not kernels or tuple(launched) == kernels
    assert not backward or copy.tobytes() == arrays["x"].tobytes()
    return y


@pytest.mark.usefixtures("emulation")
def test_a_token_alone_is_the_token_in_a_batch() -> None:
    """Tiles of eight tokens with all pieces of k in a block, one token and a block a piece: the same bits."""
    x = RNG.standard_normal((66, 1100)).astype(np.float32)
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 5, 1100), (3, 9, 5)))
    ids = np.sort(RNG.integers(-1, 3, 66))
    ids[::7] = 1
    whole = emulated(2, "float32", x=x, a=a, b=b, ids=ids)
    assert np.isfinite(whole).all()
    some = emulated(100, "float32", x=x[20:23], a=a, b=b, ids=ids[20:23])
    assert some.tobytes() == whole[20:23].tobytes()
    assert emulated(100, "float32", x=x, a=a, b=b, ids=ids).tobytes() == whole.tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_a_gradient_is_the_product_of_transposed_adapters(element: str) -> None:
    """Rows of eight tokens or one, adapters that lie along the rank and are turned in shared memory, or along k and in
    other copies: the same bits."""
    x = RNG.standard_normal((70, 600)).astype(element)
    a, b = ((RNG.standard_normal(s) / 8).astype(element) for s in ((2, 12, 9), (2, 600, 12)))
    ids = RNG.integers(-1, 2, 70)
    ids[10:40] = 1
    kernels = ("shrink", "expand")
    dx = emulated(2, element, *kernels, backward=True, x=x, a=a, b=b, ids=ids)
    turned = [np.ascontiguousarray(m.swapaxes(1, 2)) for m in (b, a)]
    y = emulated(100, element, *kernels, x=x[:64], a=turned[0], b=turned[1], ids=ids[:64])
    assert np.isfinite(y).all()
    assert dx[:64].tobytes() == y.tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_many_tokens_on_tensor_cores(element: str) -> None:
    """Whole and partial tiles of tokens, rank and columns; runs that end within a tile; what is beyond ranks is NaN."""
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    x, base = (RNG.standard_normal(s).astype(dtype) for s in ((150, 72), (150, 70)))
    a, b = ((RNG.standard_normal(s) / 4).astype(dtype) for s in ((3, 72, 72), (3, 70, 72)))
    ids, ranks = np.repeat([2, -1, 0, 1, 2], [40, 20, 30, 50, 10]), np.array([72, 66, 5])
    clean = {"a": a.copy(), "b": b.copy()}
    for i, rank in enumerate(ranks):
        a[i, rank:], b[i, :, rank:] = np.nan, np.nan
        clean["a"][i, rank:] = clean["b"][i, :, rank:] = 0
    y = emulated(100, element, x=x, a=a, b=b, ids=ids, ranks=ranks, scale=SCALE, base=base).astype(np.float64)
    want = base.astype(np.float64)
    for t, i in enumerate(ids):
        if i >= 0:
            down, up = (clean[n][i].astype(np.float64) for n in ("a", "b"))
            want[t] += SCALE[i] * (up @ (down @ x[t].astype(np.float64)))
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[element]
    assert (np.abs(y - want) <= eps * np.abs(want) + 1e-4).all()
    assert (y[40:60] == base[40:60].astype(np.float64)).all()


@pytest.mark.usefixtures("emulation")
def test_segments_on_tensor_cores() -> None:
    """Splits of k, ranges of several steps of columns, tiles of several adapters, blocks that have them in turn: the
    same on one multiprocessor, where a block has all but the splits; an infinite adapter stays out of others."""
    tokens, k, n, dtype = 90, 520, 300, ml_dtypes.bfloat16
    x = RNG.standard_normal((tokens, k)).astype(dtype)
    a, b = ((RNG.standard_normal(s) / 8).astype(dtype) for s in ((4, 40, k), (4, n, 40)))
    ids, bounds = RNG.integers(-1, 4, 20), np.sort(RNG.integers(0, tokens + 1, 21))
    ids[7], bounds[7:9] = 3, (30, 34)
    bounds.sort()
    owners = np.full(tokens, -1)
    for i, adapter in enumerate(ids):
        owners[bounds[i] : bounds[i + 1]] = adapter
    want = np.zeros((tokens, n))
    for t, i in enumerate(owners):
        if i >= 0:
            want[t] = b[i].astype(np.float64) @ (a[i].astype(np.float64) @ x[t].astype(np.float64))
    a[3], b[3] = np.inf, np.nan
    apart = owners == 3
    for sms in (100, 1):
        y = emulated(sms, "bfloat16", "shrink_mma", "expand_mma", x=x, a=a, b=b, ids=ids, offsets=bounds)
        assert np.isnan(y[apart]).all()
        assert (np.abs(y - want)[~apart] <= 2.0**-8 * np.abs(want[~apart]) + 1e-3).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("adapters", "some", "tokens", "rank"), [(9, 6, 200, 18), (100, 100, 70, 128)])
def test_tiles_of_one_adapter(adapters: int, some: int, tokens: int, rank: int, backward: bool) -> None:
    """Random ids, none and those out of range among them; adapters that nobody has, and more of them than tokens.

    A token has the same bits wherever it stands and whatever the others are; an infinite adapter stays out of them."""
    k, n, dtype = 72, 40, np.float16
    x, base = (RNG.standard_normal((tokens, width)).astype(dtype) for width in ((n, k) if backward else (k, n)))
    a, b = ((RNG.standard_normal(s) / 8).astype(dtype) for s in ((adapters, rank, k), (adapters, n, rank)))
    a[3] = np.inf
    ids = RNG.integers(-2, some + 1, tokens)
    ids[ids == 3] = 2
    ids[5:50:9] = 0
    given = {"x": x, "a": a, "b": b} if backward else {"x": x, "a": a, "b": b, "base": base}
    kernels = ("order", "shrink_mma", "expand_mma_across" if backward else "expand_mma")
    y = emulated(4, "float16", *kernels, backward=backward, ids=ids, **given)
    want = np.zeros(y.shape) if backward else base.astype(np.float64)
    for t, i in enumerate(ids):
        if 0 <= i < adapters:
            down, up = a[i].astype(np.float64), b[i].astype(np.float64)
            want[t] += x[t] @ up @ down if backward else up @ (down @ x[t])
    assert (np.abs(y - want) <= 2.0**-11 * np.abs(want) + 1e-4).all()
    turned = RNG.permutation(tokens)
    for name in {"x", "base"}.intersection(given):
        given[name] = given[name][turned]
    others = np.where(ids[turned] == 0, 0, 3)
    again = emulated(4, "float16", *kernels, backward=backward, ids=others, **given)
    assert again[others == 0].tobytes() == y[turned][others == 0].tobytes()


@pytest.mark.usefixtures("emulation")
def test_a_matrix_of_one_row_has_no_step() -> None:
    """Its stride is anything, and must not lead threads past its end to addresses that are not aligned."""
    x, a, b = np.ones((64, 1)), np.ones((1, 16, 1)), np.ones((1, 1, 16))
    x, a, b = (m.astype(np.float16) for m in (x, a, b))
    b = np.lib.stride_tricks.as_strided(b, b.shape, (32, 2, 2))
    assert (emulated(4, "float16", x=x, a=a, b=b, ids=np.zeros(64, np.int64)) == 16).all()


def test_refusals() -> None:
    with pytest.raises(InvalidProblemError, match="ids must have 7 items"):
        bc.lora_matmul(X, A, B, IDS[:3])
    with pytest.raises(InvalidProblemError, match="max_rank must be at most 512"):
        bc.lora_matmul(X, np.ones((1, 600, 20)), np.ones((1, 9, 600)), IDS)
    with pytest.raises(InvalidProblemError, match="b"):
        bc.lora_matmul(X, A, B[:2], IDS)
