"""The benchmarked problems: one function per op builds its arrays (torch, on the GPU), its plan, and its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as F

import baracuda_py as bc

torch._functorch.config.donated_buffer = False  # compiled backwards are run again and again on one graph
BF16 = torch.bfloat16
_ROTATE = 512 << 20  # bytes that a case's input sets cover together: several times any L2

Arrays = dict[str, Any]
Peer = Callable[[Arrays], Any]


@dataclass
class Case:
    """A problem ready to time: `candidates` are calls on rotated inputs; ours is "baracuda"."""

    op: str
    shape: str
    element: str
    sku: str
    bytes: int
    flops: int
    target: str
    candidates: Mapping[str, Sequence[Callable[[], Any]]]
    outputs: tuple[Any, ...]
    peer: Callable[[], Any] | None

    def verify(self) -> None:
        """Our outputs against the first peer's, by relative norm; NaN never passes."""
        self.candidates["baracuda"][0]()
        if self.peer is None:
            return
        wanted = self.peer()
        for ours, theirs in zip(self.outputs, wanted if isinstance(wanted, (tuple, list)) else (wanted,), strict=False):
            if theirs is None:
                continue
            a, b = ours.double(), theirs.double()
            error = float((a - b).norm() / b.norm().clamp_min(1e-30))
            if not error < 2e-2:
                raise SystemExit(f"{self.op} {self.shape}: differs from its peer by {error:.3g} (relative norm)")


_CASES: list[tuple[str, Callable[..., Case]]] = []


def case(op: str) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    """Register a builder taking `compiled` (whether to add torch.compile peers)."""

    def add(build: Callable[..., Case]) -> Callable[..., Case]:
        _CASES.append((op, build))
        return build

    return add


def cases(names: Sequence[str], compiled: bool) -> Iterator[Callable[[], Case]]:
    """Builders whose op contains one of `names` (all when empty)."""
    for op, build in _CASES:
        if not names or any(name in op for name in names):
            yield partial(build, compiled)


