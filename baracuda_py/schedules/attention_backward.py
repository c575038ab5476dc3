"""The backward of attention on tensor cores: tiles of keys that own dk and dv and add to dq in turn.

SM90A is wgmma, in a kernel of groups that all do the same and one of groups with tasks of their own; SM80 is mma.sync.
One geometry; they differ in their tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..core import ArchSku, Geometry, Kernel, Params, Problem, Step, Variant
from ..core.variant import aligned
from .attention import HALVES, TENSOR_CORES, head_dim, layout, strides, wide
from .attention_bias import MMA_KERNELS, bias_steps
from .score_terms import LEVELS, TERMS, level, refuse_terms, terms, window

_SIZES = dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "padded"), "i64")
_NUMBERS = dict.fromkeys(("num_heads", "d_k", "d_v", "wide"), "i32")
_PREPARE = dict.fromkeys(("y", "dy", "lse", "dq"), "ptr") | dict.fromkeys(("stats", "turns", "sums"), "workspace")
_PREPARE |= {"stride": "i64[3][3]"} | _SIZES | dict.fromkeys(("chunks", "counters", "fill"), "i64") | _NUMBERS
_GRADIENTS = dict.fromkeys(("q", "k", "v", "dy", "dq", "dk", "dv"), "ptr")
_GRADIENTS |= dict.fromkeys(("stats", "turns", "sums"), "workspace") | {"stride": "i64[7][3]"} | _SIZES
_GRADIENTS |= dict.fromkeys(("key_tiles", "chunk", "heads"), "i64") | {"scale": "f64"}
_GRADIENTS |= dict.fromkeys(("group", "any_order"), "i32") | _NUMBERS | dict.fromkeys(("rising", "rising_len"), "i32")
TOGETHER = 48 << 20  # bytes of q, dy and sums of dq that are worked on together, more or less


@dataclass(frozen=True)
class Cut:
    """A problem in tiles of queries and of keys, for each head of `batch`; the sizes that kernels read.

    `steps` go before the kernels'; what they leave takes the workspace up to `start`. `lists`: where in it lists of the
    tiles of queries and of keys stand.
    """

    batch: int
    tiles: int
    key_tiles: int
    sizes: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    start: int = 0
    lists: tuple[int, int] | None = None

    def listed(self, keys: bool) -> dict[str, int]:
        """The lists for a kernel whose blocks take tiles of keys, or of queries."""
        return {"list": self.lists[keys], "second": self.lists[0]} if self.lists else {}


@dataclass(frozen=True)
class Arrangement:
    """How operands stand: the policy by which blocks find their work (attention.cuh), strides, and `Cut`s.

    `cut(problem, queries, keys, sorted_, segment)` makes tiles of so many rows; those of queries in order of their
    length, if sorted_, or in order of rows; tiles of keys of sequences of `segment` keys together. `fields`: what the
    policy reads besides. `before`: kernels of the steps. `terms`: whether there are more score terms than a window.
    `apart`: whether dq is left to kernels of its own. `neighbours`: see `Block`, which says it where this is 0.
    """

    name: str
    work: str
    strides: Callable[..., list[tuple[int, ...]]]
    cut: Callable[..., Cut | str]
    fields: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Kernel, ...] = ()
    terms: bool = False
    apart: bool = False
    neighbours: int = 0

    def params(self, name: str, fields: Mapping[str, str]) -> Params:
        """A kernel's parameters."""
        return Params(f"{name}{self.name}Params", **fields, **self.fields)


