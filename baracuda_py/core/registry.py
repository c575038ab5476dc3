"""Every plan, by name. Pages register as they are imported; `plans()` imports them all."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from .errors import InvalidProblemError

if TYPE_CHECKING:
    from .plan import Plan

_PLANS: dict[str, type[Plan]] = {}


def register(cls: type[Plan]) -> None:
    """Called by `Plan.__init_subclass__`."""
    _PLANS[cls.__name__] = cls


def plans() -> dict[str, type[Plan]]:
    """All plans, name → class, in order of family and name."""
    package = importlib.import_module("baracuda_py.ops")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    return dict(sorted(_PLANS.items(), key=lambda item: (item[1].op, item[0])))


def plan(name: str) -> type[Plan]:
    """A plan by class name (`RMSNormPlan`) or op name (`norm.rms_norm`)."""
    known = plans()
    for key, cls in known.items():
        if name in (key, cls.op, cls.op.partition(".")[2]):
            return cls
    raise InvalidProblemError(f"no op {name!r}; known: {', '.join(cls.op for cls in known.values())}")
