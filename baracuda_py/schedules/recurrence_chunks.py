"""Linear attention taken apart into chunks of 64 steps: what is local, states, their gradients, and what follows."""

from __future__ import annotations

from typing import Any

from ..core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ..core.variant import aligned
from .attention.dense.forward import HALVES, wide
from .recurrence import CHUNK, CHUNK_DIMS, FIELDS, MOST_UNCUT, common, layout_of, segment_of, three
from .recurrence_backward import SUMS, nothing, sum_of

CREW = 256
JOINED = 4  # blocks that share 64 columns of a state at a border, of the delta rule
_AREA = CHUNK * CHUNK
_KEPT = ("memory", "slopes", "u", "du", "w", "inverse", "alike")
_BORDERS = ("carried", "moves")
_GRADIENTS = ("dq", "dk", "dv", "dg", "dbeta", "dg_channel")
_STRIDES = ("dfinal_stride", "dinitial_stride", *(f"{name}_stride" for name in _GRADIENTS))
PARAMS = Params(
    "ChunkedAttentionParams", **FIELDS,
    **dict.fromkeys((*_KEPT, "dfinal_state", "dinitial_state", *_GRADIENTS, "dbonus"), "ptr"),
    **dict.fromkeys(_STRIDES, "i64[3]"), chunks_each="i64", whole="i32", **dict.fromkeys(_BORDERS, "ptr"),
    **dict.fromkeys(("segment", "borders_each"), "i64"), **dict.fromkeys(("local", "back"), "i32"),
    most_uncut=MOST_UNCUT, joined=JOINED,
)  # fmt: skip
_WALKS = ("states", "slopes", "channel_states", "channel_slopes")  # along sequences; others have all chunks at once
_OF_ANY_RULE = ("local", "channel_local")
_BITS = {"dq": 1, "dk": 2, "dv": 4, "dg_channel": 8}  # of `whole`: outputs that are no sums of heads
_HEADS = {"dq": "q_heads", "dk": "k_heads", "dv": "v_heads", "dg_channel": "num_heads"}


