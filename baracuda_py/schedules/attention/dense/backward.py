"""The backward of attention on tensor cores: blocks own tiles of keys, keep dk and dv, and add to dq in turn.

SM90A is wgmma, by a producer-consumer kernel and one without for masks and dropout; SM80 is mma.sync. They share one
geometry and differ in their tilings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ....core import ArchSku, Geometry, Kernel, Params, Problem, Step, Variant
from ....core.params import Field
from ....core.variant import aligned
from ..score_terms import LEVELS, RESTS, TERMS, WINDOW, level, refuse_terms, spares, terms, window
from .backward_blocks import NARROW, PIPELINED, SM90A, WIDE, Blocks, Groups, Pipeline
from .bias_gradients import BIASES, MMA_KERNELS, Rows, bias_steps
from .forward import HALVES, TENSOR_CORES, head_dim, layout, strides, wide
from .lse_rests import DENSE_RESTS, NO_RESTS, Rests

_SIZES = dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "padded"), "i64")
_NUMBERS = dict.fromkeys(("num_heads", "d_k", "d_v", "wide"), "i32")
_PREPARE = WINDOW | dict.fromkeys(("y", "dy", "lse", "dlse", "dq"), "ptr")
_PREPARE |= dict.fromkeys(("stats", "turns", "sums"), "workspace") | {"stride": "i64[3][3]"} | _SIZES
_PREPARE |= dict.fromkeys(("chunks", "counters", "fill"), "i64") | _NUMBERS
_GRADIENTS = WINDOW | dict.fromkeys(("q", "k", "v", "dy", "lse", "dq", "dk", "dv"), "ptr")
_GRADIENTS |= dict.fromkeys(("stats", "turns", "sums"), "workspace") | {"stride": "i64[7][3]"} | _SIZES
_GRADIENTS |= dict.fromkeys(("key_tiles", "chunk", "heads"), "i64") | {"scale": "f64"}
_GRADIENTS |= dict.fromkeys(("group", "any_order"), "i32") | _NUMBERS | dict.fromkeys(("rising", "rising_len"), "i32")
IN_TURN = replace(TENSOR_CORES, flushes=HALVES)
"""Memory adds up the sums of dq on sm_90, and flushes (PTX ISA: red, cp.reduce.async.bulk, .add.f32)."""
ANY_ORDER = replace(IN_TURN, deterministic=False, bit_stable=False, batch_invariant=False)
TOGETHER = 48 << 20  # bytes of q, dy and sums of dq of the heads that are worked on together, about
# Up to SHORT queries, with MANY tiles of keys for each multiprocessor, blocks hardly wait for their turns; then a fixed
# order of sums, which needs no zeros to add to, is faster than any order.
SHORT, MANY = 2048, 8


@dataclass(frozen=True)
class Cut:
    """A problem cut into tiles of queries and of keys, for each head of `batch`; `sizes` are the ones kernels read.

    `steps(segment)` run before the kernels; they use the workspace up to `start`. `lists`: its offsets of the lists of
    tiles of queries and of keys, the latter ordered within sequences of `segment` keys.
    """

    batch: int
    tiles: int
    key_tiles: int
    sizes: Mapping[str, Any]
    steps: Callable[[int], tuple[Step, ...]] = lambda segment: ()
    start: int = 0
    lists: tuple[int, int] | None = None

    def listed(self, keys: bool) -> dict[str, int]:
        """The offsets of the lists, for a kernel whose blocks take tiles of keys, or of queries."""
        return {"list": self.lists[keys], "second": self.lists[0]} if self.lists else {}


@dataclass(frozen=True)
class Arrangement:
    """How operands are arranged: the C++ policy by which blocks find their work (attention.cuh), strides, and the cut.

    `cut(problem, queries, keys, sorted_)` makes tiles of so many rows; sorted_: tiles of queries by length, else in the
    order of rows. `fields`: more parameters that the policy reads. `before`: kernels of the cut's steps. `terms`:
    what kernels with score terms besides a window read of a problem and a scale; None: there are none. `biases`: the
    kernels of those terms' gradients. `apart`: dq has kernels of its own. `neighbours`: in place of the block's, unless
    0. `rising`: key heads in turn of those that rise, unless 0. `level`: of the terms (terms.cuh) that kernels have
    where `terms` is None. `rests`: finds what rows' lse lack, where terms may be of any size. `gradient`: the
    steps of dslopes, if not a dense batch's. `after`: the steps
    behind all others, which use so many bytes of workspace, given what they know of rests, and the bytes in all.
    """

    name: str
    work: str
    strides: Callable[..., list[tuple[int, ...]]]
    cut: Callable[..., Cut | str]
    fields: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Kernel, ...] = ()
    terms: Callable[[Problem, float], Mapping[str, Any]] | None = None
    biases: tuple[str, ...] = ()
    apart: bool = False
    neighbours: int = 0
    rising: int = 0
    level: int = 0
    rests: Rests | None = None
    gradient: Callable[..., tuple[list[Step], int]] | None = None
    after: Callable[[Problem, int, Mapping[str, int]], tuple[Sequence[Step], int]] | None = None

    def params(self, name: str, fields: Mapping[str, Field]) -> Params:
        """A kernel's parameters."""
        return Params(f"{name}{self.name}Params", **{**fields, **self.fields})

    def find_rests(self, p: Problem, workspace: int) -> tuple[list[Step], dict[str, int], int]:
        """As `Rests.steps`, with `spares`; none are found, or where there are no terms not even that is said."""
        if not (self.rests or self.terms):
            return [], {}, workspace
        steps, found, workspace = self.rests.steps(p, workspace) if self.rests else ([], NO_RESTS, workspace)
        return steps, {**found, "spares": spares(p)}, workspace

    def kernels_of_biases(self, known: Sequence[Kernel]) -> tuple[Kernel, ...]:
        """Those among the known ones that the terms' gradients take."""
        return tuple(kernel for kernel in known if kernel.name in self.biases)


