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
_OF_CHANNELS = ("kept_keys", "totals")  # of operands with decays of channels, scaled once a chunk
_OF_RANK_ONE = (*_OF_CHANNELS, "kept_writers")
_KEPT = ("memory", "slopes", "u", "du", "w", "inverse", "alike", *_OF_RANK_ONE, "kept_queries")
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
_WALKS = ("states", "slopes")  # along sequences; others have all chunks at once
_OF_ANY_RULE = ("local", "channel_local", "channel_scaled", "rank_local", "rank_states", "rank_slopes", "rank_reads")
_RULES = {"": "false", "delta_": "true"}  # of kernels' names and templates
_BITS = {"dq": 1, "dk": 2, "dv": 4, "dg_channel": 8}  # of `whole`: outputs that are no sums of heads
_HEADS = {"dq": "q_heads", "dk": "k_heads", "dv": "v_heads", "dg_channel": "num_heads"}


class Chunks:
    """Places of a problem's chunks and what each keeps in the workspace."""

    def __init__(self, p: Problem, d: int) -> None:
        desc = self.desc = p.desc
        self.d, self.rank = d, p.views.get("a") is not None
        self.delta = self.rank or p.beta is not None  # steps make more of a state than a multiple of its rows
        self.channels = p.views.get("g_channel") is not None
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
            "inverse": self.local * _AREA * 4, "alike": self.local * _AREA * 4, **self._of_channels(),
        }  # fmt: skip

    def _of_channels(self) -> dict[str, int]:
        if not self.channels:
            return {}
        rows = self.local * CHUNK * self.d * 2
        made = {"kept_keys": rows, "totals": self.local * self.d * 4, "kept_queries": rows}
        if not self.rank:
            return made
        reads = self.desc.batch_size * self.desc.seq_len * self.each_sequence * CHUNK * 2
        return made | {"u": reads, "du": reads, "kept_writers": rows}

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
            steps.append(self.step(kernel, told, blocks=self.borders * columns))
            parts = JOINED if delta else self.d * CHUNK // (4 * CREW)
            steps.append(self.step("join", told, blocks=self.cut * self.each_sequence * parts))
        blocks = self.walks + self.borders * self.each_sequence
        return [*steps, self.step(kernel, params, blocks=blocks)] if final else steps[:1]

    def shared(self, kernel: str, backward: bool = False) -> int:
        """Bytes of shared memory of a kernel's blocks."""
        rows, area, delta = 2 * CHUNK * self.d, 2 * _AREA, self.delta
        return {
            "local": (2 if backward else 1) * rows + 7 * area,
            "states": (4 if delta else 3) * rows + 3 * area,
            "slopes": (4 * rows + 4 * area) if delta else 3 * rows + 3 * area,
            "channel_local": 3 * rows + 5 * area,
            "channel_states": (5 if delta else 3) * rows + 2 * area,
            "channel_scaled": (4 if backward else 3) * rows,
            "channel_outputs": 5 * rows + (2 if self.rank else 1) * area,
            "rank_local": 4 * rows + 4 * area,
            "rank_states": 4 * rows + 2 * area,
            "rank_slopes": 4 * rows + 2 * area,
            "rank_reads": 3 * area,
            "channel_slopes": (4 * rows + 3 * area) if delta else 3 * rows + 2 * area,
            "channel_gradients": max(5 * rows + 2 * area, 4 * rows + 4 * area),
            "outputs": 3 * rows + 2 * area,
            "join": 0,
            "gradients": 3 * rows + 3 * area + (max(rows, 2 * area) if delta else rows),
        }[kernel]

    def step(self, kernel: str, params: dict[str, Any], backward: bool = False, blocks: int | None = None) -> Step:
        """A launch, by itself of a block for each chunk and head."""
        rule = "delta_" if self.delta else ""
        if kernel in _OF_ANY_RULE or (self.rank and kernel == "channel_gradients"):
            rule = ""
        elif self.rank and kernel != "join":
            rule = "rank_"
        blocks = self.local if blocks is None else blocks
        return Step(f"{kernel}_{rule}{self.d}", (blocks, 1, 1), params, {}, CREW, self.shared(kernel, backward))


def chunks_for(p: Problem) -> Chunks | str:
    """The chunks, or why there are none."""
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


def _given(p: Problem) -> dict[str, Any]:
    """What every launch of the gradients is told of operands."""
    params = common(p, y=p.dy) | {
        **dict.fromkeys((*_KEPT, *_GRADIENTS, "dbonus"), "@null"), **dict.fromkeys(_STRIDES, (0, 0, 0)),
        "y": "dy", "wide": wide(p.q, p.k, p.v, None, p.dy, p.views.get("a"), p.views.get("b")), "whole": 0,
        "dfinal_stride": three(p.dfinal_state), "dinitial_stride": three(p.dinitial_state),
    }  # fmt: skip
    for name in ("dfinal_state", "dinitial_state"):
        params[name] = "@null" if p.views.get(name) is None else name
    return params


