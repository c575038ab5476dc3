"""Rows sorted by expert, whose weights are quantised: fields, operand and parameters that such products share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core import Problem, derived, extent
from ...schedules.grouped import bound_values, most_tiles
from ..gemm.groups import check_count

PARAMS = {
    "offsets": "ptr", "total": "i64", "experts": "i64", "offset_stride": "i64", "wide_offsets": "i32",
    "from_zero": "i32",
}  # fmt: skip
_RESIDENT = 8  # blocks a multiprocessor has at most: more would only find that no tiles are left


@dataclass(frozen=True, kw_only=True)
class ExpertFields:
    """total rows in groups, one for each of the experts; num_offsets: `experts` (where each group ends) or one more."""

    total: int = extent()
    experts: int = extent()
    num_offsets: int = extent(derived(lambda desc: desc.experts))

    def validate(self) -> None:
        """There is an offset for each expert, or one more."""
        check_count(self)

    @property
    def groups(self) -> int:
        """Groups of rows, by the name that products of groups have for them."""
        return self.experts


def expert_values(p: Problem) -> dict[str, Any]:
    """The values of `PARAMS`, which kernels/quant_gemm/experts.cuh reads."""
    found = bound_values(p, p.desc.total)
    return {"total": found.pop("rows"), "experts": found.pop("groups"), **found}


def expert_blocks(p: Problem, rows: int, columns: int) -> int:
    """Blocks that walk all tiles of so many rows and columns: extents alone say how many tiles there are at most."""
    desc = p.desc
    tiles = most_tiles(desc.total, desc.experts, rows) * -(-desc.n // columns)
    return int(min(tiles, _RESIDENT * max(1, p.device.sms)))


def many(few: Callable[[Any], int]) -> Callable[[Problem], bool]:
    """Whether experts have more rows on average, which is what the host knows of them, than are few for `desc`."""
    return lambda p: bool(p.desc.experts and p.desc.total > few(p.desc) * p.desc.experts)
