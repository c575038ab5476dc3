"""Whole layers of recurrences, forward and with their gradients, beside the same layers of torch and of packages.

    python benchmarks/recurrent_layers.py [--rounds 5] [--only lstm_1024;mamba2] [--csv [FILE]]

LSTM and GRU stand beside torch.nn's (cuDNN) with the same weights, in one piece as cuDNN wants them, Mamba and Mamba-2
beside mamba-ssm's and gated DeltaNet beside flash-linear-attention's where those are installed, with their weights,
too. `step` is one token of 64 sequences over the states; it has no peer here. What fails is said, and the others are
measured all the same. floor_us is what the pass takes at least: its products at the rate of a product of 8192³, and the
bytes that its other ops read and write, each operand once, at the bandwidth of a copy, both read in the same run.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import checkout  # noqa: F401
import torch
from peers import flatten
from record import Results, add_options
from timing import copy_bandwidth, interleaved, matmul_rate

from baracuda_py.torch import nn

Call = Callable[[], Any]


@dataclass(frozen=True)
class Layer:
    """A layer of ours, where its peer is, what both are called with, and what a token moves."""

    shape: str
    input: tuple[int, ...]
    make: Callable[[], Any]
    peer: tuple[str, str] | None  # module and class
    given: dict[str, Any] = field(default_factory=dict)
    moved: tuple[int, int] = (0, 0)  # elements that a token's ops but products read and write, forward and backward


@dataclass(frozen=True)
class Ceilings:
    """Bytes and products a second."""

    bandwidth: float
    flops: float

    def floor(self, layer: Layer, ours: Any, itemsize: int, *, backward: bool) -> float:
        """The µs that a pass takes at least."""
        tokens = math.prod(layer.input[:-1])
        weights = sum(one.numel() for one in ours.parameters() if one.dim() == 2 and "A_log" not in _name(ours, one))
        products = 2 * tokens * weights * (3 if backward else 1)
        moved = tokens * itemsize * (sum(layer.moved) if backward else layer.moved[0])
        return 1e6 * (products / self.flops + moved / self.bandwidth)


def _name(module: Any, parameter: Any) -> str:
    return next(name for name, one in module.named_parameters() if one is parameter)


def _networks(steps: int, batch: int, size: int) -> dict[str, Layer]:
    shape = f"[{steps}, {batch}, {size}]"
    return {
        f"{name.lower()}_{size}": Layer(
            shape,
            (steps, batch, size),
            partial(getattr(nn, name), size, size),
            ("torch.nn", name),
            moved=((2 * gates + 2) * size, (3 * gates + 3) * size),  # the input's part of gates, written and read; h, c
        )
        for name, gates in (("LSTM", 4), ("GRU", 3))
    }


def layers(tokens: int = 4096, batch: int = 4, width: int = 2048) -> dict[str, Layer]:
    """The layers by name, at the sizes of models."""
    one, shape = (batch, tokens, width), f"[{batch}, {tokens}, {width}]"
    heads = max(1, width // 256)
    mamba2 = {"d_model": width, "d_state": min(128, width), "headdim": min(64, width), "layer_idx": 0}
    gated = {"hidden_size": width, "head_dim": width // heads * 3 // 4, "num_heads": heads, "layer_idx": 0}
    inner, keys = 2 * width, heads * (width // heads * 3 // 4)
    mixed = inner + 2 * mamba2["d_state"]
    # Mamba: convolution 2 and scan 4 of inner; 3 and 7 back. Mamba-2: convolution, scan, norm with gate, and back.
    # Gated DeltaNet the same, with values of twice the keys' size.
    moves = {
        "mamba": (6 * inner, 10 * inner), "mamba2": (3 * mixed + 4 * inner, 5 * mixed + 7 * inner),
        "gated_delta_net": (3 * 4 * keys + 4 * 2 * keys, 5 * 4 * keys + 7 * 2 * keys),
    }  # fmt: skip
    return {
        **_networks(min(512, tokens), 16 * batch, width // 2),
        **_networks(min(512, tokens), 16 * batch, width // 4),
        **_networks(min(128, tokens), 8 * batch, width // 8),
        "mamba": Layer(shape, one, lambda: nn.Mamba(width, layer_idx=0), ("mamba_ssm", "Mamba"),
                       {"d_model": width, "layer_idx": 0}, moves["mamba"]),
        "mamba2": Layer(shape, one, lambda: nn.Mamba2(**mamba2), ("mamba_ssm", "Mamba2"), mamba2, moves["mamba2"]),
        "gated_delta_net": Layer(shape, one, lambda: nn.GatedDeltaNet(**gated), ("fla.layers", "GatedDeltaNet"), gated,
                                 moves["gated_delta_net"]),
    }  # fmt: skip


def peer_of(layer: Layer, ours: Any, device: str, dtype: Any) -> Any:
    """The other package's layer with our weights, or None where it is not installed."""
    if layer.peer is None:
        return None
    module, name = layer.peer
    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError:
        return None
    sizes = (layer.input[-1],) * 2 if module == "torch.nn" else ()
    made = kind(*sizes, **({} if sizes else layer.given)).to(device, dtype)
    made.load_state_dict(ours.state_dict())
    if module == "torch.nn":
        flatten(made)
    return made


