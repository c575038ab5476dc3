"""batch_paged_extend: a token's bits follow from its position alone; trees; blocks of keys far and near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paged_caches import compressed, deal

from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.attention.paged.batch_paged_extend import (
    BatchPagedExtendArgs,
    BatchPagedExtendDescriptor,
    BatchPagedExtendPlan,
    batch_paged_extend,
)
from baracuda_py.ops.attention.paged.batch_paged_prefill import batch_paged_prefill
from baracuda_py.schedules.attention import extend
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

HEADS, GROUP = 2, 4  # key heads, and query heads of each


def made(lengths: list[int], queries: list[int], d: int = 64, page: int = 16, seed: int = 0, dtype: Any = np.float64):
    """q of each sequence's last tokens, pages, and tables."""
    rng = np.random.default_rng(seed)
    most = max(lengths)
    k, v = (rng.standard_normal((len(lengths), HEADS, most, d)).astype(dtype) for _ in range(2))
    rows = rng.standard_normal((sum(queries), HEADS * GROUP, d)).astype(dtype)
    caches, table = deal(rng, [k, v], page, np.nan, lengths=lengths)
    bounds = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    return rows, caches, {"page_table": table, "lengths": np.array(lengths, np.int32)}, bounds


def run(q: Any, caches: Any, tables: Any, bounds: Any, arch: float, units: int = 0, **facts: Any) -> Any:
    """y and lse as the kernels for `arch` leave them; units: blocks of keys that a thread block takes, 0 its choice."""
    optional = {n: facts.pop(n, None) for n in ("tree_mask", "slopes", "sinks")}
    k, v = caches
    desc = BatchPagedExtendDescriptor(
        batch_size=len(bounds) - 1, total_q=len(q), num_heads=q.shape[1], num_kv_heads=k.shape[1], d_k=q.shape[2],
        d_v=v.shape[3], num_pages=k.shape[0], page_size=k.shape[2], element=ElementKind.of(q.dtype),
        max_pages=tables["page_table"].shape[1] if "page_table" in tables else 0,
        num_indices=len(tables["kv_indices"]) if "kv_indices" in tables else 0,
        **{"is_causal": True, "max_seqlen_q": int(np.diff(bounds).max(initial=0)), **facts},
    )  # fmt: skip
    acc = desc.element.acc.dtype
    y, lse = np.full((*q.shape[:2], v.shape[3]), np.nan, q.dtype), np.full((q.shape[1], len(q)), np.nan, acc)
    given = {"q": q, "k_cache": k, "v_cache": v, "qo_indptr": bounds, **optional, **tables, "y": y, "lse": lse}
    names = {spec.name for spec in arrays_of(BatchPagedExtendArgs)}
    seen = {n: None if given.get(n) is None else pointer_view(given[n]) for n in names}
    with pytest.MonkeyPatch.context() as patch, emulating(1):
        if units:
            patch.setattr(extend, "run_of", lambda groups, at_once: units)
        BatchPagedExtendPlan.select(desc, device=emulated_device(arch)).run(BatchPagedExtendArgs(**seen))
    return y, lse


def truth(q: Any, caches: Any, tables: Any, bounds: Any, **facts: Any) -> Any:
    """The same on NumPy, in float64."""
    wide = [x.astype(np.float64) for x in (q, *caches)]
    for name in ("slopes", "sinks"):
        facts[name] = None if facts.get(name) is None else facts[name].astype(np.float64)
    return batch_paged_extend(*wide, bounds, facts.pop("tree_mask", None), **tables, return_lse=True, **facts)
