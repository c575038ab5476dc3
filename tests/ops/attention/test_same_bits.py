"""PlanPreference(same_bits=True): a token's attention has the same bits dense, packed, in pages, in chunks, decoded."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from paged_caches import deal

import baracuda_py as bc
from baracuda_py.core import registry
from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.schedules.attention import extend
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.launches import fake_device
from baracuda_py.testing.recording import pointer_view

SHARED = PlanPreference(same_bits=True)
HEADS, GROUP, D = 2, 2, 64  # key heads, query heads of each, columns
LENGTHS = [300, 41]
TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window_left": 70},
    "all": {"softcap": 8.0, "slopes": np.linspace(0.1, 0.9, HEADS * GROUP), "sinks": np.linspace(-1, 1, HEADS * GROUP)},
}


def run(name: str, facts: dict[str, Any], given: dict[str, Any], arch: float, shape: Any, lse: Any) -> Any:
    """y and lse as the kernels of a plan leave them; shape, lse: of the results."""
    plan = registry.plans()[name]
    kind = ElementKind.of(given["q"].dtype)
    desc = plan.descriptor(element=kind, **facts)
    out = {"y": np.full(shape, np.nan, given["q"].dtype), "lse": np.full(lse, np.nan, kind.acc.dtype)}
    held = given | out
    seen = {
        spec.name: None if held.get(spec.name) is None else pointer_view(held[spec.name])
        for spec in arrays_of(plan.args)
    }
    with emulating(1):
        plan.select(desc, SHARED, device=emulated_device(arch)).run(plan.args(**seen))
    return out["y"], out["lse"]


class Case:
    """Two sequences, whose last queries are asked for: all of the first's keys, as many queries as keys."""

    def __init__(self, dtype: Any, terms: str) -> None:
        rng = np.random.default_rng(3)
        self.q, self.k, self.v = (
            [rng.standard_normal((heads, n, D)).astype(dtype) for n in LENGTHS]
            for heads in (HEADS * GROUP, HEADS, HEADS)
        )
        wide = np.float32
        self.terms = {n: x.astype(wide) if isinstance(x, np.ndarray) else x for n, x in TERMS[terms].items()}
        self.shared = {"num_heads": HEADS * GROUP, "num_kv_heads": HEADS, "d_k": D, "d_v": D}

    def facts(self) -> dict[str, Any]:
        return {n: x for n, x in self.terms.items() if not isinstance(x, np.ndarray)}

    def arrays(self) -> dict[str, Any]:
        return {n: x for n, x in self.terms.items() if isinstance(x, np.ndarray)}

    def rows(self, x: list[Any]) -> Any:
        """Packed, [rows, heads, d]."""
        return np.concatenate([one.swapaxes(0, 1) for one in x])

    def extended(self, arch: float, page: int = 16) -> Any:
        """All queries at once, by batch_paged_extend: what the others must have."""
        most = max(LENGTHS)
        k, v = (
            np.stack([np.pad(one, ((0, 0), (0, most - one.shape[1]), (0, 0))) for one in x]) for x in (self.k, self.v)
        )
        caches, table = deal(np.random.default_rng(0), [k, v], page, np.nan, lengths=LENGTHS)
        facts = self.shared | self.facts() | {
            "batch_size": 2, "total_q": sum(LENGTHS), "max_seqlen_q": most, "is_causal": True,
            "num_pages": caches[0].shape[0], "page_size": page, "max_pages": table.shape[1],
        }  # fmt: skip
        given = {
            "q": self.rows(self.q), "k_cache": caches[0], "v_cache": caches[1], "page_table": table,
            "lengths": np.array(LENGTHS, np.int32), "qo_indptr": np.array([0, LENGTHS[0], sum(LENGTHS)], np.int32),
            **self.arrays(),
        }  # fmt: skip
        return facts, given, (sum(LENGTHS), HEADS * GROUP, D), (HEADS * GROUP, sum(LENGTHS))


ROWS = [
    (np.float16, 9.0, "plain"), (np.float16, 9.0, "window"), (np.float16, 9.0, "all"), (np.float16, 8.0, "plain"),
    (np.float16, 8.0, "all"), (np.float32, 8.0, "all"),
]  # fmt: skip


@functools.cache
def case(dtype: Any, arch: float, terms: str) -> tuple[Case, float, Any]:
    made = Case(dtype, terms)
    return made, arch, run("BatchPagedExtendPlan", *made.extended(arch)[:2], arch, *made.extended(arch)[2:])


rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].__name__}-{row[1]}-{row[2]}")


def same(got: Any, want: Any) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.tobytes() == np.ascontiguousarray(other).tobytes()


