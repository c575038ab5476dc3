"""Linear attention taken apart into chunks of 64 steps: what is local, states, their gradients, and what follows."""

from __future__ import annotations

from typing import Any

from ..core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ..core.variant import aligned
from .attention.dense.forward import HALVES, wide
from .recurrence import CHUNK, CHUNK_DIMS, FIELDS, common, layout_of, three
from .recurrence_backward import SUMS, nothing, sum_of

CREW = 256
_AREA = CHUNK * CHUNK
_KEPT = ("memory", "slopes", "u", "du", "w", "inverse", "alike")
_GRADIENTS = ("dq", "dk", "dv", "dg", "dbeta", "dg_channel")
_STRIDES = ("dfinal_stride", "dinitial_stride", *(f"{name}_stride" for name in _GRADIENTS))
PARAMS = Params(
    "ChunkedAttentionParams", **FIELDS,
    **dict.fromkeys((*_KEPT, "dfinal_state", "dinitial_state", *_GRADIENTS, "dbonus"), "ptr"),
    **dict.fromkeys(_STRIDES, "i64[3]"), chunks_each="i64", whole="i32",
)  # fmt: skip
_WALKS = ("states", "slopes", "channel_states", "channel_slopes")  # along sequences; others have all chunks at once
_OF_ANY_RULE = ("local", "channel_local")
_BITS = {"dq": 1, "dk": 2, "dv": 4, "dg_channel": 8}  # of `whole`: outputs that are no sums of heads
_HEADS = {"dq": "q_heads", "dk": "k_heads", "dv": "v_heads", "dg_channel": "num_heads"}


