"""Dense caches dealt out to pages, for tests of the paged ops; NumPy or CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def deal(
    rng: Any, caches: list[Any], page: int, fill: Any, spare: int = 2, lengths: Any = None, nhd: bool = False
) -> tuple[list[Any], Any]:
    """Caches [batch, heads, cells, d] as pages in random order, and the padded table; unused cells hold `fill`."""
    batch, heads, cells, _ = caches[0].shape
    each = -(-cells // page)
    table = rng.permutation(batch * each + spare)[: batch * each].reshape(batch, each).astype(np.int32)
    lengths = [cells] * batch if lengths is None else [int(n) for n in lengths]
    paged = []
    for cache in caches:
        xp = __import__(type(cache).__module__.partition(".")[0])
        d = cache.shape[-1]
        shape = (batch * each + spare, page, heads, d) if nhd else (batch * each + spare, heads, page, d)
        made = xp.full(shape, fill, cache.dtype)
        view = made.swapaxes(1, 2) if nhd else made
        for b in range(batch):
            whole = xp.full((heads, each * page, d), fill, cache.dtype)
            whole[:, : lengths[b]] = cache[b, :, : lengths[b]]
            view[xp.asarray(table[b])] = whole.reshape(heads, each, page, d).swapaxes(0, 1)
        paged.append(made)
    return paged, table


def compressed(table: Any, lengths: Any, page: int, spare: int = 0) -> dict[str, Any]:
    """FlashInfer's tables; `spare` unused entries at the end are out of range."""
    used = [-(-int(n) // page) for n in lengths]
    indices = [int(i) for b, n in enumerate(used) for i in table[b][:n]] + [2**31 - 1] * spare
    last = [int(n) - (u - 1) * page for n, u in zip(lengths, used, strict=True)]
    arrays = {"kv_indices": indices, "kv_indptr": [0, *np.cumsum(used)], "kv_last_page_len": last}
    return {name: np.array(values, np.int32) for name, values in arrays.items()}