class Chunks:
    """Places of a problem's chunks and what each keeps in the workspace."""

    def __init__(self, p: Problem, d: int) -> None:
        desc, self.d, self.delta = p.desc, d, p.beta is not None
        steps = desc.seq_len if desc.batch_size else 0
        self.each = -(-steps // CHUNK)
        packed = p.views.get("cu_seqlens") is not None
        self.places = steps // CHUNK + desc.num_states if packed else self.each * desc.num_states
        self.tiles = -(-desc.d_v // CHUNK)
        self.local = self.places * desc.num_heads
        self.heads, self.each_sequence = desc.num_heads, desc.num_heads * self.tiles
        self.walks = desc.num_states * self.each_sequence
        self.segment = segment_of(desc, self.delta) if steps and desc.num_states else 0
        self.borders_each = -(-steps // self.segment) if self.segment else 0
        self.borders = self.borders_each * (1 if packed else desc.num_states)
        self.most = max(self.local, self.walks + 2 * self.borders * self.each_sequence)
        self.cut = -(-steps // (MOST_UNCUT * self.segment)) if packed and self.segment else desc.num_states

    def sizes(self) -> dict[str, int]:
        """Bytes of what is kept."""
        state, area = self.local * self.tiles * self.d * CHUNK * 2, self.local * self.tiles * _AREA * 2
        return {
            "memory": state, "slopes": state, "u": area, "du": area, "w": self.local * CHUNK * self.d * 2,
            "inverse": self.local * _AREA * 4, "alike": self.local * _AREA * 4,
        }  # fmt: skip

    def params(self, used: int) -> tuple[dict[str, Any], int]:
        """What launches are told of segments, and the bytes of workspace then used."""
        made: dict[str, Any] = {**dict.fromkeys(_BORDERS, "@null"), "local": 0, "back": 0}
        made |= {"chunks_each": self.each, "segment": self.segment, "borders_each": self.borders_each}
        if self.segment:
            state = self.borders * self.each_sequence * self.d * CHUNK * 4
            moves = self.borders * self.heads * self.d * (self.d if self.delta else 1) * 4
            made |= {"carried": ("@workspace", used), "moves": ("@workspace", used + aligned(state))}
            used += aligned(state) + aligned(moves)
        return made, used

    def walk(self, kernel: str, params: dict[str, Any], final: bool = True) -> list[Step]:
        """Launches along sequences: where some may be cut, first of segments alone and of the states at their borders.

        final: whether states are wanted, and not only what segments make of them.
        """
        delta, back = self.delta, kernel.endswith("slopes")
        steps = []
        if self.segment:
            columns = self.each_sequence + self.heads * (delta and not back) * (self.d // CHUNK)
            told = params | {"local": 1, "back": int(back)}
            steps.append(self.step(kernel, told, delta, blocks=self.borders * columns))
            parts = JOINED if delta else self.d * CHUNK // (4 * CREW)
            steps.append(self.step("join", told, delta, blocks=self.cut * self.each_sequence * parts))
        blocks = self.walks + self.borders * self.each_sequence
        return [*steps, self.step(kernel, params, delta, blocks=blocks)] if final else steps[:1]

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
            "join": 0,
            "gradients": 3 * rows + 3 * area + (max(rows, 2 * area) if delta else rows),
        }[kernel]

    def step(
        self, kernel: str, params: dict[str, Any], delta: bool, backward: bool = False, blocks: int | None = None
    ) -> Step:
        """A launch, by itself of a block for each chunk and head."""
        blocks = self.local if blocks is None else blocks
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
    return "2^31 blocks or more" if made.most >= 2**31 else made


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
        "y": "dy", "wide": wide(p.q, p.k, p.v, None, p.dy), "whole": 0,
        "dfinal_stride": three(p.dfinal_state), "dinitial_stride": three(p.dinitial_state),
    }  # fmt: skip
    for name in ("dfinal_state", "dinitial_state"):
        params[name] = "@null" if p.views.get(name) is None else name
    for name, nbytes in chunks.sizes().items():
        there = name in ("memory", "slopes") or (delta and (channels or name != "alike"))
        params[name] = ("@workspace", used) if there else "@null"
        used += aligned(nbytes) if there else 0
    told, used = chunks.params(used)
    params |= told
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
    of, steps = "channel_" * channels, []
    if delta and chunks.local:
        steps.append(chunks.step(f"{of}local", params, delta, backward=True))
    if wanted or (delta and chunks.segment):
        steps += chunks.walk(f"{of}states", params, final=wanted)
    steps += chunks.walk(f"{of}slopes", params)
    if wanted and chunks.local:
        steps.append(chunks.step(f"{of}gradients", params, delta, backward=True))
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
        **dict.fromkeys(_STRIDES, (0, 0, 0)), "wide": wide(p.q, p.k, p.v, None, p.y), "whole": 0,
    }  # fmt: skip
    if p.final_state is not None:
        params |= {"final_state": "final_state", "final_stride": three(p.final_state)}
    used = 0
    for name in ("memory", *(("u", "w") if delta else ())):
        params[name] = ("@workspace", used)
        used += aligned(chunks.sizes()[name])
    told, used = chunks.params(used)
    params |= told
    of = "channel_" * channels
    outputs = f"{of}outputs"
    if not desc.num_states:
        blocks = desc.num_heads * (desc.batch_size > 0)
        steps = [chunks.step(outputs, params, delta, blocks=blocks)] * (blocks > 0)
        return Geometry(tuple(steps), used, layout_of(p))
    steps = [chunks.step(f"{of}local", params, delta)] * delta
    steps += [*chunks.walk(f"{of}states", params), chunks.step(outputs, params, delta)]
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
        *_kernels(("local", "states", "join", "slopes", "gradients")),
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
    kernels=_kernels((*(f"{of}{name}" for of in ("", "channel_") for name in ("local", "states", "outputs")), "join")),
    guarantee=Guarantee(Relative(3, mean=3), batch_invariant=True),
    may_spill=True,
)
