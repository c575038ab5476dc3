"""Functions of several collectives: what all ranks must give alike is compared before the first."""

from __future__ import annotations

import json
from typing import Any

from ..core.checked import shown
from ..core.errors import CaptureError, InvalidProblemError
from .communicator import Communicator


def checked_communicator(comm: Any) -> Communicator:
    """comm, which must be one."""
    if not isinstance(comm, Communicator):
        raise InvalidProblemError(f"comm must be a Communicator, got {shown(comm)}")
    return comm


def _call(name: str, said: dict[str, Any]) -> tuple[dict[str, str], str]:
    call = {"collective": name, **{field: str(value) for field, value in said.items()}}
    return call, json.dumps(call)


def agree(comm: Communicator, name: str, **said: Any) -> None:
    """Raises `MismatchError` on every rank where ranks say other things; asks them once for each thing said."""
    if comm.size == 1:
        return
    call, key = _call(name, said)
    if key not in comm.agreed:
        comm.exchange(call)
        comm.agreed.add(key)


def agreed(comm: Communicator, name: str, **said: Any) -> bool:
    """Whether the ranks have compared such a call."""
    return comm.size == 1 or _call(name, said)[1] in comm.agreed


def new_in_graph(name: str) -> CaptureError:
    """The error of a call that ranks would have to compare while a stream is captured."""
    return CaptureError(
        f"{name} is new to this communicator, or compared at every call (BARACUDA_CHECK=1): the ranks do so on the "
        "host, which a graph does not repeat; make the same call once before the capture"
    )
