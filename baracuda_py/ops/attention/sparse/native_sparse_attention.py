"""native_sparse_attention: compressed, selected and windowed attention under gates (Yuan et al. 2025).

y = g_c attention(q, compressed k and v) + g_s attention(q, k and v of selected blocks) + g_w attention(q, a window)

A composition, none of whose parts has scores in memory: `flash_sdpa` under a formula as mask, `block_importance`,
`topk`, `block_select_attention`, `flash_sdpa` with a window, and the gates. Gradients are theirs; the choice is a
constant.
"""

from __future__ import annotations

from typing import Any

from ....core import Array
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....core.views import constant, cut, shape_of, with_axis
from ....calls.entries import entry
from ...elementwise.binary_functions import add, mul
from ...pooling.pool import avg_pool2d
from ...sort.topk import topk
from ..dense.flash_sdpa import flash_sdpa
from ..layouts import is_swapped, swap
from .block_importance import block_importance
from .block_select_attention import BlockSelectAttentionPlan, block_select_attention


def means(x: Any, size: int, step: int, swapped: bool, options: dict[str, Any]) -> Any:
    """The means of `size` tokens from every `step`-th on; swapped: in "bshd"."""
    x = swap(x) if swapped else x
    if shape_of(x, "x")[2] < size:
        made = cut(x, (slice(None), slice(None), slice(0, 0, 1)), "x")
    else:
        made = avg_pool2d(x, kernel_size=(size, 1), stride=(step, 1), **options)
    return swap(made) if swapped else made


def _gated(y: Any, gate: Any, name: str, options: dict[str, Any]) -> Any:
    if gate is None:
        return y
    if shape_of(gate, name) != shape_of(y, "y")[:3]:
        raise InvalidProblemError(f"{name} must be {list(shape_of(y, 'y')[:3])} as q is, got {shape_of(gate, name)}")
    return mul(y, with_axis(gate, 3, name), **options)


def lengths(q: Any, k: Any, v: Any, swapped: bool) -> tuple[int, int]:
    """Queries and tokens, of which the queries are the last; swapped: in "bshd"."""
    shapes = [shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v))]
    if any(len(shape) != 4 for shape in shapes):
        raise InvalidProblemError(f"q, k and v must have four axes, got {shapes}")
    queries, tokens = (int(shape[1 if swapped else 2]) for shape in shapes[:2])
    if queries > tokens:
        raise InvalidProblemError(f"the {queries} queries must be the last of the tokens, and there are {tokens} keys")
    return queries, tokens


@entry(BlockSelectAttentionPlan)
def native_sparse_attention(
    q: Array, k: Array, v: Array, gate_compressed: Array | None = None, gate_selected: Array | None = None,
    gate_window: Array | None = None, k_compressed: Array | None = None, v_compressed: Array | None = None, *,
    block_size: int = 64, compress_size: int = 32, compress_stride: int = 16, selected: int = 16, initial: int = 1,
    local: int = 2, window: int = 512, scale: float | None = None, layout: str = "bhsd", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Compressed, selected and windowed causal attention, each times its gate, added (native sparse attention).

    q [batch, heads, queries, d_k], k and v [batch, kv_heads, tokens, d_k and d_v], layout "bshd": heads and sequence
    exchanged; the queries are the last of the tokens. Gates [batch, heads, queries] (in "bshd" [batch, queries, heads])
    are multiplied as they are: give sigmoids; None is 1. k_compressed and v_compressed [batch, kv_heads, compressed,
    d]: token c of them stands for compress_size tokens from c · compress_stride on, as a learned compression makes
    them; None: their means. A query sees those whose tokens all stand at or before it.

    Selected are, for each query and key head, the first `initial` and the last `local` of the blocks of block_size
    tokens up to the query's own, and those to which the heads' attention to compressed keys gives the most
    (`block_importance`), `selected` in all; of equal ones the first. The window has the last `window` tokens up to the
    query. Gradients of q, k, v, gates and compressed keys and values come by torch's autograd and JAX; the choice is a
    constant to them. arXiv:2502.11089.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    queries, tokens = lengths(q, k, v, swapped)
    sizes = {"compress_size": compress_size, "compress_stride": compress_stride, "block_size": block_size}
    size, step, block = (whole(name, value, 1) for name, value in sizes.items())
    count, width = whole("selected", selected, 1), whole("window", window, 1)
    if (k_compressed is None) != (v_compressed is None):
        raise InvalidProblemError("give k_compressed and v_compressed, or neither")
    if whole("initial", initial, 0) + whole("local", local, 0) > count:
        raise InvalidProblemError(f"initial + local must be at most selected, got {initial}, {local} and {selected}")
    if k_compressed is None:
        k_compressed, v_compressed = (means(x, size, step, swapped, options) for x in (k, v))
    given: dict[str, Any] = {"scale": scale, "layout": layout, **options}
    mask = f"k * {step} + {size} <= q + {tokens - queries + 1}"
    y, lse = flash_sdpa(q, k_compressed, v_compressed, mask=mask, return_lse=True, **given)
    y = _gated(y, gate_compressed, "gate_compressed", options)
    importance = block_importance(
        constant(q), constant(k_compressed), constant(lse), tokens=tokens, initial=initial, local=local,
        block_size=block, compress_size=size, compress_stride=step, **given,
    )  # fmt: skip
    blocks = topk(importance, min(count, -(-tokens // block)), **options)[1]
    causal = {"is_causal": True, "causal_alignment": "bottom_right", **given}
    chosen = block_select_attention(q, k, v, blocks, block_size=block, **causal)
    y = add(y, _gated(chosen, gate_selected, "gate_selected", options), **options)
    near = flash_sdpa(q, k, v, window_left=width - 1, **causal)
    return add(y, _gated(near, gate_window, "gate_window", options), out=out, **options)
