"""Linear attention step by step: rows of the forward, of its decode step and of the backward."""

from __future__ import annotations

from typing import Any

from ..core import FLOATS, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ..core.tensor import View
from .attention.dense.forward import HALVES, wide

DIMS = (64, 128, 256)
CHUNK_DIMS, CHUNK = (64, 128), 64
THREADS, COLUMNS, TILE = 128, 32, 2048
NORM_EPS = 1e-6  # of flash-linear-attention's l2norm
_SOURCE = "recurrence/linear_attention.cu"
OPERANDS = ("q", "k", "v", "g_channel", "y", "a", "b", "g", "beta")  # the order of `stride`
FIELDS: dict[str, Any] = {
    **dict.fromkeys((*OPERANDS, "bonus", "initial_state", "final_state", "states", "bounds", "slots"), "ptr"),
    "stride": "i64[9][3]", "initial_stride": "i64[3]", "final_stride": "i64[3]",
    **dict.fromkeys(("seq_len", "num_states", "d_v", "num_heads", "q_heads", "k_heads", "v_heads"), "i64"),
    "batch_size": "i64",
    **dict.fromkeys(("bound_stride", "slot_stride", "num_slots", "every", "bonus_stride"), "i64"), "scale": "f64",
    **dict.fromkeys(("d_k", "normalised", "wide_bounds", "wide_slots", "wide"), "i32"), "eps": "f64",
}  # fmt: skip
PARAMS = Params("LinearAttentionParams", **FIELDS)
# A sequence of more than so many segments is cut, and then its states are found side by side: see chunk_segments.cuh.
SEGMENT, MOST_UNCUT = 2048, 4
_FEW = {False: 64, True: 32}  # walks of one sequence that leave most of a machine idle; of the delta rule
_CHUNKED = Params("ChunkedParams", **FIELDS, segment="i64", most_uncut=MOST_UNCUT)
RINGED = ("k", "v", "g", "g_channel", "beta", "a", "b")  # of which a ring has the last steps
REPLAY_PARAMS = Params(
    "LinearAttentionReplayParams", **FIELDS, **{f"ring_{name}": "ptr" for name in RINGED},
    **dict.fromkeys(("length", "written", "now_written"), "ptr"),
    **dict.fromkeys(("ring", "length_stride", "written_stride", "now_stride"), "i64"),
)  # fmt: skip


def three(view: View | None) -> tuple[int, ...]:
    """Strides of batch, row and head, or of state, head and row."""
    return (0, 0, 0) if view is None else (*view.strides[:3],)


def dim_of(desc: Any) -> int | str:
    """The widest state whose rows hold d_k."""
    found = next((d for d in DIMS if desc.d_k <= d), None)
    return f"d_k {desc.d_k} is beyond {DIMS[-1]}" if found is None else found


def states_of(desc: Any) -> int:
    """Sequences that have a state of their own."""
    return int(getattr(desc, "num_states", desc.batch_size))


