"""Query heads in groups that share a key and value head, and the scale of their scores."""

from __future__ import annotations

import math
from typing import Any

from ...core import InvalidProblemError, derived, integer, number


def score_scale() -> Any:
    """The field `scale`: None is 1 / √d_k."""
    return number(derived(lambda desc: 1.0 / math.sqrt(max(desc.d_k, 1))))


def kv_heads() -> Any:
    """The field `num_kv_heads`: None is `num_heads`."""
    return integer(derived(lambda desc: desc.num_heads), minimum=0)


class GroupedHeads:
    """What attention's descriptors share: a number of query heads that is a multiple of the key and value heads."""

    num_heads: int
    num_kv_heads: int

    def validate(self) -> None:
        if self.num_heads % self.num_kv_heads if self.num_kv_heads else self.num_heads:
            raise InvalidProblemError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.num_heads // self.num_kv_heads if self.num_kv_heads else 1
