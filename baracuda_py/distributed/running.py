"""One call of a collective: operands read, an output made, the descriptor's row run."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import located, read_only, to_numpy
from ..core.element import ElementKind, decode
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.outputs import handed, maker
from .communicator import Communicator
from .descriptors import CollectiveDescriptor, SendReceiveDescriptor
from .host import RUN


def run(
    desc: CollectiveDescriptor, comm: Communicator, x: Any, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """y of a collective; `out`, or an array of x's package."""
    at = located(x, "x")
    if at.device >= 0:
        raise UnsupportedError(
            f"engine {comm.engine} takes arrays of the host, x is on cuda:{at.device}; copy it, or take engine='nccl'"
        )
    shape = desc.output_shape(comm.rank)
    y = None if shape is None else _output(desc.element, shape, x, out)
    source = None if isinstance(desc, SendReceiveDescriptor) and desc.to is None else _values(x, desc.element)
    RUN[type(desc)](comm, desc, source, None if y is None else _values(y, desc.element))
    return y if out is not None or y is None else handed(y, desc.element, x)


def _values(array: Any, element: ElementKind) -> np.ndarray:
    """An array of the host as NumPy's, in the element's own dtype."""
    held = to_numpy(array)
    return held if held.dtype == element.dtype else decode(held, element)


def _output(element: ElementKind, shape: tuple[int, ...], x: Any, out: Any) -> Any:
    if out is None:
        made = maker(x, shape, element, -1)()
        return made.view(x.dtype) if isinstance(x, np.ndarray) else made  # fp8 comes back as it went in
    at = located(out, "out")
    if at.device >= 0:
        raise InvalidProblemError(f"out must be on the host as x is, is on cuda:{at.device}")
    if at.element is not element or at.shape != shape:
        raise InvalidProblemError(f"out must be {element} of shape {shape}, got {at.element} of shape {at.shape}")
    if at.readonly:
        raise read_only(out, "out")
    return out
