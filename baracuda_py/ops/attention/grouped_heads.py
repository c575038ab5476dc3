"""Query heads in groups that share a key and value head, and the scale of their scores."""

from __future__ import annotations

import math

from ...core.errors import InvalidProblemError


class GroupedHeads:
    """What attention's descriptors share: `scale` None is 1 / √d_k, `num_kv_heads` None is `num_heads`."""

    num_heads: int
    num_kv_heads: int
    d_k: int
    scale: float

    def validate(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", 1.0 / math.sqrt(max(self.d_k, 1)))
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if self.num_heads % self.num_kv_heads if self.num_kv_heads else self.num_heads:
            raise InvalidProblemError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.num_heads // self.num_kv_heads if self.num_kv_heads else 1