def dense_cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut:
    """The cut of a batch of equal lengths."""
    desc = p.desc
    sizes = {"query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift}
    return Cut(desc.batch_size, -(-desc.query_len // queries), -(-desc.key_len // keys), sizes)


DENSE = Arrangement("", "attention::Dense", strides, dense_cut, terms=terms, biases=BIASES, rests=DENSE_RESTS)


def gradient_kernels(
    name: str,
    tilings: Mapping[int, Blocks | Groups],
    form: Arrangement,
    pipelined: Mapping[int, Pipeline] | None = None,
    any_order: bool = False,
) -> tuple[Kernel, ...]:
    """For each head_dim its kernels, with terms and that rise. pipelined: not masks, dropout.

    any_order: of a row whose blocks add to dq as they come, for which flash_finish always makes dq of the sums.
    """
    prepare, gradients = form.params("FlashPrepare", _PREPARE), form.params("FlashGradients", _GRADIENTS)
    more = form.params("FlashGradientsTerms", _GRADIENTS | TERMS)
    masks = form.params("FlashGradientsMasks", _GRADIENTS | TERMS | RESTS)
    made = []
    for d, masked in tilings.items():
        t = (pipelined or {}).get(d, masked)
        tag, sizes = f"{name}_{d}", f"{{T}}, {d}, {t.queries}, {t.keys}"
        made += [
            Kernel(f"prepare_{tag}", f"flash_prepare<{sizes}, {form.work}>", prepare, source=t.source),
            Kernel(
                f"gradients_{tag}",
                f"{t.call(d)}{form.work}, {form.level}>",
                gradients,
                threads=t.threads,
                min_blocks=(form.level and t.terms_blocks) or t.blocks,
                source=t.source,
            ),
        ]
        made += [
            Kernel(
                f"{of.finish}_{tag}", f"flash_finish<{sizes}, {of.sides or 1}, {form.work}>", gradients, source=t.source
            )
            for of in dict.fromkeys((t, masked if form.terms else t))
            if not form.apart and (any_order or of.sides)
        ]
        others = [(LEVELS[1], t, "1", more), (LEVELS[2], masked, "2", masks)] if form.terms else []
        others += [("_rising", t, "0, true", gradients)] if t.rises and not form.apart else []
        made += [
            Kernel(
                f"gradients_{tag}{suffix}",
                f"{of.call(d)}{form.work}, {last}>",
                params,
                threads=of.threads,
                min_blocks=of.terms_blocks or of.blocks,
                source=of.source,
            )
            for suffix, of, last, params in others
        ]
    return tuple(made)


def _wgmma(p: Problem, form: Arrangement, any_order: bool) -> Geometry | str:
    if max(p.desc.d_k, p.desc.d_v) <= 32:
        return "head_dim up to 32 is faster on mma.sync: 7.1 ms against 8.5 for [4, 64, 4096, 32] on an H200"
    d = head_dim(p.desc, SM90A)
    if isinstance(d, str):
        return d
    masked = form.level or (form.terms and level(p, sinks=False) == 2)
    return gradient_steps(p, d, "wgmma", SM90A[d] if masked else PIPELINED.get(d, SM90A[d]), form, any_order)


def _mma(p: Problem, form: Arrangement, any_order: bool) -> Geometry | str:
    d = head_dim(p.desc, WIDE)
    if isinstance(d, str):
        return d
    if d in NARROW and WIDE[d].smem(d) > p.device.smem:
        return gradient_steps(p, d, "narrow", NARROW[d], form, any_order)
    return gradient_steps(p, d, "wide", WIDE[d], form, any_order)


@dataclass(frozen=True)
class Walk:
    """The order in which blocks take tiles of keys, and so in which dq is summed.

    `in_turn` key heads are worked on together, and of packed sequences `segment` keys. The first `rising` key heads of
    a sequence walk queries up, if it has up to `rising_len` of them; `rises`: whether any may.
    """

    any_order: bool
    rising: int
    rising_len: int
    rises: bool
    in_turn: int
    segment: int


def _walk(p: Problem, d: int, t: Blocks | Groups, form: Arrangement, cut: Cut, any_order: bool, more: int) -> Walk:
    desc = p.desc
    each = max(1, 8 * desc.group * d)  # bytes of q, dy and sums of dq for each row of a key head
    kv_heads, padded = cut.batch * desc.num_kv_heads, cut.tiles * t.queries
    short = padded <= SHORT and kv_heads * cut.key_tiles >= MANY * p.device.sms
    any_order = any_order and not (short and t.sides and (desc.is_causal or not t.rises))
    # Does not depend on which gradients are wanted: each has the bits that it has together with the others.
    rising = desc.num_kv_heads * 7 // 8 if t.rises and not (form.apart or any_order) and desc.is_causal else 0
    one_by_one = desc.group == 1 and desc.window_left is None
    rising_len = TOGETHER // (each if one_by_one else each * t.neighbours)
    rises = bool(rising and not more and (cut.lists is not None or desc.query_len <= rising_len))
    stay = TOGETHER // (each * max(1, padded))  # key heads whose rows stay in the L2 cache
    in_turn = max(form.neighbours or t.neighbours, stay)
    if rises and one_by_one:
        in_turn = form.rising or max(1, min(2 * p.device.sms // max(1, cut.key_tiles), stay))
    in_turn = min(kv_heads, in_turn)
    return Walk(any_order, rising, rising_len, rises, in_turn, TOGETHER // (each * max(1, in_turn)))


def gradient_steps(
    p: Problem, d: int, name: str, t: Blocks | Groups, form: Arrangement, any_order: bool
) -> Geometry | str:
    """Two steps, three where flash_finish makes dq; workspace: two numbers a row, turns, and the sums of dq."""
    desc = p.desc
    more = level(p, sinks=False) if form.terms else 0
    cut = form.cut(p, t.queries, t.keys, False)
    if isinstance(cut, str):
        return cut
    if more and (why := refuse_terms(cut.sizes["query_len"], cut.sizes["key_len"])):
        return why
    heads, kv_heads = cut.batch * desc.num_heads, cut.batch * desc.num_kv_heads
    tiles, key_tiles = cut.tiles, cut.key_tiles
    padded, counters = tiles * t.queries, heads * tiles + 1
    turns = cut.start + aligned(8 * heads * padded)
    sums = turns + aligned(4 * counters)
    summed = p.dq is not None and (key_tiles > 1 or t.sides) and not form.apart
    walk = _walk(p, d, t, form, cut, any_order, more)
    any_order = walk.any_order and bool(summed)
    elements = heads * padded * d if summed else 0
    found, rests, workspace = form.find_rests(p, sums + aligned(4 * elements))
    common = {
        "stats": cut.start, "turns": turns, "sums": sums, **cut.sizes, **cut.listed(keys=True), "padded": padded,
        "num_heads": desc.num_heads, "d_k": desc.d_k, "d_v": desc.d_v, "tiles": tiles, **window(desc),
        **({} if form.terms else rests),
    }  # fmt: skip
    rows = 512 // (4 if d <= 32 else 8 if d <= 64 else 16 if d <= 128 else 32)  # rows of a block of flash_prepare
    chunks = max(1, -(-padded // rows))
    prepare = {
        "stride": form.strides(p.y, p.dy, p.dq), "chunks": chunks, "counters": counters, "wide": wide(p.y, p.dy),
        "fill": elements // 4 if any_order else 0,
    }  # fmt: skip
    steps: list[Step] = []
    if heads:
        steps = [*cut.steps(walk.segment), Step(f"prepare_{name}_{d}", (chunks * heads, 1, 1), common | prepare)]
    steps += found
    views = (p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv)
    if kv_heads * key_tiles and any(g is not None and g.size for g in views[5 if form.apart else 4 :]):
        gradients = {
            "stride": form.strides(*views), "key_tiles": key_tiles, "scale": desc.scale,
            "chunk": walk.in_turn, "heads": heads, "group": desc.group, "any_order": int(any_order),
            "wide": wide(*views), "rising": walk.rising, "rising_len": walk.rising_len,
        }  # fmt: skip
        work_tiles = kv_heads * key_tiles
        grid = (min(work_tiles, p.device.sms) if t.stays else work_tiles, 1, 1)
        kernel = f"gradients_{name}_{d}{'_rising' if walk.rises else LEVELS[more]}"
        params = common | gradients
        params |= form.terms(p, desc.scale) if more and form.terms else {}
        params |= rests if more == 2 else {}
        smem = t.smem(d) + (t.bias_smem() if (more or form.level) and p.views.get("mask") is not None else 0)
        steps.append(Step(kernel, grid, params, {}, t.threads, smem))
        warps = heads * tiles * (t.queries // 16) * (d // 32)
        if warps and (any_order or (t.sides and summed)):
            steps.append(Step(f"{t.finish}_{name}_{d}", (-(-warps // 8), 1, 1), common | gradients))
    if form.terms:
        own = Rows(cut.batch, cut.sizes["query_len"], form.strides(p.y, p.dy), form.gradient)
        biases, workspace = bias_steps(p, own, workspace, rests)
        steps += biases
    if form.after is not None:
        last, workspace = form.after(p, workspace, rests)
        steps += last
    return Geometry(tuple(steps), workspace, layout(*views, p.y))


def tensor_core_rows(form: Arrangement) -> tuple[Variant, ...]:
    """The rows of wgmma and mma.sync: blocks add to dq by atomics in any order, or each in its turn."""
    return tuple(row(form, any_order) for row in (_wgmma_row, _mma_row) for any_order in (True, False))


def _wgmma_row(form: Arrangement, any_order: bool) -> Variant:
    kernels = gradient_kernels("wgmma", SM90A, form, None if form.level else PIPELINED, any_order)
    return _row("wgmma", _wgmma, ArchSku.SM90A, kernels, form, any_order)


def _mma_row(form: Arrangement, any_order: bool) -> Variant:
    tilings = {"wide": WIDE, "narrow": NARROW}
    kernels = [k for name in tilings for k in gradient_kernels(name, tilings[name], form, any_order=any_order)]
    return _row("mma", _mma, ArchSku.SM80, tuple(kernels), form, any_order)


def _row(
    name: str, geometry: Callable[..., Geometry | str], design: ArchSku, kernels: tuple[Kernel, ...], form: Arrangement,
    any_order: bool,
) -> Variant:  # fmt: skip
    return Variant(
        f"{name}_any_order" if any_order else name,
        partial(geometry, form=form, any_order=any_order),
        source=f"attention/dense/flash_sdpa_backward_{name}.cu",
        elements=HALVES,
        design=design,
        guarantee=ANY_ORDER if any_order else replace(IN_TURN, order=name),
        kernels=(
            *kernels,
            *form.kernels_of_biases(MMA_KERNELS),
            *(form.rests.kernels() if form.rests else ()),
            *form.before,
        ),
        may_spill=True,
    )


def wgmma_row(form: Arrangement) -> Variant:
    """The row of wgmma whose order of sums is fixed; of terms of a `level`, by the kernel for masks and dropout."""
    return _wgmma_row(form, False)


def mma_row(form: Arrangement) -> Variant:
    """The row of mma.sync whose order of sums is fixed."""
    return _mma_row(form, False)


ROWS = tensor_core_rows(DENSE)