def dense_cut(p: Problem, queries: int, keys: int, sorted_: bool, segment: int) -> Cut:
    """One cut for all heads of a batch of equal lengths."""
    desc = p.desc
    sizes = {"query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift}
    return Cut(desc.batch_size, -(-desc.query_len // queries), -(-desc.key_len // keys), sizes)


DENSE = Arrangement("", "baracuda::attention::Dense", strides, dense_cut, terms=True)


class Block:
    """What all kinds of blocks have.

    `neighbours`: key heads that blocks take in turn, at least; more while they are within TOGETHER. With many, fewer
    blocks wait for one another at each; with few, they share more of what is in the L2 cache.
    `rises`: whether there is a kernel whose blocks walk queries up from a causal mask's diagonal, so that in a fixed
    order of sums none waits, where a head's rows stay in the L2 cache: `rising_len`. Those of one key head in eight
    walk down and go last, for balance. H200, TFLOP/s: head_dim 256, 1024 tokens from 243 to 252, 2048 from 302 to 326,
    but 4096, which do not stay, from 363 to 338.
    """

    warps: int
    neighbours = 8
    source = ""  # the row's
    rises = False
    stays = False  # whether a block goes on to the next tile of keys
    sides = 0  # parts by columns that sums of dq stand in where dq is always left to flash_finish

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def finish(self) -> str:
        """The name of the kernel that makes dq of its sums."""
        return "finish_sides" if self.sides else "finish"


@dataclass(frozen=True)
class Blocks(Block):
    """The tensor-core row's block for one head_dim, as `flash_gradients` takes it.

    `warps`, of which `split` share their keys; 16-row tiles of keys a warp; queries a tile, those a warp takes at a
    time, and buffers of them; warps along the queries of dq; blocks an SM.
    """

    warps: int
    tiles: int
    split: int
    queries: int
    slab: int
    stages: int
    across: int
    blocks: int
    spills: bool = False
    terms_blocks: int = 0  # of the kernel with score terms, if not as many

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 16 * self.warps // self.split * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: keys and values, `stages` tiles of q and dy with two numbers a row, and `split` tiles of scores."""
        elements = 2 * (self.keys + self.stages * self.queries) * d + self.split * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries

    def bias_smem(self) -> int:
        """Bytes besides where a mask is given: its elements are read where they stand."""
        return 0

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        numbers = self.warps, self.tiles, self.split, self.queries, self.slab, self.stages, self.across
        return f"flash_gradients<{{T}}, {d}, {', '.join(map(str, numbers))}, "


# At head_dim 64, 64 queries spill 25 registers: 511 us for 32 x [8, 1024, 64] causal on an H200 against 552 with 32.
# The other spills are 1 to 7 registers of loop bounds and strides, on one target or the other.
WIDE = {
    32: Blocks(4, 2, 1, 64, 32, 2, 2, 2, spills=True, terms_blocks=1),
    64: Blocks(4, 2, 1, 64, 16, 2, 2, 2, spills=True, terms_blocks=1),
    96: Blocks(8, 1, 1, 64, 32, 2, 4, 1), 128: Blocks(8, 2, 2, 64, 16, 2, 2, 1),
    192: Blocks(8, 1, 2, 64, 32, 2, 2, 1, spills=True), 256: Blocks(8, 1, 2, 32, 16, 2, 2, 1, spills=True),
}  # fmt: skip
NARROW = {  # for 99 KB of shared memory
    96: Blocks(4, 1, 1, 64, 32, 2, 2, 1, spills=True), 128: Blocks(4, 1, 1, 32, 16, 2, 2, 1, spills=True),
    192: Blocks(4, 1, 2, 32, 16, 2, 2, 1), 256: Blocks(4, 1, 2, 32, 16, 1, 2, 1, spills=True),
}  # fmt: skip


@dataclass(frozen=True)
class Groups(Block):
    """The wgmma row's block for one head_dim, as `flash_gradients_wgmma` takes it: two warpgroups, 64 queries a tile.

    `split` 1: a group has 64 keys of its own; 2: they share 64 keys. `stages`: buffers of queries.
    """

    split: int
    stages: int
    warps: int = 8
    queries: int = 64
    blocks: int = 1
    spills: bool = False
    terms_blocks: int = 0
    neighbours = 16  # H200, head_dim 256, 4096 keys, causal / full, TFLOP/s: 8 234 / 274, 16 253 / 270, 32 252 / 260

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 128 // self.split

    def smem(self, d: int) -> int:
        """As `Blocks.smem`, the ticket, and up to 1 KB that aligns the swizzle."""
        sets = self.split * (2 if self.stages == 3 else 1)
        elements = 2 * (self.keys + self.stages * self.queries) * d + sets * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries + 16 + 1024

    def bias_smem(self) -> int:
        """Bytes besides where a mask is given: its elements for a tile of scores, of 4 bytes or less."""
        return 4 * self.keys * self.queries

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_wgmma<{{T}}, {d}, {self.split}, {self.stages}, "


@dataclass(frozen=True)
class Pipeline(Groups):
    """A block of `flash_gradients_pipelined`: a warpgroup more, which loads and adds to dq."""

    source = "attention/flash_sdpa_backward_pipelined.cu"
    stays = True
    sides = 2
    neighbours = 32  # head_dim 128 there: 8 442 / 506, 16 463 / 513, 32 477 / 517

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + 128

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and dy, two numbers a row, keys and values (at 64 twice), two ds, one dq."""
        homes = 2 if d == 64 else 1
        elements = 2 * (homes * self.keys + self.stages * self.queries) * d + 2 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * d + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_pipelined<{{T}}, {d}, {self.stages}, "


@dataclass(frozen=True)
class Relay(Pipeline):
    """A block of `flash_gradients_relay`: one warpgroup's weights pass to the other, which makes ds of them."""

    source = "attention/flash_sdpa_backward_relay.cu"
    rises = True
    stays = False
    sides = 4
    neighbours = 8  # 4096 keys, causal, in order / in any: 8 347 / 410, 16 358 / 392; 32, from memory, 237 / 280

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and one of dy, keys and values, ds twice and weights, and two quarters of dq."""
        elements = (2 * self.keys + (self.stages + 1) * self.queries) * d + 3 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * (d // 2) + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_relay<{{T}}, {d}, "


SM90A = {64: Groups(1, 3), 128: Groups(1, 3), 256: Groups(2, 2)}  # masks and dropout
# All else. Loaders spill, as they have 40 registers, 56 at head_dim 64; warps that multiply have 232 or 224 and do not.
# With 72 and 216 none spills, and head_dim 64 is 4 % slower at 16384 tokens.
PIPELINED = {64: Pipeline(1, 4, spills=True), 128: Pipeline(1, 3, spills=True), 256: Relay(2, 2, spills=True)}


def gradient_kernels(
    name: str,
    tilings: Mapping[int, Blocks | Groups],
    form: Arrangement,
    pipelined: Mapping[int, Pipeline] | None = None,
) -> tuple[Kernel, ...]:
    """For each head_dim a unit, and one a kernel with score terms or that rises; pipelined: but for masks, dropout."""
    prepare, gradients = form.params("FlashPrepare", _PREPARE), form.params("FlashGradients", _GRADIENTS)
    more = form.params("FlashGradientsTerms", _GRADIENTS | TERMS)
    made = []
    for d, masked in tilings.items():
        t = (pipelined or {}).get(d, masked)
        unit, sizes = f"{name}_{d}", f"{{T}}, {d}, {t.queries}, {t.keys}"
        facts: dict[str, Any] = {"unit": unit, "source": t.source}
        made += [
            Kernel(f"prepare_{unit}", f"flash_prepare<{sizes}, {form.work}>", prepare, **facts),
            Kernel(
                f"gradients_{unit}", f"{t.call(d)}{form.work}, 0>", gradients, threads=t.threads, min_blocks=t.blocks,
                spills=t.spills, **facts,
            ),
        ]  # fmt: skip
        made += [
            Kernel(f"{of.finish}_{unit}", f"flash_finish<{sizes}, {of.sides or 1}, {form.work}>", gradients, **facts)
            for of in dict.fromkeys((t, masked if form.terms else t))
        ]
        others = [(LEVELS[1], t, "1", more), (LEVELS[2], masked, "2", more)] if form.terms else []
        others += [("_rising", t, "0, true", gradients)] if t.rises and not form.apart else []
        made += [
            Kernel(
                f"gradients_{unit}{suffix}", f"{of.call(d)}{form.work}, {last}>", params, threads=of.threads,
                min_blocks=of.terms_blocks or of.blocks, spills=True, source=of.source,
            )
            for suffix, of, last, params in others
        ]  # fmt: skip
    return tuple(made)


def _wgmma(p: Problem, form: Arrangement, any_order: bool = False) -> Geometry | str:
    if max(p.desc.d_k, p.desc.d_v) <= 32:
        return "head_dim up to 32 is faster without: 7.1 ms against 8.5 for [4, 64, 4096, 32] on an H200"
    d = head_dim(p.desc, SM90A)
    if isinstance(d, str):
        return d
    masked = form.terms and level(p, sinks=False) == 2
    return gradient_steps(p, d, "wgmma", SM90A[d] if masked else PIPELINED.get(d, SM90A[d]), form, any_order)


def _mma(p: Problem, form: Arrangement, any_order: bool = False) -> Geometry | str:
    d = head_dim(p.desc, WIDE)
    if isinstance(d, str):
        return d
    if d in NARROW and WIDE[d].smem(d) > p.device.smem:
        return gradient_steps(p, d, "narrow", NARROW[d], form, any_order)
    return gradient_steps(p, d, "wide", WIDE[d], form, any_order)


def gradient_steps(
    p: Problem, d: int, name: str, t: Blocks | Groups, form: Arrangement, any_order: bool
) -> Geometry | str:
    """Two steps, three where dq is finished; workspace: two numbers a row, turns, the sums of dq where blocks add."""
    desc = p.desc
    each = max(1, 8 * desc.group * d)  # bytes of q, dy and sums of dq a row of a key head has
    neighbours = form.neighbours or t.neighbours
    cut = form.cut(p, t.queries, t.keys, False, TOGETHER // (each * max(1, min(desc.num_kv_heads, neighbours))))
    if isinstance(cut, str):
        return cut
    heads, kv_heads = cut.batch * desc.num_heads, cut.batch * desc.num_kv_heads
    tiles, key_tiles = cut.tiles, cut.key_tiles
    padded, counters = tiles * t.queries, heads * tiles + 1
    turns = cut.start + aligned(8 * heads * padded)
    sums = turns + aligned(4 * counters)
    summed = p.dq is not None and (key_tiles > 1 or t.sides) and not form.apart
    # Whichever gradients are wanted: each has the bits that it has with the others.
    rising = desc.num_kv_heads * 7 // 8 if t.rises and not (form.apart or any_order) and desc.is_causal else 0
    rising_len = TOGETHER // (t.neighbours * each) // t.queries * t.queries
    any_order = any_order and summed
    elements = heads * padded * d if summed else 0
    workspace = sums + aligned(4 * elements)
    common = {
        "stats": cut.start, "turns": turns, "sums": sums, **cut.sizes, **cut.listed(keys=True), "padded": padded,
        "num_heads": desc.num_heads, "d_k": desc.d_k, "d_v": desc.d_v, "tiles": tiles, **window(desc),
    }  # fmt: skip
    rows = 512 // (4 if d <= 32 else 8 if d <= 64 else 16 if d <= 128 else 32)  # a block of flash_prepare takes
    chunks = max(1, -(-padded // rows))
    prepare = {
        "stride": form.strides(p.y, p.dy, p.dq), "chunks": chunks, "counters": counters, "wide": wide(p.y, p.dy),
        "fill": elements // 4 if any_order else 0,
    }  # fmt: skip
    steps = [*cut.steps, Step(f"prepare_{name}_{d}", (chunks * heads, 1, 1), common | prepare)] if heads else []
    views = (p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv)
    if kv_heads * key_tiles and any(g is not None and g.size for g in views[5 if form.apart else 4 :]):
        gradients = {
            "stride": form.strides(*views), "key_tiles": key_tiles, "scale": desc.scale,
            "chunk": min(kv_heads, max(neighbours, TOGETHER // max(1, each * padded))),
            "heads": heads, "group": desc.group, "any_order": int(any_order), "wide": wide(*views),
            "rising": rising, "rising_len": rising_len,
        }  # fmt: skip
        items = kv_heads * key_tiles
        grid = (min(items, p.device.sms) if t.stays else items, 1, 1)
        more = level(p, sinks=False) if form.terms else 0
        if more and (why := refuse_terms(desc)):
            return why
        rises = rising and not more and (not form.terms or desc.query_len <= rising_len)
        kernel = f"gradients_{name}_{d}{'_rising' if rises else LEVELS[more]}"
        params = common | gradients
        params |= terms(p, desc.scale) if more else {}
        smem = t.smem(d) + (t.bias_smem() if more and p.mask is not None else 0)
        steps.append(Step(kernel, grid, params, {}, t.threads, smem))
        if any_order or (t.sides and summed):
            warps = heads * tiles * (t.queries // 16) * (d // 32)
            steps.append(Step(f"{t.finish}_{name}_{d}", (-(-warps // 8), 1, 1), common | gradients))
    if form.terms:
        biases, workspace = bias_steps(p, workspace)
        steps += biases
    return Geometry(tuple(steps), workspace, layout(*views, p.y))


def _row(
    name: str, geometry: Callable[..., Geometry | str], design: ArchSku, kernels: tuple[Kernel, ...], form: Arrangement
) -> Variant:
    return Variant(
        name, partial(geometry, form=form), source=f"attention/flash_sdpa_backward_{name}.cu",
        kernels=(*kernels, *(MMA_KERNELS if form.terms else ()), *form.before), elements=HALVES, design=design,
        guarantee=TENSOR_CORES,
    )  # fmt: skip


def _free(row: Variant) -> Variant:
    """The same kernels, their blocks adding to dq with atomics when they get there, waiting for no other."""
    guarantee = replace(row.guarantee, deterministic=False, bit_stable=False, batch_invariant=False)
    geometry = partial(row.geometry, any_order=True)
    return replace(row, name=f"{row.name}_any_order", geometry=geometry, guarantee=guarantee)


def tensor_core_rows(form: Arrangement) -> tuple[Variant, ...]:
    """The rows of wgmma and mma.sync, in any order of sums and in a fixed one."""
    wgmma = _row("wgmma", _wgmma, ArchSku.SM90A, gradient_kernels("wgmma", SM90A, form, PIPELINED), form)
    kernels = *gradient_kernels("wide", WIDE, form), *gradient_kernels("narrow", NARROW, form)
    mma = _row("mma", _mma, ArchSku.SM80, kernels, form)
    return _free(wgmma), wgmma, _free(mma), mma


ROWS = tensor_core_rows(DENSE)
