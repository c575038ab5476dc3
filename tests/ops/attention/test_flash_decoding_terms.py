"""flash_decoding with terms is flash_sdpa with them; what hides cells; paged decoding has the same terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py import FlashDecodingPlan, batch_paged_decode, batch_paged_decode_fp8, flash_decoding, flash_sdpa
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view
from paged_caches import deal

LENGTHS = np.array([40, 1, 13])
HEADS, CELLS = 6, 40
RNG = np.random.default_rng(0)
SLOPES, SINKS = RNG.uniform(0, 0.5, HEADS), RNG.standard_normal(HEADS)
TERMS: dict[str, dict[str, Any]] = {
    "sinks": {"sinks": SINKS},
    "slopes": {"slopes": SLOPES},
    "slopes of sequences": {"slopes": RNG.uniform(0, 0.5, (3, HEADS))},
    "softcap": {"softcap": 0.7},
    "window": {"window_left": 9},
    "all": {"sinks": SINKS, "slopes": SLOPES, "softcap": 0.7, "window_left": 9},
}


def make(seed: int = 1) -> tuple[np.ndarray, ...]:
    """q and two caches."""
    rng = np.random.default_rng(seed)
    shapes = (3, HEADS, 8), (3, 2, CELLS, 8), (3, 2, CELLS, 6)
    return tuple(rng.standard_normal(shape) for shape in shapes)


def one_by_one(q: Any, k: Any, v: Any, lengths: Any, slopes: Any = None, **terms: Any) -> tuple[np.ndarray, ...]:
    """flash_sdpa of each sequence, whose query stands at its last key."""
    made = []
    for b, n in enumerate(lengths.tolist()):
        of_b = slopes[b : b + 1] if slopes is not None and slopes.ndim == 2 else slopes
        given = (q[b : b + 1, :, None], k[b : b + 1, :, :n], v[b : b + 1, :, :n])
        made.append(flash_sdpa(*given, slopes=of_b, causal_alignment="bottom_right", return_lse=True, **terms))
    return np.concatenate([y[:, :, 0] for y, _ in made]), np.concatenate([lse[:, :, 0] for _, lse in made])


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_is_attention_with_the_terms(terms: dict[str, Any]) -> None:
    q, k, v = make()
    y, lse = flash_decoding(q, k, v, LENGTHS, return_lse=True, **terms)
    want, want_lse = one_by_one(q, k, v, LENGTHS, **terms)
    np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-12)


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_pages_have_the_same_terms(terms: dict[str, Any]) -> None:
    q, k, v = make()
    caches, table = deal(np.random.default_rng(2), [k, v], 8, np.nan, lengths=LENGTHS)
    got = batch_paged_decode(q, *caches, page_table=table, lengths=LENGTHS, return_lse=True, **terms)
    want = flash_decoding(q, k, v, LENGTHS, return_lse=True, **terms)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def test_sinks_of_an_fp8_cache_scale_what_the_keys_leave() -> None:
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, 4, 16)).astype(np.float16)
    k, v = (rng.integers(0, 0x50, (4, 2, 8, 16)).astype(np.uint8) for _ in range(2))
    facts = {"page_table": np.array([[0, 1], [2, 3]]), "lengths": np.array([16, 0]), "return_lse": True, "k_scale": 0.1}
    sinks = np.array([0.5, -1.0, 3.0, -np.inf], np.float32)
    y, lse = batch_paged_decode_fp8(q, k, v, **facts)
    got, got_lse = batch_paged_decode_fp8(q, k, v, sinks=sinks, **facts)
    np.testing.assert_allclose(got_lse[0], np.logaddexp(lse[0], sinks), rtol=1e-5)
    np.testing.assert_allclose(got[0], y[0] * np.exp(lse[0] - got_lse[0])[:, None], rtol=2e-3, atol=1e-4)
    assert not got[1].any() and (got_lse[1] == sinks).all()


def test_weights_leave_a_part_to_the_sink() -> None:
    q, k, v = make()
    _, lse, weights = flash_decoding(q, k, v, LENGTHS, sinks=SINKS, return_lse=True, return_weights=True)
    np.testing.assert_allclose(weights.sum(-1), 1 - np.exp(SINKS - lse), rtol=1e-6)


MASK = np.random.default_rng(4).random((3, HEADS, CELLS)) < 0.6


@pytest.mark.parametrize("rows", [slice(None), slice(0, 1)], ids=["heads", "shared"])
@pytest.mark.parametrize("kind", ["bool", "added", "4 axes"])
def test_masks(rows: slice, kind: str) -> None:
    q, k, v = make()
    seen = MASK[:, rows]
    mask = seen if kind != "added" else np.where(seen, RNG.standard_normal(seen.shape), -np.inf)
    y, lse = flash_decoding(q, k, v, mask=mask[:, :, None] if kind == "4 axes" else mask, return_lse=True)
    want, want_lse = flash_sdpa(q[:, :, None], k, v, mask[:, :, None], return_lse=True)
    np.testing.assert_allclose(y, want[:, :, 0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse[:, :, 0], rtol=1e-12)


def test_a_row_of_the_lowest_number_is_not_hidden() -> None:
    q, k, v = (one.astype(np.float32) for one in make())
    y = flash_decoding(q, k, v, mask=np.full((3, 1, CELLS), np.finfo(np.float32).min, np.float32))
    np.testing.assert_allclose(y, v.mean(2).repeat(3, axis=1), rtol=1e-4, atol=1e-5)
    y, lse = flash_decoding(q, k, v, mask=np.zeros((1, 1, CELLS), bool), return_lse=True)
    assert not y.any() and np.isneginf(lse).all()


def test_starts_are_left_padding() -> None:
    q, k, v = make()
    starts = np.array([7, 0, 13])
    k[0, :, :7], v[0, :, :7], k[2], v[2] = np.nan, np.nan, np.nan, np.nan
    y, lse, weights = flash_decoding(q, k, v, LENGTHS, starts=starts, return_lse=True, return_weights=True)
    want = flash_decoding(q[:1], k[:1, :, 7:40], v[:1, :, 7:40])
    np.testing.assert_array_equal(y[:1], want)
    assert not y[2].any() and np.isneginf(lse[2]).all() and not weights[0, :, :7].any()
    windowed = flash_decoding(q, k, v, LENGTHS, starts=starts, window_left=50)
    np.testing.assert_array_equal(windowed, y)


def test_rows_of_the_cache_by_index() -> None:
    q, k, v = make()
    index = np.array([2, 0, 2])
    y = flash_decoding(q, k[:, :, :, :], v, LENGTHS, batch_index=index)
    np.testing.assert_array_equal(y, flash_decoding(q, k[index], v[index], LENGTHS))
    y, lse = flash_decoding(q, k[:2], v[:2], LENGTHS, batch_index=np.array([1, 2, -1]), return_lse=True)
    np.testing.assert_array_equal(y[:1], flash_decoding(q[:1], k[1:2], v[1:2]))
    assert not y[1:].any() and np.isneginf(lse[1:]).all()


def test_wrong_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = make()
    with pytest.raises(InvalidProblemError, match="3 sequences and a cache of 2: give batch_index"):
        flash_decoding(q, k[:2], v[:2])
    with pytest.raises(InvalidProblemError, match="mask must have one row of cells for the one query"):
        flash_decoding(q, k, v, mask=np.ones((3, 1, 2, CELLS), bool))
    with pytest.raises(InvalidProblemError, match="mask must broadcast to shape"):
        flash_decoding(q, k, v, mask=np.ones((3, 2, CELLS), bool))
    with pytest.raises(InvalidProblemError, match="sinks must have shape"):
        flash_decoding(q, k, v, sinks=np.zeros(2))
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(InvalidProblemError, match="starts holds 41, the cache 40 cells"):
        flash_decoding(q, k, v, starts=np.array([0, 41, 0]))
    with pytest.raises(InvalidProblemError, match="batch_index holds 3, the cache 3 rows"):
        flash_decoding(q, k, v, batch_index=np.array([0, 3, 0]))


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_kernels_with_terms_are_for_problems_with_terms(element: str) -> None:
    sizes = {"batch_size": 2, "num_heads": 8, "num_kv_heads": 2, "max_cache_len": 64, "d_k": 64, "d_v": 64}

    def steps(given: tuple[str, ...] = (), **terms: Any) -> list[Any]:
        desc = FlashDecodingPlan.descriptor(**sizes, **terms, element=element)
        problem = dense_problem(FlashDecodingPlan, desc, fake_device(9.0), optional=True)
        for name in set(problem.views) - {"q", "k", "v", "y", *given}:
            problem.views[name] = None  # type: ignore[index]
        return FlashDecodingPlan.select(desc, device=fake_device(9.0)).rows[0].geometry(problem).steps

    assert not any("terms" in step.kernel for step in steps(("lengths",)))
    for name in ("mask", "slopes", "sinks", "starts", "batch_index"):
        assert all("terms" in step.kernel for step in steps((name,))), name
    assert all("terms" in step.kernel for step in steps(softcap=1.0))
    assert all("terms" in step.kernel for step in steps(window_left=3))
    assert steps(("sinks",))[0].params["block_heads"] == 4 if element == "float32" else 16
    assert steps(("mask",))[0].params["block_heads"] == 1  # a row for each head
    assert steps(("mask",))[0].grid[0] == 2 * 8


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("heads", [1, 6])
def test_hidden_cells_are_not_read(element: str, kind: str, heads: int) -> None:
    """Whatever they hold, in kernels whose products would spread it; several tiles of a warp, the last a part."""
    sizes = {"batch_size": 2, "num_heads": 6, "num_kv_heads": 2, "max_cache_len": 205, "d_k": 24, "d_v": 16}
    desc = FlashDecodingPlan.descriptor(**sizes, element=element)
    given = {"mask": True, "lengths": True, "lse": True}
    rng = np.random.default_rng(5)
    present = dict.fromkeys(("slopes", "sinks", "starts", "batch_index", "weights", "mean_weights"), False) | given
    case = fill(FlashDecodingPlan, desc, rng, present)
    seen = rng.random((2, heads, 205)) < 0.5
    hidden = ~seen.any(1) if heads == 1 else ~seen.reshape(2, 2, 3, 205).any((1, 2))
    case.arrays["mask"] = seen if kind == "bool" else np.where(seen, 1.5, -np.inf).astype(np.float32)
    for name in ("k", "v"):
        bits = case.arrays[name]
        bits[np.broadcast_to(hidden[:, None, :, None], bits.shape)] = np.nan if element == "float32" else 0x7FC0
    emulate(FlashDecodingPlan.select(desc, device=emulated_device(9.0)), operands(case))


@pytest.mark.usefixtures("emulation")
def test_a_value_that_one_head_hides_is_another_heads() -> None:
    sizes = {"batch_size": 1, "num_heads": 4, "num_kv_heads": 1, "max_cache_len": 70, "d_k": 16, "d_v": 16}
    desc = FlashDecodingPlan.descriptor(**sizes, element="float16")
    present = dict.fromkeys(("slopes", "sinks", "starts", "batch_index", "weights", "mean_weights", "lengths"), False)
    case = fill(FlashDecodingPlan, desc, np.random.default_rng(6), present)
    seen = np.ones((1, 4, 70), bool)
    seen[0, 1:3, 33] = False
    case.arrays["mask"] = seen
    case.arrays["v"][0, 0, 33] = np.inf
    emulate(FlashDecodingPlan.select(desc, device=emulated_device(9.0)), operands(case))


def outputs(case: Any, sms: int = 132) -> dict[str, bytes]:
    """The bits of what the kernels write, by the emulator."""
    ready = operands(case)
    with emulating():
        FlashDecodingPlan.select(case.desc, device=emulated_device(9.0, sms)).run(ready.args(pointer_view))
    return {spec.name: np.ascontiguousarray(one.view).tobytes() for spec, _, one in ready.items() if spec.writes}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_neither_company_nor_the_size_of_the_cache_nor_a_block_s_heads_change_a_bit(element: str) -> None:
    sizes = {"batch_size": 3, "num_heads": 6, "num_kv_heads": 2, "max_cache_len": 300, "d_k": 32, "d_v": 16}
    desc = FlashDecodingPlan.descriptor(**sizes, softcap=5.0, window_left=280, element=element)
    present = {"mean_weights": False, "weights": False, "batch_index": False}
    case = fill(FlashDecodingPlan, desc, np.random.default_rng(7), present)
    case.arrays |= {
        "lengths": np.array([300, 290, 0], np.int32), "starts": np.array([13, 0, 0], np.int32),
        "mask": np.random.default_rng(8).random((3, 1, 300)) < 0.8,
    }  # fmt: skip
    whole = outputs(case)
    of_each_head = replace(case, arrays=case.arrays | {"mask": case.arrays["mask"].repeat(6, axis=1)})
    assert outputs(of_each_head) == whole
    for b in range(3):
        arrays = {n: a if n == "sinks" or a is None else a[b : b + 1] for n, a in case.arrays.items()}
        arrays |= {"k": arrays["k"][:, :, : 300 - 10 * b], "v": arrays["v"][:, :, : 300 - 10 * b]}
        arrays["mask"] = arrays["mask"][:, :, : 300 - 10 * b]
        alone = replace(
            case, desc=replace(desc, batch_size=1, cache_batch=1, max_cache_len=300 - 10 * b), arrays=arrays
        )
        for name, bits in outputs(alone).items():
            size = len(bits)
            assert bits == whole[name][b * size : (b + 1) * size], (name, b)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("rows", [1, 4], ids=["shared", "heads"])
@pytest.mark.parametrize("cells", [1100, 8300])
def test_blocks_of_four_splits_have_the_same_bits(cells: int, rows: int) -> None:
    """As of one, which the merge folds; splits of 256 keys, and longer ones."""
    sizes = {"batch_size": 3, "num_heads": 4, "num_kv_heads": 2, "max_cache_len": cells, "d_k": 32, "d_v": 32}
    desc = FlashDecodingPlan.descriptor(**sizes, element="bfloat16")
    case = fill(FlashDecodingPlan, desc, np.random.default_rng(9), {"weights": False, "mean_weights": False})
    starts, lengths = np.array([5, 300, 0], np.int32), np.array([cells, cells - 7, 600], np.int32)
    seen = np.random.default_rng(10).random((3, rows, cells)) < 0.7
    case.arrays |= {"lengths": lengths, "starts": starts, "mask": seen, "slopes": case.arrays["slopes"] / 100}
    runs = []
    for sms in (1, 132):
        chosen = FlashDecodingPlan.select(desc, device=emulated_device(9.0, sms))
        problem = dense_problem(FlashDecodingPlan, desc, chosen.device, optional=True)
        runs.append(chosen.rows[0].geometry(problem).steps[0].params["run"])
    assert runs == [4, 1]
    assert outputs(case, 1) == outputs(case)
    emulate(FlashDecodingPlan.select(desc, device=emulated_device(9.0, 1)), operands(case))