class Chunks:
    """Places of a problem's chunks and what each keeps in the workspace."""

    def __init__(self, p: Problem, d: int) -> None:
        desc, self.d = p.desc, d
        steps = desc.seq_len if desc.batch_size else 0
        self.each = -(-steps // CHUNK)
        packed = p.views.get("cu_seqlens") is not None
        self.places = steps // CHUNK + desc.num_states if packed else self.each * desc.num_states
        self.tiles = -(-desc.d_v // CHUNK)
        self.local = self.places * desc.num_heads
        self.walks = desc.num_states * desc.num_heads * self.tiles

    def sizes(self) -> dict[str, int]:
        """Bytes of what is kept."""
        state, area = self.local * self.tiles * self.d * CHUNK * 2, self.local * self.tiles * _AREA * 2
        return {
            "memory": state, "slopes": state, "u": area, "du": area, "w": self.local * CHUNK * self.d * 2,
            "inverse": self.local * _AREA * 4, "alike": self.local * _AREA * 4,
        }  # fmt: skip

    def shared(self, kernel: str, delta: bool, backward: bool = False) -> int:
        """Bytes of shared memory of a kernel's blocks."""
        rows, area = 2 * CHUNK * self.d, 2 * _AREA
        return {
            "local": (2 if backward else 1) * rows + 7 * area,
            "states": (4 if delta else 3) * rows + 3 * area,
            "slopes": (4 * rows + 4 * area) if delta else 3 * rows + 3 * area,
            "channel_local": 3 * rows + 5 * area,
            "channel_states": (5 if delta else 4) * rows + area,
            "channel_outputs": 5 * rows + area,
            "channel_slopes": (5 * rows + 2 * area) if delta else 4 * rows + area,
            "channel_gradients": max(5 * rows + 2 * area, 4 * rows + 4 * area),
            "outputs": 3 * rows + 2 * area,
            "gradients": 3 * rows + 3 * area + (max(rows, 2 * area) if delta else rows),
        }[kernel]

    def step(
        self, kernel: str, params: dict[str, Any], delta: bool, backward: bool = False, blocks: int | None = None
    ) -> Step:
        """A launch: of a block for each chunk and head, or for each walk along a sequence."""
        if blocks is None:
            blocks = self.walks if kernel in _WALKS else self.local
        name = f"{kernel}_{self.d}" if kernel in _OF_ANY_RULE else f"{kernel}_{'delta_' if delta else ''}{self.d}"
        return Step(name, (blocks, 1, 1), params, {}, CREW, self.shared(kernel, delta, backward))


def chunks_for(p: Problem) -> Chunks | str:
    """The chunks, or why there are none."""
    if p.views.get("a") is not None:
        return "states that change by more than their decays"
    d = next((d for d in CHUNK_DIMS if p.desc.d_k <= d), None)
    if d is None:
        return f"d_k {p.desc.d_k} is beyond {CHUNK_DIMS[-1]}"
    made = Chunks(p, d)
    return "2^31 blocks or more" if max(made.local, made.walks) >= 2**31 else made


def _whole(p: Problem, name: str) -> bool:
    view = p.views[name]
    if p.views.get("g_channel") is not None and p.desc.use_qk_l2norm and name in ("dq", "dk"):
        return False  # recurrence_sum goes through the normalisation
    return bool(getattr(p.desc, _HEADS[name]) == p.desc.num_heads and view.strides[-1] == 1)


def _backward(p: Problem) -> Geometry | str:
    desc, chunks = p.desc, chunks_for(p)
    if isinstance(chunks, str):
        return chunks
    if not desc.num_states or not desc.num_heads:
        return nothing(p)
    delta, channels, used = p.beta is not None, p.views.get("g_channel") is not None, 0
    params: dict[str, Any] = common(p, y=p.dy) | {
        "y": "dy", "wide": wide(p.q, p.k, p.v, None, p.dy), "chunks_each": chunks.each, "whole": 0,
        "dfinal_stride": three(p.dfinal_state), "dinitial_stride": three(p.dinitial_state),
    }  # fmt: skip
    for name in ("dfinal_state", "dinitial_state"):
        params[name] = "@null" if p.views.get(name) is None else name
    for name, nbytes in chunks.sizes().items():
        there = name in ("memory", "slopes") or (delta and (channels or name != "alike"))
        params[name] = ("@workspace", used) if there else "@null"
        used += aligned(nbytes) if there else 0
    sums = []
    for name in _GRADIENTS:
        view = p.views.get(name)
        params |= {name: "@null" if view is None else name, f"{name}_stride": three(view)}
        if view is None or name not in _BITS:
            continue
        if _whole(p, name):
            params["whole"] += _BITS[name]
        else:
            params[name] = ("@workspace", used)
            sums.append((name, used))
            width = desc.d_v if name == "dv" else desc.d_k
            used += aligned(desc.batch_size * desc.seq_len * desc.num_heads * width * 4)
    params["dbonus"] = "@null"
    if p.views.get("dbonus") is not None:
        params["dbonus"] = ("@workspace", used)
        sums.append(("dbonus", used))
        used += aligned(chunks.local * desc.d_k * 4)
    wanted = any(params[name] != "@null" for name in (*_GRADIENTS, "dbonus"))
    kernels = ["local"] * (delta and chunks.local > 0)
    kernels += ["states"] * wanted + ["slopes"] + ["gradients"] * (wanted and chunks.local > 0)
    steps = [chunks.step(f"{'channel_' * channels}{name}", params, delta, backward=True) for name in kernels]
    for name, place in sums:
        if 0 not in p.views[name].shape:
            steps.append(sum_of(p, name, place, chunks.places if name == "dbonus" else 1))
    return Geometry(tuple(steps), used, layout_of(p))


def _forward(p: Problem) -> Geometry | str:
    desc = p.desc
    if desc.stepwise:
        return "in chunks, and stepwise asks for step by step"
    chunks, delta, channels = chunks_for(p), p.beta is not None, p.views.get("g_channel") is not None
    if isinstance(chunks, str):
        return chunks
    if not (delta or channels) and desc.seq_len <= CHUNK:
        return "one chunk, of which one launch makes as much"
    params: dict[str, Any] = common(p) | {
        **dict.fromkeys((*_KEPT, "dfinal_state", "dinitial_state", *_GRADIENTS, "dbonus"), "@null"),
        **dict.fromkeys(_STRIDES, (0, 0, 0)), "wide": wide(p.q, p.k, p.v, None, p.y), "chunks_each": chunks.each,
        "whole": 0,
    }  # fmt: skip
    if p.final_state is not None:
        params |= {"final_state": "final_state", "final_stride": three(p.final_state)}
    used = 0
    for name in ("memory", *(("u", "w") if delta else ())):
        params[name] = ("@workspace", used)
        used += aligned(chunks.sizes()[name])
    kernels = [f"{'channel_' * channels}{name}" for name in (*["local"] * delta, "states", "outputs")]
    if not desc.num_states:
        blocks = desc.num_heads * (desc.batch_size > 0)
        steps = [chunks.step(kernels[-1], params, delta, blocks=blocks)] * (blocks > 0)
        return Geometry(tuple(steps), used, layout_of(p))
    steps = [chunks.step(kernel, params, delta) for kernel in kernels]
    return Geometry(tuple(step for step in steps if step.grid[0]), used, layout_of(p))


def _kernels(names: tuple[str, ...]) -> tuple[Kernel, ...]:
    made = []
    for name in names:
        for delta in (False,) if name in _OF_ANY_RULE else (False, True):
            rule = "" if name in _OF_ANY_RULE else f", {str(delta).lower()}"
            made += [
                Kernel(
                    f"{name}_{'delta_' if delta else ''}{d}", f"linear_attention_{name}<{{T}}, {d}{rule}>", PARAMS,
                    threads=CREW, min_blocks=2 if name in _WALKS else 0,
                    source=f"recurrence/linear_attention_{name}.cu", kindless=True,
                )
                for d in CHUNK_DIMS
            ]  # fmt: skip
    return tuple(made)


BACKWARD_CHUNKS_ROW = Variant(
    "chunks", _backward, source="recurrence/linear_attention_gradients.cu", elements=HALVES,
    kernels=(
        *_kernels(("local", "states", "slopes", "gradients")),
        *_kernels(("channel_local", "channel_states", "channel_slopes", "channel_gradients")),
        *SUMS,
    ),
    guarantee=Guarantee(Relative(4, mean=3), batch_invariant=True), may_spill=True,
)  # fmt: skip
FORWARD_CHUNKS_ROW = Variant(
    "passes",
    _forward,
    source="recurrence/linear_attention_outputs.cu",
    elements=HALVES,
    kernels=_kernels(tuple(f"{of}{name}" for of in ("", "channel_") for name in ("local", "states", "outputs"))),
    guarantee=Guarantee(Relative(3, mean=3), batch_invariant=True),
    may_spill=True,
)
