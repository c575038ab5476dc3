"""How a module comes by its piece and loses it again.

It is given a class of its own, made from its class, whose forward is the piece's: its name, parameters, buffers, hooks
and state_dict stay as they are, and `isinstance` holds, so that what wraps modules by their classes (FSDP, gradient
checkpointing, PEFT) sees what it saw before.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from .families import FAMILIES
from .piece import Forward, Piece

_PIECES = {piece.name: piece for family in FAMILIES.values() for piece in family.classes.values()}
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


def replaced(module: Any) -> bool:
    """Whether the module has a piece."""
    return "replaced_class" in type(module).__dict__


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
