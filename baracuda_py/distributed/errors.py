"""What fails between ranks: typed, and raised on every rank."""

from __future__ import annotations

from ..core.errors import BaracudaError


class DistributedError(BaracudaError):
    """Base of the errors of a call of several ranks. The communicator has failed: every later call raises, too."""


class RankLostError(DistributedError):
    """A rank ended, closed its communicator or cannot be reached, and others wait for it."""


class MismatchError(DistributedError):
    """Ranks make different calls: the message names the first rank that differs from rank 0, and in what."""


class TimedOutError(DistributedError, TimeoutError):
    """A rank did not come within the communicator's time limit."""


class AbortedError(DistributedError):
    """`Communicator.abort` was called on some rank, or another rank's function raised an error."""


KINDS = {kind.__name__: kind for kind in (DistributedError, RankLostError, MismatchError, TimedOutError, AbortedError)}
