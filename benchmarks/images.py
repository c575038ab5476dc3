"""grid_sample and its gradients beside torch's, channels first: times, and how often ours is as fast.

    python benchmarks/images.py [--rounds 5]

It has no page of its own: a place becomes tokens, which a sum by segments reads; torch's gradient for x is by atomics.
"""

from __future__ import annotations

import argparse
from typing import Any

import checkout  # noqa: F401
import torch
import torch.nn.functional as F
from timing import interleaved

import baracuda_py.torch as bt

SHAPE, POINTS = (8, 64, 128, 128), (128, 128)
MODES, ELEMENTS = ("bilinear", "nearest", "bicubic"), (torch.float32, torch.bfloat16)


def calls(mode: str, element: torch.dtype) -> dict[str, tuple[Any, Any]]:
    """(ours, torch's) of a mode, forward and backward; graphs are built here."""
    leaf = torch.randn(SHAPE, device="cuda").to(element).requires_grad_()
    grid = (2 * torch.rand(SHAPE[0], *POINTS, 2, device="cuda") - 1).to(element)
    if mode != "nearest":  # of places there is none
        grid.requires_grad_()
    facts: dict[str, Any] = {"mode": mode, "padding_mode": "zeros", "align_corners": False}
    x, at = leaf.detach(), grid.detach()
    slope = torch.randn(*SHAPE[:2], *POINTS, device="cuda").to(element)

    def backward(function: Any) -> Any:
        y = function(leaf, grid, **facts)
        leaves = [one for one in (leaf, grid) if one.requires_grad]
        return lambda: torch.autograd.grad(y, leaves, slope, retain_graph=True)

    return {
        "forward": (lambda: bt.grid_sample(x, at, **facts), lambda: F.grid_sample(x, at, **facts)),
        "backward": (backward(bt.grid_sample), backward(F.grid_sample)),
    }


def main() -> None:
    """A line for each element, mode and direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for element in ELEMENTS:
        for mode in MODES:
            for direction, (mine, theirs) in calls(mode, element).items():
                times = interleaved({"ours": [mine], "torch": [theirs]}, rounds)
                ours, other = times["ours"].median, times["torch"].median
                print(f"{mode:8} {direction:8} {element}: {ours:.1f} µs, torch {other:.1f}, {other / ours:.2f}×")


if __name__ == "__main__":
    main()
