"""Functions that draw, in the forms that PyTorch has and the functions of this package have not."""

from __future__ import annotations

from typing import Any

from ..core.arrays import read
from .spelling import own, spelled


@own
def randint(*args: Any, **given: Any) -> Any:
    """Whole numbers of [low, high), low being 0 where it is not given (torch.randint)."""
    sized = len(args) > 1 and isinstance(args[1], (list, tuple))
    if sized or (len(args) == 1 and "high" not in given):
        args = (0, *args)
    elif not args:
        given.setdefault("low", 0)
    return spelled("randint")(*args, **given)


@own
def randint_like(input: Any, *args: Any, **given: Any) -> Any:
    """Whole numbers of [low, high) in the shape and dtype of the input (torch.randint_like)."""
    if not args:
        given.setdefault("low", 0)
    return spelled("randint_like")(input, *args, **given)


@own
def bernoulli(input: Any = None, p: Any = None, **more: Any) -> Any:
    """1 with a probability, else 0 (torch.bernoulli): input has the probabilities, or the shape where p is given."""
    if input is None:
        input, p = p, None
    if p is None:
        return spelled("bernoulli")(*(() if input is None else (input,)), **more)
    found = read(input, "input")
    return spelled("bernoulli")(p, shape=found.shape, element=found.element, like=input, **more)