def _backward(p: Problem) -> Geometry | str:
    desc, chunks = p.desc, chunks_for(p)
    if isinstance(chunks, str):
        return chunks
    if not desc.num_states or not desc.num_heads:
        return nothing(p)
    if chunks.rank:
        return _of_rank_one(p, chunks)
    delta, channels, used, params = chunks.delta, chunks.channels, 0, _given(p)
    always = ("memory", "slopes", *_OF_CHANNELS, "kept_queries")
    for name, nbytes in chunks.sizes().items():
        there = name in always or (delta and (channels or name != "alike"))
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
    if p.views.get("dbonus") is not None:
        params["dbonus"] = ("@workspace", used)
        sums.append(("dbonus", used))
        used += aligned(chunks.local * desc.d_k * 4)
    wanted = any(params[name] != "@null" for name in (*_GRADIENTS, "dbonus"))
    of, steps = "channel_" * channels, []
    if (delta or channels) and chunks.local:
        steps.append(chunks.step(f"{of}local" if delta else "channel_scaled", params, backward=True))
    if wanted or (delta and chunks.segment):
        steps += chunks.walk(f"{of}states", params, final=wanted)
    steps += chunks.walk(f"{of}slopes", params)
    if wanted and chunks.local:
        steps.append(chunks.step(f"{of}gradients", params, backward=True))
    for name, place in sums:
        if 0 not in p.views[name].shape:
            steps.append(sum_of(p, name, place, chunks.places if name == "dbonus" else 1))
    return Geometry(tuple(steps), used, layout_of(p))


# Pairs of what reads states and what is written to them; and how many of them a gradient is a sum of.
_PAIRS = (("q", "k"), ("q", "b"), ("a", "k"), ("a", "b"))
_PARTS = {"dq": 2, "dk": 2, "dv": 2, "da": 2, "db": 2, "dg_channel": 4}


def _of_rank_one(p: Problem, chunks: Chunks) -> Geometry:
    """Gradients of the rank-one rule: those of channels, once for each of its pairs, and sums of the four."""
    desc, params, used = p.desc, _given(p), 0
    for name, nbytes in chunks.sizes().items():
        if name != "alike":
            params[name] = ("@workspace", used)
            used += aligned(nbytes)
    told, used = chunks.params(used)
    params |= told
    places: dict[str, int] = {}
    left: dict[str, list[Any]] = {}
    for name, count in _PARTS.items():
        left[name] = ["@null"] * count
        if p.views.get(name) is not None:
            nbytes = desc.batch_size * desc.seq_len * desc.num_heads * (desc.d_v if name == "dv" else desc.d_k) * 4
            places[name], left[name] = used, [("@workspace", used + n * nbytes) for n in range(count)]
            used += aligned(count * nbytes)
    steps = [chunks.step("rank_local", params)] * (chunks.local > 0)
    if places or chunks.segment:
        steps += chunks.walk("rank_states", params, final=bool(places))
    steps += chunks.walk("rank_slopes", params)
    if places and chunks.local:
        steps.append(chunks.step("rank_reads", params))
    for reader, writer in _PAIRS:
        made = {"dq": left[f"d{reader}"].pop(0), "dk": left[f"d{writer}"].pop(0)}
        made |= {"dg_channel": left["dg_channel"].pop(0)}
        made |= {"dv": left["dv"].pop(0)} if writer == "k" else {}
        if set(made.values()) != {"@null"} and chunks.local:
            steps.append(chunks.step("channel_gradients", params | made | _pair(p, chunks, params, reader, writer)))
    for name, place in places.items():
        if 0 not in p.views[name].shape:
            steps.append(sum_of(p, name, place, _PARTS[name]))
    return Geometry(tuple(steps), used, layout_of(p))


def _pair(p: Problem, chunks: Chunks, params: dict[str, Any], reader: str, writer: str) -> dict[str, Any]:
    """Operands of a pair in the places of q, k, v and dy; under b is written what a read. S and H count once."""
    stride, heads, row = list(params["stride"]), p.desc.num_heads, chunks.each_sequence * CHUNK
    reads = (p.desc.seq_len * row, row, chunks.tiles * CHUNK)
    made: dict[str, Any] = {"whole": 0}
    views: list[Any] = [p.q, p.k, p.v, None, p.dy]
    bits = 0
    if reader == "a":
        stride[0], stride[4], views[0], views[4], bits = three(p.a), reads, p.a, None, bits + 16
        made |= {"q": "a", "q_heads": heads, "y": params["du"], "scale": 1.0, "slopes": "@null", "whole": 16 + 64}
    if writer == "b":
        stride[1], stride[2], views[1], views[2], bits = three(p.b), reads, p.b, None, bits + 4
        made |= {"k": "b", "k_heads": heads, "v": params["u"], "v_heads": heads, "memory": "@null"}
        made["whole"] += 32
    return made | {"stride": stride, "wide": wide(*views) + bits}


