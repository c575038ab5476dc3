"""One call of a collective: operands read, an output made, the descriptor's plan run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import located
from ..core.outputs import allocating, handed, maker
from ..core.preference import preferred
from ..interop.packages import package_name
from .communicator import Communicator
from .descriptors import CollectiveDescriptor
from .plan import PLANS, CollectiveArgs

KEPT = 256
"""Plans that a communicator's functions find again."""


def run(
    desc: CollectiveDescriptor, comm: Communicator, x: Any, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """y of a collective; `out`, or an array of x's package."""
    preference = preferred(preference)
    plan = comm.plans.get((desc, preference))
    if plan is None:
        plan = PLANS[type(desc)].select(desc, comm, preference)
        if len(comm.plans) >= KEPT:
            comm.plans.clear()
        comm.plans[desc, preference] = plan
    device = located(x, "x").device
    shape = desc.output_shape(comm.rank)
    if shape is None:
        plan.run(CollectiveArgs(x=x), stream=stream)
        return None
    if out is not None:
        plan.run(CollectiveArgs(x=x, y=out), stream=stream)
        return out
    with allocating(package_name(type(x)), device, stream):
        y = maker(x, shape, desc.element, device)()
        if isinstance(x, np.ndarray):
            y = y.view(x.dtype)  # fp8 comes back as it went in
        plan.run(CollectiveArgs(x=x, y=y), stream=stream)
        return handed(y, desc.element, x)
