"""What calls on every backend ask of what they are given: a stream's pointer, the torch tensors that were written."""

from __future__ import annotations

from typing import Any

from ..interop.packages import package_name
from ..interop.torch_rules import increment_versions
from .args import Args, arrays_of
from .checked import failure, shown, whole
from .errors import BaracudaError, InvalidProblemError, UnsupportedError


def stream_pointer(stream: Any) -> int:
    """A stream of any package, or an integer, as a pointer."""
    if isinstance(stream, int):
        return whole("stream", stream, 0, 2**64 - 1)
    try:
        for name in ("ptr", "cuda_stream"):  # CuPy's and torch's, read faster than by the protocol
            if hasattr(stream, name):
                return int(getattr(stream, name))
        if hasattr(stream, "__cuda_stream__"):
            version, pointer = stream.__cuda_stream__()
            if version != 0:
                raise UnsupportedError(f"stream: version {version} of the __cuda_stream__ protocol is not known; 0 is")
            return whole("stream", pointer, 0, 2**64 - 1)
        if type(stream).__module__.partition(".")[0] in ("numba", "numba_cuda"):  # its releases without the protocol
            return int(stream)
    except BaracudaError:
        raise
    except Exception as error:
        raise InvalidProblemError(f"stream: a {type(stream).__name__} cannot be read ({failure(error)})") from error
    raise InvalidProblemError(
        f"stream must be a CuPy or torch stream, an object with __cuda_stream__, or an int, got {shown(stream)}"
    )


def torch_written(args: Args) -> list[Any]:
    """The torch tensors that a call writes."""
    found: list[Any] = []
    for spec in arrays_of(type(args)):
        value = getattr(args, spec.name)
        if spec.writes and value is not None:
            found.extend(value if isinstance(value, (list, tuple)) else (value,))
    return [array for array in found if package_name(type(array)) == "torch"]


def count_written(args: Args) -> None:
    """After a call: raise the version counters of the torch tensors among its outputs."""
    if tensors := torch_written(args):
        increment_versions()(tensors)
