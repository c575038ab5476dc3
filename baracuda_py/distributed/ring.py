"""What ring_attention and its gradient share: the problem, views of shards, a step of the ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.arrays import read
from ..core.checked import truth
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.views import cut
from ..interop.packages import package_name
from ..ops.attention.layouts import shape_of
from ..ops.elementwise.cast import cast
from .agreement import agree, checked_communicator
from .collectives import send_receive
from .sequence_blocks import Blocks, Sight, blocks_of, sight_of

Options = dict[str, Any]


class Ring(NamedTuple):
    """What every step of a call is told: the cut of the sequence, the mask, and attention's other facts."""

    blocks: Blocks
    sight: Sight
    facts: Options


def ring_of(
    q: Any, k: Any, v: Any, sinks: Any, comm: Any, is_causal: bool, window_left: Any, window_right: Any, softcap: float,
    scale: Any, layout: str, blocks: Any,
) -> Ring:  # fmt: skip
    """The problem, its operands checked."""
    checked_communicator(comm)
    if package_name(type(q)) == "jax":
        raise UnsupportedError("ring_attention writes into arrays that it makes, and JAX's are immutable")
    shapes = {name: shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
    for name in ("k", "v"):
        if shapes[name][2] != shapes["q"][2]:
            raise InvalidProblemError(
                f"{name} must have q's {shapes['q'][2]} positions, of which every rank has as many, got "
                f"{shapes[name][2]}"
            )
    if sinks is not None and (found := read(sinks, "sinks").shape) != shapes["q"][1:2]:
        raise InvalidProblemError(f"sinks must have shape {shapes['q'][1:2]}, a number a head, got {found}")
    facts = {"softcap": softcap, "scale": scale}
    cuts = blocks_of(shapes["q"][2], comm.size, layout, blocks)
    sight = sight_of(truth("is_causal", is_causal), window_left, window_right)
    element = read(q, "q").element
    said = {**shapes, "element": element, **facts, "left": sight.left, "right": sight.right, "cuts": cuts}
    agree(comm, "ring_attention", **said, sinks=sinks is not None)
    return Ring(cuts, sight, facts)


def rows_of(x: Any, rows: slice, name: str) -> Any:
    """Positions of [batch, heads, positions, …]."""
    return cut(x, (slice(None), slice(None), rows), name)


def stepped(x: Any, comm: Any, options: Options) -> Any:
    """x of the rank before this one, which hands its own on."""
    return send_receive(x, comm, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, stream=options["stream"])


def wide(x: Any, options: Options) -> Any:
    """x in the accumulator's element."""
    kind = read(x, "y").element
    return x if kind is kind.acc else cast(x, kind.acc, **options)


def checked_outs(outs: Sequence[Any], wanted: Sequence[tuple[str, tuple[int, ...], ElementKind]]) -> None:
    """Refuse what `out=` gives and results do not fit, before anything is sent."""
    for out, (name, shape, element) in zip(outs, wanted, strict=True):
        found = None if out is None else read(out, f"out of {name}")
        if found is not None and (found.shape != shape or found.element is not element):
            raise InvalidProblemError(
                f"out of {name} must be {element} of shape {shape}, got {found.element} of shape {found.shape}"
            )
