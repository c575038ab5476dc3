"""Block masks of mask formulas: what they say, that attention under one has the same bits, what may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.preference import PlanPreference
from baracuda_py.expressions.block_mask_plan import block_mask_plan_of
from baracuda_py.expressions.block_masks import taken
from baracuda_py.testing import emulated, exercise
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(0)
B, H, KV, Q, K = 2, 2, 1, 150, 280
DOC = np.stack([np.arange(K) // 140, (np.arange(K) > 200) * 3]).astype(np.int32)
SCORE, MASK = "s + bias[h, q - k]", "doc[b, q] == doc[b, k] and q != 145"
GIVEN: dict[str, Any] = {"bias": RNG.standard_normal((H, Q + K)).astype(np.float32), "doc": DOC}
FLASH: Any = bc.flash_sdpa


def tensors(dtype: Any, d: int = 16) -> dict[str, np.ndarray]:
    shapes = {"q": (B, H, Q, d), "k": (B, KV, K, d), "v": (B, KV, K, d)}
    return {name: RNG.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def test_it_says_what_the_formula_says_of_blocks() -> None:
    given = tensors(np.float64)
    made = bc.attention(mask=MASK).block_mask(given["q"], given["k"], query_block=32, key_block=16, doc=DOC)
    seen = (DOC[:, :Q, None] == DOC[:, None]) & (np.arange(Q) != 145)[None, :, None]
    assert made.kinds.shape == (B, 1, 5, 18) and made.kinds.dtype == np.uint8
    for b, i, j in np.ndindex(B, 5, 18):
        block = seen[b, 32 * i : 32 * i + 32, 16 * j : 16 * j + 16]
        assert made.kinds[b, 0, i, j] == (2 if block.all() else 1 if block.any() else 0)
    assert set(np.unique(made.kinds)) == {0, 1, 2}


def test_it_is_shared_where_the_formula_names_no_batch_or_head() -> None:
    given = tensors(np.float32)

    def shape(mask: str, **more: Any) -> Any:
        return bc.attention(mask=mask).block_mask(given["q"], given["k"], **more).kinds.shape

    assert shape("q - k < n", n=9) == (1, 1, 2, 3)
    assert shape("k < t[h]", t=np.arange(H)) == (1, H, 2, 3)
    assert shape("doc[b, q] == doc[b, k] and h < n", doc=DOC, n=2) == (B, H, 2, 3)
    assert shape("t[u[b]] <= k", t=DOC[0], u=np.arange(B), query_block=64) == (B, 1, 3, 3)


def test_numpy_gives_the_same_under_one() -> None:
    given, f = tensors(np.float64), bc.attention(SCORE, MASK)
    q, k, v = given.values()
    made = f.block_mask(q, k, query_block=16, key_block=32, **GIVEN)
    more: dict[str, Any] = {"is_causal": True, **GIVEN}
    y, lse = f(q, k, v, return_lse=True, **more)
    for one, other in zip(f(q, k, v, return_lse=True, block_mask=made, **more), (y, lse), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(FLASH(q, k, v, score=SCORE, mask=MASK, block_mask=made, **more), y)
    wrt = ("q", "k", "v", "bias")
    for one, other in zip(
        f.vjp(y, q, k, v, wrt=wrt, **more), f.vjp(y, q, k, v, wrt=wrt, block_mask=made, **more), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_mask_by_hand_is_kept_to() -> None:
    """Blocks that it hides are hidden, and what it shows is seen whatever the formula says."""
    given = tensors(np.float64)
    kinds = RNG.integers(0, 3, (1, H, 3, 3)).astype(np.uint8)
    got = bc.attention(mask="k > q")(*given.values(), block_mask=bc.BlockMask(kinds, 64, 128))
    every = kinds[:, :, np.arange(Q)[:, None] // 64, np.arange(K) // 128]
    seen = (every == 2) | (every == 1) & (np.arange(K) > np.arange(Q)[:, None])
    np.testing.assert_array_equal(got, FLASH(*given.values(), mask=np.broadcast_to(seen, (B, H, Q, K))))


def test_torchs_block_mask_serves() -> None:
    torch = pytest.importorskip("torch")
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = (torch.tensor(x) for x in tensors(np.float64).values())
    doc, f = torch.tensor(DOC), bc.attention(mask="doc[b, q] == doc[b, k]")
    theirs = flex.create_block_mask(lambda b, h, i, j: doc[b, i] == doc[b, j], B, None, Q, K, "cpu", BLOCK_SIZE=32)
    mine = f.block_mask(q, k, query_block=32, key_block=32, doc=doc)
    found = taken(theirs)
    assert found is not None and (found.query_block, found.key_block) == (32, 32)
    edge = (..., slice(Q // 32), slice(K // 32))  # torch has no full blocks at the ends
    torch.testing.assert_close(found.kinds[edge], mine.kinds[edge])
    torch.testing.assert_close(found.kinds != 0, mine.kinds != 0)
    assert torch.equal(f(q, k, v, doc=doc, block_mask=theirs), f(q, k, v, doc=doc))


def test_what_cannot_be_given_is_refused() -> None:
    given, f = tensors(np.float32), bc.attention("s + bias[h, q - k]", "k < n")
    q, k, v = given.values()
    with pytest.raises(bc.InvalidProblemError, match="powers of 2 from 16 on, got 48"):
        f.block_mask(q, k, query_block=48, n=3)
    with pytest.raises(bc.InvalidProblemError, match="needs n"):
        f.block_mask(q, k)
    with pytest.raises(bc.InvalidProblemError, match="unexpected keyword argument 'm'"):
        f.block_mask(q, k, n=3, m=4)
    with pytest.raises(bc.InvalidProblemError, match="has no mask"):
        bc.attention("s * 2").block_mask(q, k)
    with pytest.raises(bc.InvalidProblemError, match="must be a BlockMask"):
        f(q, k, v, block_mask=np.zeros((1, 1, 2, 3), np.uint8), n=3, bias=GIVEN["bias"])
    with pytest.raises(bc.InvalidProblemError, match="block_mask"):
        f(q, k, v, block_mask=bc.BlockMask(np.zeros((1, 1, 3, 3), np.uint8)), n=3, bias=GIVEN["bias"])


# ---- kernels ---------------------------------------------------------------------------------------------------------


def run(plan: Any, row: str, given: dict[str, Any], outputs: dict[str, np.ndarray], **fields: Any) -> None:
    """Emulates a row's kernels for one batch."""
    for name in GIVEN:
        fields |= {f"{name}_shape": given[name].shape, f"{name}_element": str(given[name].dtype)}
    sizes = {"batch_size": 1, "num_heads": H, "num_kv_heads": KV, "query_len": Q, "key_len": K}
    d = given["q"].shape[-1]
    desc = plan.descriptor(**sizes, d_k=d, d_v=d, element=str(given["q"].dtype), **fields)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(variant for variant in chosen.rows if variant.name == row)
    with emulating(1):
        chosen.run(plan.args(**{name: pointer_view(x) for name, x in (given | outputs).items() if x is not None}))


