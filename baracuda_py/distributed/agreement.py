"""Functions of several collectives: what all ranks must give alike is compared before the first."""

from __future__ import annotations

import json
from typing import Any

from ..core.checked import shown
from ..core.errors import InvalidProblemError
from .communicator import Communicator


def checked_communicator(comm: Any) -> Communicator:
    """comm, which must be one."""
    if not isinstance(comm, Communicator):
        raise InvalidProblemError(f"comm must be a Communicator, got {shown(comm)}")
    return comm


def agree(comm: Communicator, name: str, **said: Any) -> None:
    """Raises `MismatchError` on every rank where ranks say other things; asks them once for each thing said."""
    if comm.size == 1:
        return
    call = {"collective": name, **{field: str(value) for field, value in said.items()}}
    key = json.dumps(call)
    if key not in comm.agreed:
        comm.exchange(call)
        comm.agreed.add(key)