@pytest.mark.parametrize("strided", [False, True])
@rows
def test_dense_attention_of_each_sequence(row, strided):
    made, arch, (y, lse) = case(*row)
    at = 0
    for b, n in enumerate(LENGTHS):
        q, k, v = (np.stack([x[b], x[b]]) for x in (made.q, made.k, made.v))  # a batch of two equal ones
        if strided:  # [batch, length, heads, d] in memory
            q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v))
        facts = made.shared | made.facts() | {"batch_size": 2, "query_len": n, "key_len": n, "is_causal": True}
        given = {"q": q, "k": k, "v": v, **made.arrays()}
        got = run("FlashSdpaPlan", facts, given, arch, (2, HEADS * GROUP, n, D), (2, HEADS * GROUP, n))
        for one in range(2):
            same((got[0][one], got[1][one]), (y[at : at + n].swapaxes(0, 1), lse[:, at : at + n]))
        at += n


@rows
def test_the_newest_queries_of_a_dense_sequence_in_parts(row, monkeypatch):
    """bottom_right, and launches for a few rows of q each."""
    made, arch, (y, lse) = case(*row)
    monkeypatch.setattr(extend, "PARTS_BYTES", 1 << 14)
    n, few = LENGTHS[0], 37
    facts = made.shared | made.facts() | {"batch_size": 1, "query_len": few, "key_len": n, "is_causal": True}
    given = {"q": made.q[0][None, :, -few:], "k": made.k[0][None], "v": made.v[0][None], **made.arrays()}
    facts["causal_alignment"] = "bottom_right"
    got = run("FlashSdpaPlan", facts, given, arch, (1, HEADS * GROUP, few, D), (1, HEADS * GROUP, few))
    same((got[0][0], got[1][0]), (y[n - few : n].swapaxes(0, 1), lse[:, n - few : n]))


@pytest.mark.parametrize(
    ("plan", "names", "parts"),
    [("FlashSdpaVarlenPlan", ("cu_seqlens_q", "cu_seqlens_k"), False),
     ("BatchRaggedPrefillPlan", ("qo_indptr", "kv_indptr"), True)],
)  # fmt: skip
@rows
def test_packed_sequences(row, plan, names, parts, monkeypatch):
    made, arch, want = case(*row)
    if parts:
        monkeypatch.setattr(extend, "PARTS_BYTES", 1 << 17)
    bounds = np.array([0, LENGTHS[0], sum(LENGTHS)], np.int64)
    total = sum(LENGTHS)
    facts = made.shared | made.facts() | {"batch_size": 2, "total_q": total, "total_k": total, "is_causal": True}
    given = {"q": made.rows(made.q), "k": made.rows(made.k), "v": made.rows(made.v), **made.arrays()}
    got = run(
        plan, facts, given | dict.fromkeys(names, bounds), arch, (total, HEADS * GROUP, D), (HEADS * GROUP, total)
    )
    same(got, want)


def test_a_sequence_of_more_keys_than_promised_gives_nan():
    """There is no room for its sums; the others are right."""
    made, arch = Case(np.float32, "plain"), 8.0
    made.q, made.k, made.v = ([one[:, :30], two] for one, two in (made.q, made.k, made.v))
    bounds, total = np.array([0, 30, 71], np.int32), 71
    facts = made.shared | {"batch_size": 2, "total_q": total, "total_k": total, "is_causal": True}
    given = {"q": made.rows(made.q), "k": made.rows(made.k), "v": made.rows(made.v)}
    given |= dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), bounds)
    shapes = (total, HEADS * GROUP, D), (HEADS * GROUP, total)
    want = run("FlashSdpaVarlenPlan", facts, given, arch, *shapes)
    got = run("FlashSdpaVarlenPlan", facts | {"max_seqlen_k": 40}, given, arch, *shapes)
    same((got[0][:30], got[1][:, :30]), (want[0][:30], want[1][:, :30]))
    assert np.isnan(got[0][30:]).all()
    assert np.isnan(got[1][:, 30:]).all()


@pytest.mark.parametrize("page", [1, 40])
@rows
def test_paged_prefill(row, page):
    made, arch, want = case(*row)
    facts, given, *shapes = made.extended(arch, page)
    same(run("BatchPagedPrefillPlan", facts, given, arch, *shapes), want)


@pytest.mark.parametrize("indexed", [False, True])
@rows
def test_decoding_from_a_dense_cache(row, indexed):
    made, arch, (y, lse) = case(*row)
    most = 320
    k, v = (np.full((3, HEADS, most, D), np.nan, x[0].dtype) for x in (made.k, made.v))
    rows = [2, 0] if indexed else [0, 1]
    for b, row in enumerate(rows):
        k[row, :, : LENGTHS[b]], v[row, :, : LENGTHS[b]] = made.k[b], made.v[b]
    k, v = (x if indexed else x[:2] for x in (k, v))
    given = {"q": np.stack([x[:, -1] for x in made.q]), "k": k, "v": v, "lengths": np.array(LENGTHS), **made.arrays()}
    given |= {"batch_index": np.array(rows, np.int32)} if indexed else {}
    facts = made.shared | made.facts() | {"batch_size": 2, "max_cache_len": most, "cache_batch": len(k)}
    got = run("FlashDecodingPlan", facts, given, arch, (2, HEADS * GROUP, D), (2, HEADS * GROUP))
    last = np.cumsum(LENGTHS) - 1
    same(got, (y[last], lse[:, last].T))


