"""`unpack_kv_cache`: the keys and the values of a paged cache that is one array."""

from __future__ import annotations


from ....calls.exported import exported
from ....core import Array
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....core.views import cut, shape_of, without_axes


@exported
def unpack_kv_cache(kv_cache: Array, axis: int = 1) -> tuple[Array, Array]:
    """(k_cache, v_cache) of a paged cache that is one array, views of it; JAX copies.

    kv_cache [pages, 2, …], FlashInfer's layout, whose pages hold their keys and then their values; axis=0: [2, pages,
    …], that of vLLM's FlashAttention backend. Behind stands [kv_heads, page_size, d] for layout "hnd", or [page_size,
    kv_heads, d] for "nhd", of the functions that take such caches: `batch_paged_decode(q, *unpack_kv_cache(kv), …)`,
    `paged_kv_append`, whose writes reach kv_cache, and all others.
    """
    shape, at = shape_of(kv_cache, "kv_cache"), whole("axis", axis, 0, 1)
    if len(shape) <= 2 or shape[at] != 2:
        named = "[2, pages, …]" if at == 0 else "[pages, 2, …]"
        raise InvalidProblemError(f"kv_cache must have shape {named}, got {shape}")
    every = slice(0, None, 1)
    keys, values = (
        without_axes(cut(kv_cache, (*(every,) * at, slice(n, n + 1, 1)), "kv_cache"), [at], "kv_cache") for n in (0, 1)
    )
    return keys, values
