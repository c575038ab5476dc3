"""copy_pages: copy pages of paged caches, of all layers at once, within each or from another; moves bytes only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Step,
    Variant, View, derived, element, extent, inout, operand, shapes,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....schedules.geometry import Merged
from ..paged.page_tables import INDEX
from .kv_cache_append import ELEMENTS, word_axes

THREADS = 256
WORDS = 4  # that a thread has in flight
CAPACITY = 200  # caches a launch, with 16 bytes each in the parameter struct


def random_pairs(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Pages that are no destination, to others that are it once; padding, too, also where pages do not suffice."""
    pages, padding = rng.permutation(desc.num_pages), np.full(desc.num_pairs, -1)
    kept = -(-len(pages) // 2)
    sources = pages[:kept][pages[:kept] < desc.source_pages]
    targets = np.append(pages[kept:] if len(sources) else padding, padding)[: desc.num_pairs]
    targets[1::4] = -1
    return np.stack([rng.choice(sources, len(targets)) if len(sources) else targets, targets], axis=1).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class CopyPagesDescriptor(Descriptor):
    """Caches of these shapes, [num_pages, …], all of as many pages; `source_shapes` are those of the caches read."""

    source_shapes: tuple[tuple[int, ...], ...] = shapes(derived(lambda desc: desc.shapes))
    shapes: tuple[tuple[int, ...], ...] = shapes()
    num_pairs: int = extent()
    element: ElementKind = element(ELEMENTS)

    @property
    def num_pages(self) -> int:
        """Pages of a cache."""
        return self.shapes[0][0] if self.shapes else 0

    @property
    def source_pages(self) -> int:
        """Pages of a cache that is read."""
        return self.source_shapes[0][0] if self.source_shapes else 0

    def validate(self) -> None:
        for name, given in (("caches", self.shapes), ("sources", self.source_shapes)):
            if not all(given):
                raise InvalidProblemError(f"{name} must be [num_pages, …], got a 0-d array")
            if len(counts := {shape[0] for shape in given}) > 1:
                raise InvalidProblemError(f"{name} must have as many pages each, got {sorted(counts)}")
        if [shape[1:] for shape in self.shapes] != [shape[1:] for shape in self.source_shapes]:
            raise InvalidProblemError(
                f"sources must be a cache for each of caches, with pages of its shape; got {self.source_shapes} for "
                f"{self.shapes}"
            )


@dataclass(slots=True, kw_only=True)
class CopyPagesArgs(Args):
    """Any strides; a page that is one run of memory, in whatever order of its axes, is copied in words of 16 bytes.

    Page pairs[i, 1] of every cache becomes page pairs[i, 0] of that cache, or with `sources` of the cache that stands
    in its place there. A negative pairs[i, 1] is padding. No page may be written twice, or be read and written.
    """

    caches: list[Array] = inout(many="shapes")
    pairs: Array = operand("num_pairs 2", element=INDEX, values=random_pairs)
    sources: list[Array] | None = operand(many="source_shapes", optional=True)


def _valid(desc: CopyPagesDescriptor, pairs: Any, sources: Any) -> tuple[Any, int | None]:
    """The pairs that are copied, and the first that is neither that nor padding."""
    pairs = np.asarray(pairs).astype(np.int64).reshape(-1, 2)
    pages = (desc.num_pages if sources is None else desc.source_pages, desc.num_pages)
    real = pairs[:, 1] >= 0
    good = real & (pairs[:, 0] >= 0) & (pairs < pages).all(axis=1)
    bad = np.flatnonzero(real & ~good)
    return pairs[good], int(bad[0]) if bad.size else None


def reference(desc: CopyPagesDescriptor, *, caches: Any, pairs: Any, sources: Any) -> Mapping[str, Any]:
    """NumPy on the stored bytes; the caches are updated in place."""
    copied, _ = _valid(desc, pairs, sources)
    for cache, source in zip(caches, caches if sources is None else sources, strict=True):
        cache[copied[:, 1]] = source[copied[:, 0]]
    return {"caches": caches}


PARAMS = Params(
    "CopyPagesParams", caches=f"ptr[{CAPACITY}]", sources=f"ptr[{CAPACITY}]", pairs="ptr", status="status",
    num_pairs="i64", pages="i64[2]", steps="i64[2]", words="i64", chunks="i64", pair_strides="i64[2]", pairs_wide="i32",
    rank="i32", shape="i64[8]", strides="i64[2][8]", copy_pages_in_flight=WORDS,
)  # fmt: skip


def _page(view: View) -> tuple[Any, ...]:
    return (view.shape, view.strides)


def _step(p: Problem, start: int, stop: int) -> Step | str:
    """One launch for the caches start … stop, which are alike but for their addresses."""
    desc, named = p.desc, "caches" if p.sources is None else "sources"
    sources = p.views[named]
    merged = [
        Merged.of((to, of), ((0,), range(1, len(to.shape))), free=(1,))
        for to, of in zip(p.caches[start:stop], sources[start:stop], strict=True)
    ]
    size, axes = desc.element.itemsize, []
    for one in merged:
        if isinstance(one, str):
            return one
        axes.append((one.vector(), one.groups[1]))
    width = min(each for each, _ in axes)
    page, pitches = axes[0][1], (p.caches[start].strides[0], sources[start].strides[0])
    while any(page.count % width or pitch % width for pitch in pitches):
        width //= 2
    words = page.count // width
    chunks, held = -(-words // (THREADS * WORDS)), sources[start].shape[0]
    whole = page if width == 1 else type(page)((words,), ((1,), (1,)))
    params = {
        "caches": ("caches", start, stop), "sources": (named, start, stop), "pages": [held, desc.num_pages],
        "num_pairs": desc.num_pairs,
        "steps": [pitch // width for pitch in reversed(pitches)], "words": words, "chunks": chunks,
        "pair_strides": p.pairs.strides, "pairs_wide": p.pairs.element is ElementKind.I64, **whole.params(),
    }  # fmt: skip
    blocks = chunks * max(desc.num_pairs, 1)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    return Step("copy_pages", (blocks, stop - start, 1), params, {"BYTES": width * size}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    sources = p.caches if p.sources is None else p.sources
    alike = itertools.groupby(range(len(p.caches)), lambda i: (_page(p.caches[i]), _page(sources[i])))
    steps = []
    for _, run in alike:
        places = list(run)
        for at in range(0, len(places) if p.caches[places[0]].size else 0, CAPACITY):
            step = _step(p, places[at], places[min(at + CAPACITY, len(places)) - 1] + 1)
            if isinstance(step, str):
                return step
            steps.append(step)
    return Geometry(tuple(steps), layout="contiguous" if all(v.dense for v in (*p.caches, *sources)) else "strided")


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": word_axes(kind)["BYTES"]}


def in_torch(torch: Any, desc: CopyPagesDescriptor, *, caches: Any, pairs: Any, sources: Any) -> Any:
    """Advanced indexing, a cache at a time."""
    there = pairs[pairs[:, 1] >= 0].long()
    for cache, source in zip(caches, caches if sources is None else sources, strict=True):
        cache[there[:, 1]] = source[there[:, 0]]
    return {"caches": caches}


class CopyPagesPlan(Plan):
    """caches[c][pairs[i, 1]] = sources[c][pairs[i, 0]] for every pair i and cache c; sources are the caches by default.

    caches: a list of [num_pages, …], all of as many pages: keys and values of all layers, one behind the other, which
    go in one launch where shapes and strides are alike. pairs [num_pairs, 2] on the device, so that a captured graph
    copies whatever they name (vLLM's copy_blocks; with sources its swap_blocks).
    """

    op = "attention.copy_pages"
    descriptor = CopyPagesDescriptor
    args = CopyPagesArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = (
        "a pair with a negative destination is padding; one with another page that does not exist is skipped; what "
        "pages hold that are written twice, or read and written, is one of what they might"
    )
    variants = (
        Variant(
            "words", _geometry, source="attention/cache/copy_pages.cu", elements=ELEMENTS,
            kernels=(Kernel("copy_pages", "copy_pages<{BYTES}>", PARAMS, _axes, threads=THREADS),),
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{pairs} pages of 64 caches, [{page}, 8, 128] bf16", shapes=((4 * pairs, 8, page, 128),) * 64,
            num_pairs=pairs, element="bfloat16", work=BYTES, target=0.9, peers=(),
            make=lambda torch, desc: {
                "pairs": torch.randperm(desc.num_pages)[: 2 * desc.num_pairs].reshape(desc.num_pairs, 2)
            },
        )
        for pairs, page in ((16, 16), (256, 16))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CopyPagesDescriptor:
        pages, count = draw.integer(1, 9), draw.integer(0, 3)
        like = draw.shape(0, 3, 0, 9)
        page = [like if draw.flag() else draw.shape(0, 3, 0, 9) for _ in range(count)]
        if draw.rarely():
            page = [(draw.sizes(2, 3), 16, 64)] * count
        others = pages if draw.flag() else draw.integer(1, 9)
        return CopyPagesDescriptor(
            shapes=tuple((pages, *one) for one in page), source_shapes=tuple((others, *one) for one in page),
            num_pairs=draw.integer(0, 6), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        _, bad = _valid(desc, arrays["pairs"], arrays.get("sources"))
        return None if bad is None else f"pairs[{bad}] names a page that does not exist: {cls.value_policy}"

    @classmethod
    def bytes(cls, desc: CopyPagesDescriptor) -> int:
        page = sum(int(np.prod(shape[1:])) for shape in desc.shapes)
        return 2 * desc.num_pairs * page * desc.element.itemsize


copy_pages = functional(CopyPagesPlan)
