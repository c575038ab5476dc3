"""LSTM and GRU layers beside torch's (cuDNN): a forward pass, and one with its gradients.

python benchmarks/recurrent.py [--rounds 5]
"""

from __future__ import annotations

import argparse
from typing import Any

import checkout  # noqa: F401
import torch
from timing import interleaved

import baracuda_py.torch.nn as nn

SHAPES = ((512, 64, 1024), (128, 32, 256))  # steps, batch, units
ELEMENTS = (torch.float16, torch.float32)


def measure(
    name: str, shape: tuple[int, int, int], element: torch.dtype, rounds: int
) -> dict[str, tuple[float, float]]:
    """(our microseconds, torch's) of each pass."""
    steps, batch, units = shape
    theirs = getattr(torch.nn, name)(units, units, device="cuda", dtype=element)
    ours = getattr(nn, name)(units, units, device="cuda", dtype=element)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(steps, batch, units, device="cuda", dtype=element, requires_grad=True)
    slope = torch.randn(steps, batch, units, device="cuda", dtype=element)

    def forward(layer: Any) -> Any:
        return lambda: layer(x.detach())[0].detach()

    def both(layer: Any) -> Any:
        return lambda: torch.autograd.grad(layer(x)[0], (x, *layer.parameters()), slope)

    found = {}
    for passed, call in (("forward", forward), ("forward and gradients", both)):
        times = interleaved({"ours": [call(ours)], "torch": [call(theirs)]}, rounds)
        found[passed] = (times["ours"].median, times["torch"].median)
    return found


def main() -> None:
    """A line for each layer, shape, element and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for name in ("LSTM", "GRU"):
        for shape in SHAPES:
            for element in ELEMENTS:
                for passed, (mine, theirs) in measure(name, shape, element, rounds).items():
                    beside = f"{mine:.0f} µs, torch {theirs:.0f}: {theirs / mine:.2f}×"
                    print(f"{name} {list(shape)} {element} {passed}: {beside}")


if __name__ == "__main__":
    main()