def forward(one: Any, x: Any) -> Call:
    """A call without gradients."""

    def call() -> Any:
        with torch.no_grad():
            made = one(x)
        return made[0] if isinstance(made, tuple) else made

    return call


def trained(one: Any, x: Any) -> Call:
    """A call with the gradients of the input and of every weight."""
    leaf = x.detach().clone().requires_grad_()
    parameters = [leaf, *one.parameters()]

    def call() -> Any:
        made = one(leaf)
        y = made[0] if isinstance(made, tuple) else made
        return torch.autograd.grad(y, parameters, torch.ones_like(y))

    return call


def step(one: Any, x: Any) -> Call | None:
    """One token of each of 64 sequences over the states, or None where a layer has no step."""
    token = x.flatten(0, -2)[:64, None].contiguous()
    if hasattr(one, "step"):
        states = one.allocate_inference_cache(len(token), 1)
        return lambda: one.step(token, *states)[0]
    if not hasattr(one, "mixed"):
        return None
    cache = nn.RecurrentCache()

    def call() -> Any:
        with torch.no_grad():
            return one(token, past_key_values=cache, use_cache=True)[0]

    return call


def measure(
    name: str, layer: Layer, rounds: int, ceilings: Ceilings, device: str = "cuda", dtype: Any = torch.bfloat16
) -> Iterator[Any]:
    """Rows of one layer: a pass, its µs, and its peer's."""
    torch.manual_seed(0)
    ours = layer.make().to(device, dtype)
    x = torch.randn(*layer.input, device=device, dtype=dtype)
    peer = peer_of(layer, ours, device, dtype)
    for what, make in (("forward", forward), ("forward, backward", trained)):
        calls = {"ours": [make(ours, x)]} | ({} if peer is None else {"peer": [make(peer, x)]})
        times = {who: timing.median for who, timing in interleaved(calls, rounds).items()}
        yield _row(name, layer, what, times, ceilings.floor(layer, ours, dtype.itemsize, backward=make is trained))
    call = step(ours.eval(), x)
    if call is not None:
        yield _row(name, layer, "step of 64", {"ours": interleaved({"ours": [call]}, rounds)["ours"].median})


def _row(name: str, layer: Layer, what: str, times: dict[str, float], floor: float | None = None) -> dict[str, Any]:
    row = {"layer": name, "shape": f"{layer.shape} bf16", "pass": what, "us": f"{times['ours']:.0f}"}
    row["floor_us"] = "" if floor is None else f"{floor:.0f}"
    if "peer" not in times or layer.peer is None:
        return row | dict.fromkeys(("peer", "peer_us", "vs_peer"), "")
    other = times["peer"]
    return row | {"peer": layer.peer[0], "peer_us": f"{other:.0f}", "vs_peer": f"{other / times['ours']:.2f}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=";".join(layers()), help="names of layers, by semicolons")
    add_options(parser)
    options = parser.parse_args()
    done: list[dict[str, Any]] = []
    failed = 0
    ceilings = Ceilings(copy_bandwidth(), matmul_rate())
    for name, layer in layers().items():
        if name not in options.only.split(";"):
            continue
        try:
            for row in measure(name, layer, options.rounds, ceilings):
                done.append(row)
                print("  ".join(f"{word} {value}" for word, value in row.items()), flush=True)
            torch.cuda.empty_cache()
        except Exception as error:
            failed += 1
            print(f"layer {name}  failed: {type(error).__name__}: {' '.join(str(error).splitlines()[:1])}", flush=True)
    Results(options, "recurrent_layers", ("layer", "shape", "pass")).write(done)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
