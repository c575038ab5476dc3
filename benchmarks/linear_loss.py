"""Linear cross-entropy with its gradients, beside its three products alone and unfused in torch: time and memory.

    python benchmarks/linear_loss.py [--rounds 5] [--csv [FILE]]

The products are torch's (cuBLAS) on operands that have the logits' shape: x Wᵀ, dlogits W, dlogitsᵀ x. Memory is what a
call takes beside operands and results: of ours the workspace, of torch the allocator's peak.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import checkout  # noqa: F401
import torch
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

SHAPES = ((8192, 4096, 128256), (16384, 2048, 248320))  # rows, columns of x, classes
_HEAD = ("shape", "fused_us", "products_us", "of_products", "torch_us", "workspace_mb", "torch_mb")


def fused(x: Any, weight: Any, targets: Any) -> tuple[Any, int]:
    """A bound call, and the bytes of its workspace."""
    rows, hidden = x.shape
    desc = bc.LinearCrossEntropyDescriptor(rows=rows, hidden=hidden, num_classes=weight.shape[0], element="bfloat16")
    plan = bc.LinearCrossEntropyPlan.select(desc)
    loss = torch.empty((), device="cuda")
    args = bc.LinearCrossEntropyArgs(
        x=x, weight=weight, targets=targets, loss=loss, dx=torch.empty_like(x), dweight=torch.empty_like(weight)
    )
    nbytes = plan.workspace_size(args)
    return plan.bind(args, torch.empty(nbytes, dtype=torch.uint8, device="cuda")), nbytes


def products(x: Any, weight: Any) -> Any:
    """The three alone, with outputs given."""
    logits, to_x, to_weight = torch.mm(x, weight.T), torch.empty_like(x), torch.empty_like(weight)

    def call() -> None:
        torch.mm(x, weight.T, out=logits)
        torch.mm(logits, weight, out=to_x)
        torch.mm(logits.T, x, out=to_weight)

    return call


def unfused(x: Any, weight: Any, targets: Any) -> Any:
    """torch's loss and its gradients."""
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]

    def call() -> Any:
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(*leaves), targets)
        return torch.autograd.grad(loss, leaves)

    return call


def peak(call: Any) -> int:
    """Bytes that torch takes for a call beside its results."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - sum(t.nbytes for t in made)


def measure(rows: int, hidden: int, classes: int, rounds: int) -> dict[str, Any]:
    """A row of figures; ours and torch's products are timed in turn, the unfused loss after the logits are gone."""
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(classes, hidden, device="cuda", dtype=torch.bfloat16) * hidden**-0.5
    targets = torch.randint(classes, (rows,), device="cuda")
    launch, nbytes = fused(x, weight, targets)
    times = interleaved({"fused": [launch], "products": [products(x, weight)]}, rounds)
    torch.cuda.empty_cache()
    call = unfused(x, weight, targets)
    try:
        taken = f"{peak(call) / 1e6:.0f}"
        whole = f"{interleaved({'torch': [call]}, rounds)['torch'].median:.0f}"
    except torch.cuda.OutOfMemoryError:
        taken = whole = ""
    one, three = times["fused"].median, times["products"].median
    figures = (f"{one:.0f}", f"{three:.0f}", f"{three / one:.3f}", whole, f"{nbytes / 1e6:.0f}", taken)
    return dict(zip(_HEAD, (f"[{rows}, {hidden}] × {classes} bf16", *figures), strict=True))


def figures(rounds: int) -> Iterator[dict[str, Any]]:
    """A row a shape."""
    for shape in SHAPES:
        yield measure(*shape, rounds)
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    add_options(parser)
    options = parser.parse_args()
    done = []
    for row in figures(options.rounds):
        done.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    Results(options, "linear_loss", ("shape",)).write(done)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
