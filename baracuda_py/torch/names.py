"""The functions of the functional layer under their own names, for torch tensors."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import baracuda_py

from ..calls.interpreters import interpreting
from ..core.one_device import is_array
from ..interop.dynamo import opaque
from ..interop.torch_rules import settled_call
from .routing import RECORD
from .untyped import torch

_modes = torch._C._len_torch_dispatch_stack


def mirrored(name: str) -> Any:
    """A functional entry as a function of tensors; None where the name is no function of arrays."""
    function = getattr(baracuda_py, name)
    if isinstance(function, type) or not callable(function) or not hasattr(function, "plan"):
        return None
    return _wrapped(name, function)


def _wrapped(name: str, function: Any) -> Any:
    placed = "like" in inspect.signature(function).parameters

    def call(*args: Any, **given: Any) -> Any:
        if placed and not any(map(is_array, (*args, *given.values()))):
            given["like"] = torch.empty(())  # on torch's default device
        if _modes():  # which see ops, not what these do to memory
            args, given = settled_call(args, given)
            with interpreting(RECORD):
                return function(*args, **given)
        return function(*args, **given)

    functools.update_wrapper(call, function, updated=())
    call.__module__, call.__name__, call.__qualname__ = "baracuda_py.torch", name, name
    call.plan = function.plan  # type: ignore[attr-defined]
    opaque(call)
    return call
