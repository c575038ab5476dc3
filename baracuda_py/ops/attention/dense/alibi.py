"""alibi: attention with linear biases (Press, Smith and Lewis 2021): scores + slope · (key - query)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Ulp,
    Variant, View, Vjp, element, extent, extents, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....calls.exported import exported
from ....schedules.map import divider
from ....core.benchmark import Benchmark

X = "batch_size num_heads query_len key_len"
SLOPES = "*slope_batch num_heads"
THREADS = 256
EACH = 4  # elements a thread of the strided kernel
FLAT, ROWS, STRIDED = 0, 1, 2  # how chunks lie, see `chunk_params`


@exported
def alibi_slopes(num_heads: int, dtype: Any = np.float32) -> np.ndarray:
    """The slopes of Press, Smith and Lewis 2021, one a head: 2^(-8 (h + 1) / n) for h < n, n a power of two.

    For other head counts, as their code does: those of the power of two below, then every second one of twice as many.
    """
    heads, element = whole("num_heads", num_heads, 0, 2**20), ElementKind.of(dtype)
    power = 1 << max(heads.bit_length() - 1, 0)
    powers = np.arange(1, power + 1) / power
    between = np.arange(1, 2 * power, 2) / (2 * power)
    return np.exp2(-8.0 * np.concatenate([powers, between])[:heads]).astype(element.dtype)


@dataclass(frozen=True, kw_only=True)
class AlibiDescriptor(Descriptor):
    """scores are [batch_size, num_heads, query_len, key_len].

    slope_batch: the axes that slopes have before the head's: () for one slope a head, (batch_size,) or (1,).
    """

    batch_size: int = extent()
    num_heads: int = extent()
    query_len: int = extent()
    key_len: int = extent()
    slope_batch: tuple[int, ...] = extents(())
    element: ElementKind = element()

    @property
    def slope_elements(self) -> tuple[ElementKind, ...]:
        """What slopes and their gradient may be: the accumulator's element, or that of the scores."""
        return tuple(dict.fromkeys((self.acc, self.element)))

    def validate(self) -> None:
        """The slopes' leading axes."""
        if self.slope_batch not in ((), (1,), (self.batch_size,)):
            raise InvalidProblemError(
                f"slopes must be [num_heads] or [batch_size, num_heads]: slope_batch may be (), (1,) or "
                f"({self.batch_size},), got {self.slope_batch}"
            )


@dataclass(slots=True, kw_only=True)
class AlibiArgs(Args):
    """Slopes are float32 (float64 for float64) or of the scores' element; y may be scores."""

    scores: Array = operand(X)
    slopes: Array = operand(SLOPES, element="slope_elements")
    y: Array = output(X, inplace=("scores",))


def distances(desc: Any, dtype: Any) -> Any:
    """key - query, [query_len, key_len]."""
    return (np.arange(desc.key_len)[None, :] - np.arange(desc.query_len)[:, None]).astype(dtype)


