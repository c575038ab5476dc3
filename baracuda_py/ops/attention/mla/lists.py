"""Cells of a paged cache that queries name by number: what the ops of sparse attention share.

A number is page · page_size + cell or, with `page_table` and `batch_indices`, the position of a token of the query's
sequence, whose pages the table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core import ElementKind, InvalidProblemError, Problem
from ....schedules.map import divider

_LISTS = ("page_table", "batch_indices")  # `List`


def list_fields(*own: str) -> dict[str, str]:
    """Fields of a kernel's Params: what `listed.cuh` reads, and an op's own operands of integers for each query."""
    names = (*_LISTS, *own)
    return {
        **dict.fromkeys(names, "ptr"), "list_strides": f"i64[{len(names)}][2]", "wide_lists": "u32", "batch": "i64",
        "table_len": "i64", "pages": "i64", "page_size": "i64", "by_page": "u32[3]",
    }  # fmt: skip


def list_params(p: Problem, *own: str) -> dict[str, Any]:
    """Their values."""
    views: list[Any] = [p.views[name] for name in (*_LISTS, *own)]
    return {
        "list_strides": [[0, 0] if one is None else [*one.strides, 0][:2] for one in views],
        "wide_lists": sum(1 << i for i, one in enumerate(views) if one is not None and one.element is ElementKind.I64),
        "batch": p.desc.batch_size, "table_len": p.desc.max_pages, "pages": p.desc.num_pages,
        "page_size": p.desc.page_size, "by_page": divider(p.desc.page_size),
    }  # fmt: skip


def check_lists(views: Mapping[str, Any]) -> None:
    """Refuse a table without the queries' sequences, and the reverse."""
    if (views["page_table"] is None) != (views["batch_indices"] is None):
        raise InvalidProblemError("give page_table and batch_indices, or neither")


def cells_at(desc: Any, t: int, numbers: Any, page_table: Any, batch_indices: Any) -> tuple[Any, Any, Any]:
    """Pages and cells of the numbers that query t names, and whether each is a cell; 0 for both where it is none."""
    page, cell = numbers // desc.page_size, numbers % desc.page_size
    there = numbers >= 0
    if page_table is not None:
        sequence = int(batch_indices[t])
        there &= (page < desc.max_pages) & (0 <= sequence < desc.batch_size)
        if there.any():
            row = np.asarray(page_table)[sequence].astype(np.int64)
            page = row[np.where(there, page, 0)]
    there &= (page >= 0) & (page < desc.num_pages)
    return np.where(there, page, 0), np.where(there, cell, 0), there


def random_sequences(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: sequences of queries, and some that are none."""
    return rng.integers(-1, desc.batch_size + 1, shape)


def random_pages(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: pages, and some that do not exist."""
    return rng.integers(-1, desc.num_pages + 1, shape)


def settle_lists(desc: Any, arrays: dict[str, Any]) -> None:
    """Table and sequences where the descriptor has a batch, none where it has not."""
    if not desc.batch_size:
        arrays["page_table"] = arrays["batch_indices"] = None
        return
    rng = np.random.default_rng(desc.num_queries)
    if arrays.get("page_table") is None:
        arrays["page_table"] = random_pages(rng, desc, (desc.batch_size, desc.max_pages)).astype(np.int32)
    if arrays.get("batch_indices") is None:
        arrays["batch_indices"] = random_sequences(rng, desc, (desc.num_queries,)).astype(np.int32)