@pytest.mark.parametrize("facts", [{}, {"window_left": 9, "softcap": 3.0, "scale": -0.3}])
def test_on_numpy(facts):
    """In float64, where BLAS shows how it adds."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 60, 24)) for heads in (4, 2, 2))
    asked = {"is_causal": True, "preference": SHARED, "return_lse": True, **facts}
    y, lse = bc.flash_sdpa(q, k, v, **asked)
    bounds = np.array([0, 60, 120])
    flat = [x.swapaxes(1, 2).reshape(120, -1, 24) for x in (q, k, v)]
    want = y.swapaxes(1, 2).reshape(120, 4, 24), np.concatenate(list(lse), axis=1)
    same(bc.flash_sdpa_varlen(*flat, bounds, bounds, **asked), want)
    same(bc.batch_ragged_prefill(*flat, bounds, bounds, **asked), want)
    tables = {"page_table": np.array([[0], [1]]), "lengths": np.array([60, 60])}
    same(bc.batch_paged_prefill(flat[0], k, v, bounds, **tables, **asked), want)
    newest = np.array([57, 58, 59, 119])
    got = bc.batch_paged_extend(flat[0][newest], k, v, np.array([0, 3, 4]), **tables, **asked)
    same(got, (want[0][newest], want[1][:, newest]))
    with pytest.raises(UnsupportedError, match="causal attention whose last query stands at the last key"):
        bc.flash_sdpa(q, k, v, preference=SHARED)
    with pytest.raises(UnsupportedError, match="its bits are its own"):
        bc.flash_decoding(q[:, :, 0], k, v, preference=SHARED)


# ---- what is asked for and said --------------------------------------------------------------------------------------


def dense(**facts: Any) -> Any:
    return registry.plans()["FlashSdpaPlan"].descriptor(
        batch_size=2, num_heads=4, query_len=64, key_len=64, d_k=64, d_v=64, element="bfloat16", **facts
    )


def test_the_rows_are_taken_only_if_asked_for_and_explain_says_so():
    plan = registry.plans()["FlashSdpaPlan"]
    unasked, asked = (plan.select(dense(), p, device=fake_device(9.0)) for p in (None, SHARED))
    assert unasked.sku.variant == "wgmma"
    assert unasked.precision_guarantee.same_bits == ""
    assert asked.sku.variant == "shared_wgmma"
    assert asked.precision_guarantee.same_bits == "attention"
    assert asked.precision_guarantee.batch_invariant
    assert "taken  contiguous, workspace" in asked.explain()
    assert "the bits that attention shares" in asked.explain()
    assert "for PlanPreference(same_bits=True)" in unasked.explain()
    assert unasked.workspace_size() < 1024


def test_an_op_without_such_rows_is_refused_and_one_of_another_family_is_batch_invariant():
    plan = registry.plans()["BatchPagedDecodePlan"]
    desc = plan.descriptor(
        batch_size=1, num_heads=4, num_pages=4, page_size=16, d_k=64, d_v=64, max_pages=4, element="float16"
    )
    with pytest.raises(UnsupportedError, match="its bits are its own, not those that attention shares"):
        plan.select(desc, SHARED, device=fake_device(9.0))
    norm = registry.plans()["RMSNormPlan"]
    chosen = norm.select(
        norm.descriptor(batch_shape=(3,), normalized_shape=(64,), element="float16"), SHARED, device=fake_device(9.0)
    )
    assert chosen.precision_guarantee.batch_invariant


@pytest.mark.parametrize(("facts", "arrays"), [({"dropout_p": 0.5}, ()), ({}, ("mask",))])
def test_dropout_and_masks_are_refused_by_name(facts, arrays):
    q = np.zeros((2, 4, 64, 64), np.float16)
    held = {"q": q, "k": q, "v": q, "y": q.copy(), "seed": 1} | dict.fromkeys(arrays, np.ones((64, 64), bool))
    plan = registry.plans()["FlashSdpaPlan"]
    desc = plan.descriptor(
        batch_size=2, num_heads=4, query_len=64, key_len=64, d_k=64, d_v=64, element="float16", **facts
    )
    args = plan.args(**{n: x if n == "seed" else pointer_view(x) for n, x in held.items()})
    verdict = plan.select(desc, SHARED, device=fake_device(9.0)).can_implement(args)
    assert not verdict
    assert ("dropout" if facts else "mask") in verdict.reason


def test_gradients_take_the_preference():
    """The backward has no such rows and needs none: it asks for its own row's bits to be free of the batch."""
    plan = registry.plans()["FlashSdpaBackwardPlan"]
    desc = plan.descriptor(batch_size=1, num_heads=2, query_len=8, key_len=8, d_k=64, d_v=64, element="float16")
    assert plan.select(desc, SHARED, device=fake_device(9.0)).precision_guarantee.batch_invariant
    assert bc.PlanPreference(same_bits=True) == SHARED