def reference(desc: AlibiDescriptor, *, scores: Any, slopes: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    with np.errstate(invalid="ignore", over="ignore"):
        return {"y": scores + slopes[..., None, None] * distances(desc, scores.dtype)}


def chunk_params(operands: int) -> dict[str, str | int]:
    """Params fields for `operands` operands; `kernels/attention/dense/alibi.cuh` reads them.

    alibi_flat: operands are dense, matrices of whole chunks: chunk c is the elements c * VEC …, and may cross rows.
    alibi_rows: rows are dense, aligned and of whole chunks, so that no chunk crosses one. alibi_strided: any strides,
    element by element.
    """
    return {
        "matrix": "i64", "matrix_chunks": "i64", "keys": "i64", "heads": "i64", "strides": f"i64[{operands}][4]",
        "by_matrix": "u32[3]", "by_heads": "u32[3]", "by_keys": "u32[3]", "narrow": "i32",
        "alibi_flat": FLAT, "alibi_rows": ROWS, "alibi_strided": STRIDED, "alibi_threads": THREADS, "alibi_each": EACH,
    }  # fmt: skip


def chunk_mode(desc: Any, views: Sequence[View]) -> int:
    """How chunks of 16 bytes lie in the operands, of which the first is always there."""
    vec = 16 // desc.element.itemsize
    if all(v.dense and v.ptr % 16 == 0 for v in views) and desc.query_len * desc.key_len % vec == 0:
        return FLAT
    if all(v.inner_dense and v.aligned(16) for v in views) and desc.key_len % vec == 0:
        return ROWS
    return STRIDED


def chunk_values(desc: Any, views: Sequence[View], vec: int) -> dict[str, Any]:
    """What `chunk_params` declares, for chunks of `vec` elements."""
    matrix = desc.query_len * desc.key_len
    chunks = -(-matrix // vec)
    total = desc.batch_size * desc.num_heads * chunks
    return {
        "matrix": matrix, "matrix_chunks": chunks, "keys": desc.key_len, "heads": max(desc.num_heads, 1),
        "strides": [list(v.strides) for v in views], "by_matrix": divider(chunks), "by_heads": divider(desc.num_heads),
        "by_keys": divider(desc.key_len), "narrow": max(total, matrix) < 2**31 - THREADS * EACH,
    }  # fmt: skip


def layout_name(views: Sequence[View], mode: int) -> str:
    """The layout class for the SKU."""
    return "contiguous" if all(v.dense for v in views) else "strided" if mode == STRIDED else "inner_contiguous"


PARAMS = Params(
    "AlibiParams", scores="ptr", slopes="ptr", y="ptr", chunks="i64", slope_strides="i64[2]", wide_slopes="i32",
    **chunk_params(2),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, views = p.desc, (p.scores, p.y)
    mode = chunk_mode(desc, views)
    vec, each = (1, EACH) if mode == STRIDED else (16 // desc.element.itemsize, 1)
    values = chunk_values(desc, views, vec)
    chunks = desc.batch_size * desc.num_heads * values["matrix_chunks"]
    slopes = p.slopes.broadcast_to((desc.batch_size, desc.num_heads))
    wide = int(slopes.element is desc.acc)
    params = {"chunks": chunks, "slope_strides": list(slopes.strides), "wide_slopes": wide, **values}
    grid = (max(1, -(-chunks // (THREADS * each))), 1, 1)
    kernel, axes = ("alibi_elements", {}) if mode == STRIDED else ("alibi", {"MODE": mode})
    step = Step(kernel, grid, params, axes, THREADS)
    return Geometry((step,), layout=layout_name(views, mode))


def random_case(draw: Any, descriptor: type[AlibiDescriptor]) -> AlibiDescriptor:
    """A descriptor for tests: rows of whole chunks, rows that chunks cross, matrices that end within a chunk."""
    batch = draw.integer(0, 3)
    return descriptor(
        batch_size=batch, num_heads=draw.integer(0, 5), query_len=draw.sizes(1, 0, 3, 8, 17, 32),
        key_len=draw.sizes(1, 0, 5, 8, 16, 33, 64, 130), slope_batch=draw.choice(((), (batch,), (1,))),
        element=draw.element,
    )  # fmt: skip


def in_torch(torch: Any, desc: AlibiDescriptor, *, scores: Any, slopes: Any) -> Any:
    """The formula."""
    place = torch.arange(max(desc.query_len, desc.key_len), device=scores.device)
    distance = (place[None, : desc.key_len] - place[: desc.query_len, None]).to(slopes.dtype)
    return (scores + slopes[..., None, None] * distance).to(scores.dtype)


def slopes_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """The slopes of a model."""
    return {"slopes": torch.tensor(alibi_slopes(desc.num_heads).tolist())}


class AlibiPlan(Plan):
    """y[b, h, i, j] = scores[b, h, i, j] + slopes[h] · (j - i) (Press, Smith and Lewis 2021, ALiBi).

    scores, y [batch, heads, queries, keys], any strides; slopes [heads] or [batch, heads], float32 (float64 for
    float64) or of the scores' element: `alibi_slopes(heads)`. Product and sum are rounded once to the accumulator, and
    once to the element.
    """

    op = "attention.alibi"
    descriptor = AlibiDescriptor
    args = AlibiArgs
    autocast = "widest"
    reference = staticmethod(reference)
    vjp = Vjp("AlibiBackwardPlan", grads={"scores": "dscores", "slopes": "dslopes"})
    variants = (
        Variant(
            "chunks",
            _geometry,
            source="attention/dense/alibi.cu",
            kernels=(
                Kernel("alibi", "alibi<{T}, {MODE}>", PARAMS, {"MODE": (FLAT, ROWS)}, THREADS, min_blocks=8),
                Kernel("alibi_elements", "alibi_elements<{T}>", PARAMS, {}, THREADS),
            ),
            guarantee=Guarantee(Ulp(0.51), batch_invariant=True),
        ),
    )
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[4, 16, 2048, 2048] bf16", batch_size=4, num_heads=16, query_len=2048, key_len=2048, element="bfloat16",
            make=slopes_in_torch, target=0.9,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> AlibiDescriptor:
        return random_case(draw, AlibiDescriptor)


alibi = functional(AlibiPlan)
