"""Matrix products against cuBLAS through torch, interleaved in the same run.

    python benchmarks/gemm.py [--groups squares,llama8b] [--rounds 12] [--csv [FILE]]

bf16, random data, a [m, k] and weights as Linear has them, [n, k]. A line for what the plan takes, for every row of its
table alone, for rows that promise batch invariance, and for products with an epilogue: a bias with GELU, and SwiGLU's
two weights, beside torch's calls for the same. TFLOP/s count 2 · batch · m · n · k, twice that for SwiGLU; below 128
rows TB/s of the weights tell more. Every result is checked against torch's before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import checkout  # noqa: F401
import torch
import torch.nn.functional as F
from points import L2, compare
from timing import interleaved

import baracuda_py as bc
from baracuda_py.measure.tuner import only

KEY = ("group", "batch", "m", "n", "k", "variant")
LLAMA8B = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
LLAMA70B = {"qkv": (10240, 8192), "o": (8192, 8192), "gate_up": (57344, 8192), "down": (8192, 28672)}
BATCH_INVARIANT = bc.PlanPreference(batch_invariant=True)
Call = Callable[[], Any]


@dataclass(frozen=True)
class Point:
    """One problem."""

    group: str
    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def nbytes(self) -> int:
        return 2 * self.batch * (self.m * self.k + self.n * self.k + self.m * self.n)

    @property
    def lead(self) -> tuple[int, ...]:
        return (self.batch,) if self.batch > 1 else ()

    def operands(self) -> dict[str, torch.Tensor]:
        """Random operands, the weights of a second product among them."""
        shapes = {"a": (self.m, self.k), "w": (self.n, self.k), "up": (self.n, self.k), "y": (self.m, self.n)}
        made = {n: torch.randn(self.lead + s, device="cuda", dtype=torch.bfloat16) for n, s in shapes.items()}
        return made | {"bias": torch.randn(self.n, device="cuda", dtype=torch.bfloat16)}


def points(groups: list[str]) -> Iterator[Point]:
    """The problems of some groups, in order."""
    if "squares" in groups:
        yield from (Point("squares", n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384))
    for name, model in (("llama8b", LLAMA8B), ("llama70b", LLAMA70B)):
        if name in groups:
            yield from (Point(name, m, n, k) for m in (1, 4, 16, 64, 512, 4096, 8192) for n, k in model.values())
    if "odd" in groups:
        yield from (Point("odd", *shape) for shape in ((1000, 1000, 1000), (4095, 4097, 4093), (8192, 8200, 8184)))
    if "batched" in groups:
        yield from (Point("batched", m, n, k, 64) for m, n, k in ((1024, 1024, 128), (1024, 128, 1024), (64, 64, 4096)))


def check(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """Both are bf16 roundings of nearly the same numbers."""
    error = float((got.float() - want.float()).norm() / want.float().norm())
    if not error < 1e-2:
        raise SystemExit(f"{name} differs from torch's by {error:.3g}")


def bound(plan: Any, sets: list[dict[str, torch.Tensor]], want: torch.Tensor, name: str, **more: str) -> list[Call]:
    """The plan bound to every set; `more`: operands of the epilogue by the names that the sets have."""
    calls = []
    for s in sets:
        extra = {field: s[at].mT if field == "up" else s[at] for field, at in more.items()}
        args = bc.GemmArgs(a=s["a"], b=s["w"].mT, y=s["y"], **extra)
        size = plan.workspace_size(args)
        memory = torch.empty(size, device="cuda", dtype=torch.uint8) if size else None
        plan.run(args, memory)
        if not calls:
            check(name, s["y"], want)
        calls.append(plan.bind(args, memory))
    return calls


def candidates(point: Point, sets: list[dict[str, torch.Tensor]]) -> Iterator[tuple[str, dict[str, list[Call]], float]]:
    """What is timed together: a name, the calls, ours and torch's, and the flops of one."""
    fields = {"batch_shape": point.lead, "m": point.m, "n": point.n, "k": point.k, "element": "bfloat16"}
    first = sets[0]
    plain = {"torch": [lambda s=s: torch.matmul(s["a"], s["w"].mT) for s in sets]}
    plan = bc.GemmPlan.select(bc.GemmDescriptor(**fields))
    want = plain["torch"][0]()
    args = bc.GemmArgs(a=first["a"], b=first["w"].mT, y=first["y"])
    calls = {"plan": bound(plan, sets, want, "plan")} | plain
    for row in plan.rows:
        alone = only(plan, row)
        if alone.can_implement(args) and (row.name != "simt" or point.flops < 1e10):
            calls[row.name] = bound(alone, sets, want, row.name)
    invariant = bc.GemmPlan.select(bc.GemmDescriptor(**fields), BATCH_INVARIANT)
    calls["batch invariant"] = bound(invariant, sets, want, "batch invariant")
    yield "", calls, point.flops
    if point.batch > 1:
        return
    gelu = bc.GemmPlan.select(bc.GemmDescriptor(**fields, activation="gelu"))
    eager = [lambda s=s: F.gelu(F.linear(s["a"], s["w"], s["bias"])) for s in sets]
    yield "bias gelu", {"torch": eager, "plan": bound(gelu, sets, eager[0](), "gelu", bias="bias")}, point.flops
    silu = bc.GemmPlan.select(bc.GemmDescriptor(**fields, activation="silu"))
    eager = [lambda s=s: F.silu(F.linear(s["a"], s["w"])) * F.linear(s["a"], s["up"]) for s in sets]
    yield "swiglu", {"torch": eager, "plan": bound(silu, sets, eager[0](), "swiglu", up="up")}, 2 * point.flops


def rows(point: Point, rounds: int) -> Iterator[dict[str, Any]]:
    """The CSV rows of a point."""
    sets = [point.operands() for _ in range(max(1, min(8, -(-L2 // point.nbytes))))]
    for epilogue, calls, flops in candidates(point, sets):
        times = interleaved(calls, rounds)
        peer = times.pop("torch")
        for name, time in times.items():
            yield {
                "group": point.group, "batch": point.batch, "m": point.m, "n": point.n, "k": point.k,
                "variant": f"{epilogue} {name}".strip(), "us": f"{time.median:.1f}",
                "tflops": f"{flops / time.median * 1e-6:.0f}", "tb_s": f"{point.nbytes / time.median * 1e-6:.2f}",
                "torch_us": f"{peer.median:.1f}", "vs_torch": f"{peer.median / time.median:.3f}",
            }  # fmt: skip


def main() -> int:
    groups = "squares,llama8b,llama70b,odd,batched"
    return compare(str(__doc__), "gemm", groups, points, KEY, rows, ("variant",))


if __name__ == "__main__":
    raise SystemExit(main())