def _forward(p: Problem) -> Geometry | str:
    desc = p.desc
    if desc.stepwise:
        return "in chunks, and stepwise asks for step by step"
    chunks = chunks_for(p)
    if isinstance(chunks, str):
        return chunks
    delta, channels = chunks.delta, chunks.channels
    if not (delta or channels) and desc.seq_len <= CHUNK:
        return "one chunk, of which one launch makes as much"
    params: dict[str, Any] = common(p) | {
        **dict.fromkeys((*_KEPT, "dfinal_state", "dinitial_state", *_GRADIENTS, "dbonus"), "@null"),
        **dict.fromkeys(_STRIDES, (0, 0, 0)), "whole": 0,
        "wide": wide(p.q, p.k, p.v, None, p.y, p.views.get("a"), p.views.get("b")),
    }  # fmt: skip
    if p.final_state is not None:
        params |= {"final_state": "final_state", "final_stride": three(p.final_state)}
    used = 0
    kept = _OF_RANK_ONE if chunks.rank else _OF_CHANNELS if channels else ()
    for name in ("memory", *(("u", "w") if delta else ()), *kept):
        params[name] = ("@workspace", used)
        used += aligned(chunks.sizes()[name])
    told, used = chunks.params(used)
    params |= told
    of = "channel_" * channels
    outputs = f"{of}outputs"
    if not desc.num_states:
        blocks = desc.num_heads * (desc.batch_size > 0)
        steps = [chunks.step(outputs, params, blocks=blocks)] * (blocks > 0)
        return Geometry(tuple(steps), used, layout_of(p))
    before = "rank_" if chunks.rank else of
    local = f"{before}local" if delta else "channel_scaled"
    steps = [chunks.step(local, params)] * (delta or channels)
    steps += [*chunks.walk(f"{before}states", params), chunks.step(outputs, params)]
    return Geometry(tuple(step for step in steps if step.grid[0]), used, layout_of(p))


def _kernels(names: tuple[str, ...], rules: dict[str, str] = _RULES) -> tuple[Kernel, ...]:
    made = []
    for name in names:
        for rule, of in {"": ""}.items() if name in _OF_ANY_RULE else rules.items():
            made += [
                Kernel(
                    f"{name}_{rule}{d}", f"linear_attention_{name}<{{T}}, {d}{of and f', {of}'}>", PARAMS,
                    threads=CREW, min_blocks=2 if name in _WALKS else 0,
                    source=f"recurrence/linear_attention_{name}.cu", kindless=True,
                )
                for d in CHUNK_DIMS
            ]  # fmt: skip
    return tuple(made)


def _walks(of: str, rules: dict[str, str]) -> tuple[Kernel, ...]:
    """One kernel along sequences in both directions: states, then gradients of states."""
    return tuple(
        Kernel(
            f"{of}_{name}_{rule}{d}", f"linear_attention_{of}_states<{{T}}, {d}{delta and f', {delta}'}, {back}>",
            PARAMS, threads=CREW, min_blocks=2, source=f"recurrence/linear_attention_{of}_states.cu", kindless=True,
        )
        for name, back in (("states", "false"), ("slopes", "true"))
        for rule, delta in rules.items()
        for d in CHUNK_DIMS
    )  # fmt: skip


_RANK_WALKS, _CHANNEL_WALKS = _walks("rank", {"": ""}), _walks("channel", _RULES)
BACKWARD_CHUNKS_ROW = Variant(
    "chunks", _backward, source="recurrence/linear_attention_gradients.cu", elements=HALVES,
    kernels=(
        *_kernels(("local", "states", "join", "slopes", "gradients")),
        *_kernels(("channel_local", "channel_scaled", "channel_gradients", "rank_local", "rank_reads")),
        *_CHANNEL_WALKS,
        *_RANK_WALKS,
        *SUMS,
    ),
    guarantee=Guarantee(Relative(4, mean=3), batch_invariant=True), may_spill=True,
)  # fmt: skip
FORWARD_CHUNKS_ROW = Variant(
    "passes",
    _forward,
    source="recurrence/linear_attention_outputs.cu",
    elements=HALVES,
    kernels=(
        *_kernels(("local", "states", "outputs", "join", "channel_local", "channel_scaled", "channel_outputs")),
        *_kernels(("rank_local", "channel_outputs"), {"rank_": "2"}),
        *_CHANNEL_WALKS[: len(_CHANNEL_WALKS) // 2],
        *_RANK_WALKS[: len(_RANK_WALKS) // 2],
    ),
    guarantee=Guarantee(Relative(3, mean=3), batch_invariant=True),
    may_spill=True,
)