def tiles_of(desc: Any) -> int:
    """Blocks that share the columns of a state."""
    return -(-int(desc.d_v) // COLUMNS)


def common(p: Problem, **also: View | None) -> dict[str, Any]:
    """What every launch is told; `also` are views that a page calls by another name, or has not."""
    desc = p.desc
    views = {name: also[name] if name in also else p.views.get(name) for name in OPERANDS}
    initial = also["initial"] if "initial" in also else p.views.get("initial_state")
    bounds, bonus = p.views.get("cu_seqlens"), p.views.get("bonus")
    names = {name: name if p.views.get(name) is not None else "@null" for name in (*OPERANDS, "bonus")}
    return {
        **names, "initial_state": "@null" if initial is None else "initial_state", "final_state": "@null",
        "states": "@null", "slots": "@null", "bounds": "@null" if bounds is None else "cu_seqlens",
        "stride": [three(views[name]) for name in OPERANDS], "initial_stride": three(initial),
        "final_stride": (0, 0, 0),
        "seq_len": desc.seq_len if desc.batch_size else 0, "num_states": states_of(desc), "d_v": desc.d_v,
        "batch_size": desc.batch_size,
        "num_heads": desc.num_heads, "q_heads": desc.q_heads, "k_heads": desc.k_heads, "v_heads": desc.v_heads,
        "bound_stride": 0 if bounds is None else bounds.strides[0], "slot_stride": 0, "num_slots": 0, "every": 1,
        "bonus_stride": 0 if bonus is None else bonus.strides[0], "scale": desc.scale, "d_k": desc.d_k,
        "normalised": int(desc.use_qk_l2norm), "wide_slots": 0, "wide": 0,
        "wide_bounds": int(bounds is not None and bounds.element.itemsize == 8), "eps": NORM_EPS,
    }  # fmt: skip


def shared_bytes(p: Problem, d: int, arrays: int) -> int:
    """Shared memory of tiles of so many operands, v and the bonus."""
    rows = arrays + sum(p.views.get(name) is not None for name in ("g_channel", "a", "b"))
    return int(p.desc.element.acc.itemsize) * (rows * TILE + TILE // d * COLUMNS + d)


def grid_of(desc: Any) -> tuple[int, int, int] | str:
    """A block for each tile of columns of each state; where there is no sequence, those that write zeros."""
    blocks = max(1, states_of(desc)) * desc.num_heads * tiles_of(desc)
    return (blocks, 1, 1) if blocks < 2**31 else "2^31 blocks or more"


def segment_of(desc: Any, delta: bool) -> int:
    """Steps of a segment; 0 where no sequence is cut, which does not depend on how many there are."""
    few = desc.num_heads * -(-desc.d_v // CHUNK) <= _FEW[delta]
    return SEGMENT if few and desc.seq_len > MOST_UNCUT * SEGMENT else 0


def layout_of(p: Problem) -> str:
    """The layout class for the SKU."""
    return "contiguous" if all(view.dense for view in p.flat()) else "inner_contiguous"


def steps_of(p: Problem, params: dict[str, Any]) -> Geometry | str:
    """One launch over all states."""
    d, grid = dim_of(p.desc), grid_of(p.desc)
    if isinstance(d, str) or isinstance(grid, str):
        return d if isinstance(d, str) else str(grid)
    if not grid[0]:
        return Geometry((), layout=layout_of(p))
    step = Step(f"steps_{d}", grid, params, {}, THREADS, shared_bytes(p, d, 2))
    return Geometry((step,), layout=layout_of(p))


def _forward(p: Problem) -> Geometry | str:
    params = common(p)
    if p.final_state is not None:
        params |= {"final_state": "final_state", "final_stride": three(p.final_state)}
    return steps_of(p, params)


def _chunks(p: Problem) -> Geometry | str:
    desc = p.desc
    if desc.stepwise:
        return "in chunks, and stepwise asks for step by step"
    if p.views.get("g_channel") is not None:
        return "decays of every channel"
    if p.views.get("beta") is not None:
        return "the delta rule, which goes in passes"
    d = next((d for d in CHUNK_DIMS if desc.d_k <= d), None)
    if d is None:
        return f"d_k {desc.d_k} is beyond {CHUNK_DIMS[-1]}"
    blocks = max(1, desc.num_states) * desc.num_heads * -(-desc.d_v // CHUNK)
    if blocks >= 2**31:
        return "2^31 blocks or more"
    if not blocks:
        return Geometry((), layout=layout_of(p))
    segment = segment_of(desc, delta=False)
    params = common(p) | {"wide": wide(p.q, p.k, p.v, None, p.y), "segment": segment}
    if p.final_state is not None:
        params |= {"final_state": "final_state", "final_stride": three(p.final_state)}
    smem = 2 * (3 * d * CHUNK + 2 * CHUNK * CHUNK) + (4 * d * CHUNK if segment else 0)
    step = Step(f"chunks_{d}", (blocks, 1, 1), params, {}, THREADS, smem)
    return Geometry((step,), layout=layout_of(p))


def _in_slots(p: Problem) -> dict[str, Any]:
    """Parameters of kernels whose states are in slots."""
    slots = p.slots
    params = common(p, initial=p.state) | {
        "initial_state": "state", "final_state": "state", "final_stride": three(p.state),
        "num_slots": p.desc.num_slots,
    }  # fmt: skip
    if slots is not None:
        params |= {"slots": "slots", "slot_stride": slots.strides[0], "wide_slots": int(slots.element.itemsize == 8)}
    return params


def _decode(p: Problem) -> Geometry | str:
    return steps_of(p, _in_slots(p) | ({} if p.states is None else {"states": "states"}))


def _replay(p: Problem) -> Geometry | str:
    rings = {f"ring_{name}": "@null" if p.views.get(name) is None else f"ring_{name}" for name in RINGED}
    params = _in_slots(p) | rings | {
        "length": "length", "written": "written", "now_written": "now_written", "ring": p.desc.ring,
        "length_stride": p.length.strides[0], "written_stride": p.written.strides[0],
        "now_stride": p.now_written.strides[0], "every": p.desc.every,
    }  # fmt: skip
    return steps_of(p, params)


def kernels(
    params: Params, name: str = "steps", call: str = "linear_attention", source: str = "", blocks: Any = None
) -> tuple[Kernel, ...]:
    """A kernel for each width of states; blocks: of them, how many a multiprocessor is to hold, by the element."""
    return tuple(
        Kernel(
            f"{name}_{d}", f"{call}<{{T}}, {d}>", params, threads=THREADS, source=source, kindless=True,
            min_blocks=blocks if blocks and d <= CHUNK_DIMS[-1] else 0,
        )
        for d in DIMS
    )  # fmt: skip


def _decoding_blocks(element: ElementKind, kind: Any) -> int:
    """A step is bound by the bytes of states that are under way, 16 KB a block."""
    return 4 if element.itemsize == 2 else 0


GUARANTEE = Guarantee(Relative(4, mean=3), batch_invariant=True)
STEPS_ROW = Variant(
    "steps", _forward, source=_SOURCE, elements=FLOATS, kernels=kernels(PARAMS), guarantee=GUARANTEE, may_spill=True
)
CHUNKS_ROW = Variant(
    "chunks", _chunks, source="recurrence/linear_attention_chunks.cu", elements=HALVES,
    kernels=tuple(
        Kernel(f"chunks_{d}", f"linear_attention_chunks<{{T}}, {d}>", _CHUNKED, threads=THREADS, kindless=True)
        for d in CHUNK_DIMS
    ),
    guarantee=Guarantee(Relative(3, mean=3), batch_invariant=True), may_spill=True,
)  # fmt: skip
DECODE_ROW = Variant(
    "steps", _decode, source=_SOURCE, elements=FLOATS, kernels=kernels(PARAMS, blocks=_decoding_blocks),
    guarantee=GUARANTEE, may_spill=True,
)  # fmt: skip
REPLAY_ROW = Variant(
    "steps", _replay, source="recurrence/linear_attention_replay.cu", elements=FLOATS,
    kernels=kernels(REPLAY_PARAMS, call="linear_attention_replay", blocks=_decoding_blocks), guarantee=GUARANTEE,
    may_spill=True,
)  # fmt: skip
