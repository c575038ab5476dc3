"""What takes the place of a class's forward, and which layers and weights it may take apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..untyped import torch

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Piece:
    """A forward made from that of the class, under the name that reports show and that says all of it.

    make: our forward of the class's; it takes arguments by their places. refusal: why a module of that class keeps its
    own forward, or None where the piece serves it. leaves_logits: it is the forward of a model, whose logits it may
    leave out.
    """

    name: str
    make: Callable[[Forward], Forward]
    refusal: Callable[[Any], str | None] = lambda module: None
    leaves_logits: bool = False


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