def results(row: str, given: dict[str, Any], **fields: Any) -> dict[str, np.ndarray]:
    """y, lse and gradients."""
    q, plan = given["q"], bc.attention(SCORE, MASK).plan()
    out = {"y": np.full(q.shape, 7, q.dtype), "lse": np.full(q.shape[:3], 7, np.float32)}
    run(plan, row, given, out, **fields)
    kept = {"y": np.nan_to_num(out["y"], posinf=60.0), "lse": out["lse"], "dy": np.flip(q, 3).copy()}
    grads = {f"d{name}": np.full(given[name].shape, 7, q.dtype) for name in ("q", "k", "v")}
    finite = {name: x for name, x in given.items() if name != "v"} | {"v": np.nan_to_num(given["v"], posinf=1.0)}
    run(plan.vjp.plan, {"mma_wide": "mma"}.get(row, row), finite | kept, grads, **fields)  # type: ignore[union-attr]
    return out | grads


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("row", "d", "blocks", "is_causal"),
    [
        ("simt", 16, (16, 32), False), ("simt", 16, (128, 128), True), ("mma", 16, (128, 64), False),
        ("mma", 16, (16, 32), True), ("mma_wide", 16, (64, 128), False), ("mma", 192, (64, 64), True),
        ("wgmma", 64, (64, 64), False), ("wgmma", 64, (16, 128), True), ("wgmma", 128, (128, 64), False),
    ],
)  # fmt: skip
def test_kernels_give_the_same_bits_under_one(row: str, d: int, blocks: tuple[int, int], is_causal: bool) -> None:
    """As without it, infinite values among the hidden ones, and a row that sees nothing."""
    given: dict[str, Any] = {n: x[:1] for n, x in tensors(np.float32 if row == "simt" else np.float16, d).items()}
    given |= {"bias": GIVEN["bias"], "doc": DOC[:1]}
    sizes: dict[str, Any] = {"query_block": blocks[0], "key_block": blocks[1]}
    kinds = bc.attention(mask=MASK).block_mask(given["q"], given["k"], **sizes, doc=DOC[:1]).kinds
    assert set(np.unique(kinds)) == {0, 1, 2}
    given["v"][0, :, 150:270:7] = np.inf
    plain = results(row, given, is_causal=is_causal, **sizes)
    masked = results(row, given | {"block_mask": kinds}, is_causal=is_causal, **sizes)
    for name, value in plain.items():
        assert value.tobytes() == masked[name].tobytes(), name
    assert (plain["lse"][:, :, 145] == -np.inf).all() and not plain["y"][:, :, 145].any()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("mask", [MASK, "t[h] <= k and k <= q + t[h + 1]"])
def test_its_kernel_computes_it(mask: str) -> None:
    formula: Any = bc.attention(mask=mask).formula.of_mask
    exercise(block_mask_plan_of(formula, ()), emulated, examples=10, seeded=False)
