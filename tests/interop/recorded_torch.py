"""torch tensors over host memory that say they are on cuda:0, for code that launches on the recorder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from baracuda_py.backends.cuda import direct, hotpath, intake, runner
from baracuda_py.calls import call
from baracuda_py.core.device import fake_device
from baracuda_py.core.plan import Plan
from baracuda_py.torch.prepared import Prepared

H = fake_device(9.0)
CURRENT = 0x70C4  # what torch's current stream is said to be


class Tensor(torch.Tensor):
    """A torch tensor that says it is on cuda:0; all else is torch's own: requires_grad, lazy bits, versions."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def get_device(self) -> int:
        return 0

    def swapaxes(self, axis0: int, axis1: int) -> Any:
        return on_gpu(super().swapaxes(axis0, axis1))


class Weight(Tensor):
    """The same of a parameter."""


Tensor.__module__ = Weight.__module__ = "torch"


def on_gpu(tensor: Any) -> Any:
    return tensor.as_subclass(Tensor)


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functional layer and its nodes of autograd take such tensors, and launch on whatever is installed."""
    twins = {Tensor: Weight, Weight: Tensor}
    select, maker, prepared = Plan.__dict__["select"].__func__, call.maker, Prepared.__call__

    def handed(self: Prepared, arrays: Any, numbers: Any) -> Any:
        # What autograd has saved comes back as a plain tensor.
        return prepared(self, [on_gpu(a) if isinstance(a, torch.Tensor) else a for a in arrays], numbers)

    def made(*given: Any) -> Any:
        make = maker(*given)
        return lambda: on_gpu(make())

    for module in (hotpath, runner):
        monkeypatch.setattr(module, "twin", lambda kind: twins.get(kind, kind))
    monkeypatch.setattr(intake, "raw_stream_getter", lambda: lambda ordinal: CURRENT)
    monkeypatch.setattr(direct.Direct, "serves", staticmethod(lambda plan, lead: True))
    monkeypatch.setattr(Prepared, "__call__", handed)
    monkeypatch.setattr(call, "maker", made)
    monkeypatch.setattr(Plan, "select", classmethod(lambda c, d, p=None, *, device=None: select(c, d, p, device=H)))
