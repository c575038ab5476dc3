"""CSR @ dense and SDDMM beside torch's (cuSPARSE), over widths of the dense side: times, and bytes that must move.

    python benchmarks/sparse_products.py [--rounds 5]

The matrix is that of a graph: 131072 nodes, a million entries at random columns, rows of Poisson lengths. What torch
has not for an element is left empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401
import torch
from timing import interleaved

from baracuda_py import sparse

NODES, ENTRIES = 131072, 1 << 20
WIDTHS, ELEMENTS = (32, 64, 128, 256), (torch.bfloat16, torch.float32)


def graph(element: torch.dtype) -> Any:
    """The matrix as a torch.sparse_csr tensor, int32 indices."""
    rows = torch.randint(0, NODES, (ENTRIES,), device="cuda").sort().values
    offsets = torch.searchsorted(rows, torch.arange(NODES + 1, device="cuda")).int()
    columns = torch.randint(0, NODES, (ENTRIES,), device="cuda", dtype=torch.int32)
    values = torch.randn(ENTRIES, device="cuda").to(element)
    return torch.sparse_csr_tensor(offsets, columns, values, (NODES, NODES), check_invariants=False)


def runs(call: Callable[[], Any]) -> bool:
    """Whether torch has it."""
    try:
        call()
    except RuntimeError:
        return False
    return True


def measure(element: torch.dtype, width: int, rounds: int) -> list[tuple[str, float, float | None]]:
    """(name, our microseconds, torch's) of both products."""
    a = graph(element)
    ours, b = sparse.CSR.from_torch(a), torch.randn(NODES, width, device="cuda").to(element)
    left, y, dots = torch.randn_like(b), torch.empty_like(b), torch.empty_like(ours.values)
    pairs = {
        "spmm": (lambda: sparse.spmm(ours, b, out=y), lambda: torch.sparse.mm(a, b)),
        "sampled_addmm": (
            lambda: sparse.sampled_addmm(ours, left, b.T, out=dots),
            lambda: torch.sparse.sampled_addmm(a, left, b.T),
        ),
    }
    found = []
    for name, (mine, theirs) in pairs.items():
        calls: dict[str, Any] = {"ours": [mine]} | ({"torch": [theirs]} if runs(theirs) else {})
        times = interleaved(calls, rounds)
        found.append((name, times["ours"].median, times["torch"].median if "torch" in times else None))
    return found


def main() -> None:
    """A line for each element, width and product."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for element in ELEMENTS:
        for width in WIDTHS:
            for name, mine, theirs in measure(element, width, rounds):
                rows = 1e-6 * ENTRIES * width * element.itemsize
                beside = "" if theirs is None else f", torch {theirs:.1f} µs: {theirs / mine:.2f}×"
                print(f"{name:13} {element} width {width:3}: {mine:.1f} µs, {rows / mine:.2f} TB/s of rows{beside}")


if __name__ == "__main__":
    main()
