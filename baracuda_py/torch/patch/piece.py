"""What takes the place of a class's forward, and how a module comes by it and loses it again.

A module is given a class of its own, made from its class, whose forward is the piece's: its name, parameters, buffers,
hooks and state_dict stay as they are, and `isinstance` holds, so that what wraps modules by their classes (FSDP,
gradient checkpointing, PEFT) sees what it saw before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..untyped import torch

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Piece:
    """A forward made from that of the class, under the name that reports show and that says all of it.

    make: our forward of the class's; it takes arguments by their places. refusal: why a module of that class keeps its
    own forward, or None where the piece serves it.
    """

    name: str
    make: Callable[[Forward], Forward]
    refusal: Callable[[Any], str | None] = lambda module: None

    def __post_init__(self) -> None:
        _PIECES[self.name] = self


_PIECES: dict[str, Piece] = {}  # by name, for what is read from a pickle
_MADE: dict[tuple[type, str], type] = {}


def given(base: type, piece: Piece) -> type:
    """The class of `base` with the piece's forward."""
    if (base, piece.name) not in _MADE:
        body = {
            "forward": _as(base.forward, piece),  # type: ignore[attr-defined]
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__reduce_ex__": _reduced,
            "replaced_class": base,
            "piece": piece,
        }
        _MADE[base, piece.name] = type(base.__name__, (base,), body)
    return _MADE[base, piece.name]


def _as(original: Forward, piece: Piece) -> Forward:
    """The piece's forward under the original's name and signature, which trainers read and callers name arguments by.

    A module that the piece has come to refuse, because it was made or changed later, has the original.
    """
    forward = piece.make(original)
    _, *names = inspect.signature(original).parameters

    @functools.wraps(original)
    def named(self: Any, *given: Any, **more: Any) -> Any:
        if piece.refusal(self) is not None:
            return original(self, *given, **more)
        for name in names[len(given) :]:
            if name not in more:
                break
            given = (*given, more.pop(name))
        return forward(self, *given, **more)

    return named


def _reduced(self: Any, protocol: Any) -> Any:
    """A copy, or what is read from a pickle, has the piece, too."""
    return _blank, (type(self).replaced_class, type(self).piece.name), self.__dict__


def _blank(base: type, name: str) -> Any:
    """A module of the class with the piece of that name, without its attributes."""
    made: Any = given(base, _PIECES[name])
    return made.__new__(made)


def replaced(module: Any) -> bool:
    """Whether the module has a piece."""
    return "replaced_class" in type(module).__dict__


def plain(module: Any, kind: Any = torch.nn.Linear) -> bool:
    """Whether calling a linear layer is the product by its weight and nothing more.

    One that an adapter, a quantiser, a hook or a sharded weight stands behind is called as it is.
    """
    return bool(
        type(module) is kind
        and not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
        and not module._backward_pre_hooks
        and "forward" not in module.__dict__
        and ordinary(module.weight)
    )


def ordinary(weight: Any) -> bool:
    """Whether a weight is a whole tensor of one device: no shard, and none of another package's kinds."""
    return weight is None or type(weight) in (torch.nn.Parameter, torch.Tensor)