def make(
    plan: type[bc.Plan],
    desc: Any,
    arrays: Callable[[], Arrays],
    outputs: Sequence[str],
    shape: str,
    peers: Mapping[str, Peer],
    *,
    compiled: Mapping[str, Peer] | None = None,
    nbytes: int | None = None,
    flops: int = 0,
    target: str = "0.92",
) -> Case:
    """Build enough input sets, bind the plan to each, and close the peers over them."""
    first = arrays()
    size = sum(t.numel() * t.element_size() for t in _tensors(first))
    sets = [first] + [arrays() for _ in range(min(7, max(0, -(-_ROTATE // max(size, 1)) - 1)))]
    chosen = plan.select(desc, device=0)
    args = [plan.args(**s) for s in sets]
    sku = str(chosen.can_implement(args[0]).sku)
    candidates: dict[str, list[Callable[[], Any]]] = {"baracuda": [chosen.bind(a) for a in args]}
    for name, peer in peers.items():
        candidates[name] = [partial(peer, s) for s in sets]
    for name, peer in (compiled or {}).items():
        built = torch.compile(peer)
        candidates[name] = [partial(built, s) for s in sets]
    lead = next(iter(peers.values()), None)
    moved = nbytes if nbytes is not None else 0 if flops else size
    return Case(
        chosen.op,
        shape,
        str(desc.element),
        sku,
        moved,
        flops,
        target,
        candidates,
        tuple(first[o] for o in outputs),
        partial(lead, first) if lead else None,
    )


def _tensors(arrays: Arrays) -> Iterator[Any]:
    for value in arrays.values():
        if isinstance(value, list):
            yield from value
        elif isinstance(value, torch.Tensor):
            yield value


def randn(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=dtype)


def optional(compiled: bool, peer: Peer) -> dict[str, Peer]:
    return {"torch.compile": peer} if compiled else {}


# ---- elementwise -----------------------------------------------------------------------------------------------------

_N = 1 << 27


def _unary(kind: str, peer: Callable[[Any], Any], compiled: bool) -> Case:
    desc = bc.UnaryDescriptor(shape=(_N,), kind=kind, element="bfloat16")
    return make(
        bc.UnaryPlan,
        desc,
        lambda: {"x": randn(_N), "y": empty(_N)},
        ["y"],
        f"{kind} 134M bf16",
        {"torch": lambda s: peer(s["x"])},
        compiled=optional(compiled, lambda s: peer(s["x"])),
    )


for _kind, _peer in (("silu", F.silu), ("gelu", F.gelu), ("exp", torch.exp), ("tanh", torch.tanh)):
    case(f"elementwise.unary {_kind}")(partial(_unary, _kind, _peer))


@case("elementwise.unary_backward")
def unary_backward(compiled: bool) -> Case:
    desc = bc.UnaryBackwardDescriptor(shape=(_N,), kind="silu", element="bfloat16")
    return make(
        bc.UnaryBackwardPlan,
        desc,
        lambda: {"dy": randn(_N), "x": randn(_N), "dx": empty(_N)},
        ["dx"],
        "silu 134M bf16",
        {"torch": lambda s: torch.ops.aten.silu_backward(s["dy"], s["x"])},
        compiled=optional(compiled, lambda s: torch.ops.aten.silu_backward(s["dy"], s["x"])),
    )


@case("elementwise.binary")
def binary(compiled: bool) -> Case:
    desc = bc.BinaryDescriptor(shape=(_N,), kind="add", element="bfloat16")
    return make(
        bc.BinaryPlan,
        desc,
        lambda: {"a": randn(_N), "b": randn(_N), "y": empty(_N)},
        ["y"],
        "add 134M bf16",
        {"torch": lambda s: torch.add(s["a"], s["b"])},
    )


@case("elementwise.cast")
def cast(compiled: bool) -> Case:
    desc = bc.CastDescriptor(shape=(_N,), element="bfloat16", to_element="float32")
    return make(
        bc.CastPlan,
        desc,
        lambda: {"x": randn(_N), "y": empty(_N, dtype=torch.float32)},
        ["y"],
        "bf16 to f32 134M",
        {"torch": lambda s: s["x"].float()},
    )


@case("elementwise.fill")
def fill(compiled: bool) -> Case:
    desc = bc.FillDescriptor(shape=(2 * _N,), element="bfloat16")
    return make(
        bc.FillPlan,
        desc,
        lambda: {"x": empty(2 * _N), "value": 1.5},
        ["x"],
        "268M bf16",
        {"torch": lambda s: torch.full_like(s["x"], 1.5)},
    )


@case("elementwise.affine")
def affine(compiled: bool) -> Case:
    desc = bc.AffineDescriptor(shape=(_N,), element="bfloat16")
    return make(
        bc.AffinePlan,
        desc,
        lambda: {"x": randn(_N), "y": empty(_N), "alpha": 2.0, "beta": 0.5},
        ["y"],
        "134M bf16",
        {"torch": lambda s: s["x"] * 2.0 + 0.5},
        compiled=optional(compiled, lambda s: s["x"] * 2.0 + 0.5),
    )


def _halves(packed: Any) -> tuple[Any, Any]:
    return packed.chunk(2, -1)


@case("gated_activation")
def gated(compiled: bool) -> Case:
    rows, width = 32768, 4096
    desc = bc.GatedActivationDescriptor(shape=(rows, width), kind="swiglu", element="bfloat16")

    def arrays() -> Arrays:
        gate, up = _halves(randn(rows, 2 * width))
        return {"gate": gate, "up": up, "y": empty(rows, width)}

    def peer(s: Arrays) -> Any:
        return F.silu(s["gate"]) * s["up"]

    return make(
        bc.GatedActivationPlan,
        desc,
        arrays,
        ["y"],
        "swiglu [32768, 2x4096] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


@case("gated_activation_backward")
def gated_backward(compiled: bool) -> Case:
    rows, width = 32768, 4096
    desc = bc.GatedActivationBackwardDescriptor(shape=(rows, width), kind="swiglu", element="bfloat16")

    def arrays() -> Arrays:
        gate, up = _halves(randn(rows, 2 * width))
        dgate, dup = _halves(empty(rows, 2 * width))
        return {"dy": randn(rows, width), "gate": gate, "up": up, "dgate": dgate, "dup": dup}

    def peer(s: Arrays) -> Any:
        gate, up, dy = s["gate"].float(), s["up"].float(), s["dy"].float()
        sig = torch.sigmoid(gate)
        return (dy * up * sig * (1 + gate * (1 - sig))).to(BF16), (dy * gate * sig).to(BF16)

    return make(
        bc.GatedActivationBackwardPlan,
        desc,
        arrays,
        ["dgate", "dup"],
        "swiglu [32768, 2x4096] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


# ---- norms -----------------------------------------------------------------------------------------------------------

_NORM_SHAPES = ((32768, 4096), (131072, 512), (8192, 16384))


def _norm_backward_peer(function: Callable[..., Any], names: Sequence[str]) -> Peer:
    """torch's backward alone: the graph is built once per input set and kept."""
    graphs: dict[int, tuple[Any, list[Any]]] = {}

    def peer(s: Arrays) -> Any:
        if id(s["x"]) not in graphs:
            leaves = [s[n].detach().clone().requires_grad_() for n in names]
            graphs[id(s["x"])] = (function(*leaves), leaves)
        y, leaves = graphs[id(s["x"])]
        return torch.autograd.grad(y, leaves, s["dy"], retain_graph=True)

    return peer


def _rms(rows: int, cols: int, compiled: bool) -> Case:
    desc = bc.RMSNormDescriptor(batch_shape=rows, normalized_shape=cols, element="bfloat16")

    def peer(s: Arrays) -> Any:
        return F.rms_norm(s["x"], (cols,), s["weight"], 1e-6)

    return make(
        bc.RMSNormPlan,
        desc,
        lambda: {"x": randn(rows, cols), "weight": randn(cols), "y": empty(rows, cols)},
        ["y"],
        f"[{rows}, {cols}] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


def _rms_backward(rows: int, cols: int, compiled: bool) -> Case:
    desc = bc.RMSNormBackwardDescriptor(batch_shape=rows, normalized_shape=cols, element="bfloat16")

    def arrays() -> Arrays:
        x = randn(rows, cols)
        rstd = torch.rsqrt(x.float().square().mean(-1) + 1e-6)
        return {
            "dy": randn(rows, cols),
            "x": x,
            "rstd": rstd,
            "weight": randn(cols),
            "dx": empty(rows, cols),
            "dweight": empty(cols),
        }

    def forward(x: Any, weight: Any) -> Any:
        return F.rms_norm(x, (cols,), weight, 1e-6)

    peers = {"torch": _norm_backward_peer(forward, ("x", "weight"))}
    if compiled:
        peers["torch.compile"] = _norm_backward_peer(torch.compile(forward), ("x", "weight"))
    return make(bc.RMSNormBackwardPlan, desc, arrays, ["dx", "dweight"], f"[{rows}, {cols}] bf16", peers)


def _layer(rows: int, cols: int, compiled: bool) -> Case:
    desc = bc.LayerNormDescriptor(batch_shape=rows, normalized_shape=cols, eps=1e-5, element="bfloat16")

    def peer(s: Arrays) -> Any:
        return F.layer_norm(s["x"], (cols,), s["weight"], s["bias"], 1e-5)

    return make(
        bc.LayerNormPlan,
        desc,
        lambda: {"x": randn(rows, cols), "weight": randn(cols), "bias": randn(cols), "y": empty(rows, cols)},
        ["y"],
        f"[{rows}, {cols}] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )


def _layer_backward(rows: int, cols: int, compiled: bool) -> Case:
    desc = bc.LayerNormBackwardDescriptor(batch_shape=rows, normalized_shape=cols, element="bfloat16")

    def arrays() -> Arrays:
        x = randn(rows, cols)
        mean, rstd = x.float().mean(-1), torch.rsqrt(x.float().var(-1, correction=0) + 1e-5)
        return {
            "dy": randn(rows, cols),
            "x": x,
            "mean": mean,
            "rstd": rstd,
            "weight": randn(cols),
            "dx": empty(rows, cols),
            "dweight": empty(cols),
            "dbias": empty(cols),
        }

    def forward(x: Any, weight: Any) -> Any:
        return F.layer_norm(x, (cols,), weight, torch.zeros_like(weight), 1e-5)

    peers = {"torch": _norm_backward_peer(forward, ("x", "weight"))}
    if compiled:
        peers["torch.compile"] = _norm_backward_peer(torch.compile(forward), ("x", "weight"))
    return make(bc.LayerNormBackwardPlan, desc, arrays, ["dx", "dweight"], f"[{rows}, {cols}] bf16", peers)


for _rows, _cols in _NORM_SHAPES:
    case("norm.rms_norm")(partial(_rms, _rows, _cols))
    case("norm.rms_norm_backward")(partial(_rms_backward, _rows, _cols))
    case("norm.layer_norm")(partial(_layer, _rows, _cols))
    case("norm.layer_norm_backward")(partial(_layer_backward, _rows, _cols))


@case("norm.rms_norm residual")
def rms_residual(compiled: bool) -> Case:
    rows, cols = 32768, 4096
    desc = bc.RMSNormDescriptor(batch_shape=rows, normalized_shape=cols, element="bfloat16")

    def arrays() -> Arrays:
        return {
            "x": randn(rows, cols),
            "residual": randn(rows, cols),
            "weight": randn(cols),
            "y": empty(rows, cols),
            "h": empty(rows, cols),
        }

    def peer(s: Arrays) -> Any:
        h = s["x"] + s["residual"]
        return F.rms_norm(h, (cols,), s["weight"], 1e-6), h

    return make(
        bc.RMSNormPlan,
        desc,
        arrays,
        ["y", "h"],
        "add + norm [32768, 4096] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
    )
