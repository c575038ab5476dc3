"""Blocks of the forward's tensor-core kernels, for each design and head_dim."""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = 256  # columns of v of a block of the forward, at most


@dataclass(frozen=True)
class Tiling:
    """A block of `flash_sdpa_mma` for one head_dim: warps, 16-row tiles a warp, keys, stages, blocks an SM."""

    warps: int
    tiles: int
    keys: int
    stages: int
    blocks: int
    terms: tuple[int, int] = (0, 0)  # blocks a multiprocessor with score terms, and with masks, if not `blocks`

    source = ""  # the kernel file, if not the row's

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return 16 * self.warps * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: the queries, and `stages` tiles of keys and of values; 99 KB at most, which every device has."""
        return 2 * (d * self.rows + self.stages * self.keys * (d + min(d, COLUMNS)))

    def call(self, d: int, rest: str, kernel: str = "flash_sdpa_mma") -> str:
        """The kernel's template."""
        return f"{kernel}<{{T}}, {d}, {self.warps}, {self.tiles}, {self.keys}, {self.stages}, {rest}>"


@dataclass(frozen=True)
class GroupTiling:
    """A block of `flash_sdpa_wgmma` for one head_dim: warpgroups of 64 queries, and blocks a multiprocessor."""

    groups: int
    blocks: int
    terms: tuple[int, int] = (0, 0)
    keys: int = 64
    source = ""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * self.groups

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return 64 * self.groups

    def smem(self, d: int) -> int:
        """Bytes: the queries and two stages of keys and of values, from a multiple of 1024 on."""
        return 1024 + 2 * d * (self.rows + 4 * self.keys)

    def call(self, d: int, rest: str) -> str:
        """The kernel's template."""
        return f"flash_sdpa_wgmma<{{T}}, {d}, {self.groups}, {self.keys}, {rest}>"


@dataclass(frozen=True)
class PipelineTiling(GroupTiling):
    """A persistent block of `flash_sdpa_pipelined`: the consumer warpgroups, and a producer."""

    groups: int = 2
    blocks: int = 1
    source = "attention/dense/flash_sdpa_pipelined.cu"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.groups + 1)

    def smem(self, d: int) -> int:
        """As above, with two stages of queries up to head_dim 128, and 64 columns of outputs."""
        return super().smem(d) + (2 * d * self.rows if d <= 128 else 0) + 128 * self.rows

    def call(self, d: int, rest: str) -> str:
        """The kernel's template."""
        return f"flash_sdpa_pipelined<{{T}}, {d}, {self.keys}, {rest}>"


# 32 rows a warp halve what a fragment of keys or values costs in shared memory; past head_dim 128 registers allow 16.
# At 256 seven registers are spilled around the branch that computes rows of huge scores again.
SM80 = {
    32: Tiling(4, 2, 64, 2, 3, terms=(2, 2)), 64: Tiling(4, 2, 64, 2, 3, terms=(2, 2)),
    96: Tiling(4, 2, 64, 2, 2),
    128: Tiling(4, 2, 64, 2, 2), 192: Tiling(4, 1, 64, 1, 2),
    256: Tiling(4, 1, 64, 1, 2), 512: Tiling(4, 1, 16, 1, 1),
}  # fmt: skip
# One block of 256 threads and up to 96 KB a multiprocessor.
SM89 = {
    32: Tiling(8, 2, 64, 2, 1), 64: Tiling(8, 2, 64, 2, 1), 96: Tiling(8, 2, 32, 2, 1),
    128: Tiling(8, 2, 32, 2, 1), 192: Tiling(8, 1, 32, 2, 1), 256: Tiling(8, 1, 16, 2, 1),
    512: Tiling(4, 1, 16, 1, 1),
}  # fmt: skip
# One warpgroup a block where two blocks or more fit, as the groups of one block wait for each other. Head_dim 64 spills
# 52 bytes, which lazy bases are worth; with masks it takes 168 registers, so three blocks.
SM90A = {64: GroupTiling(1, 4, terms=(4, 3)), 128: GroupTiling(1, 2), 192: GroupTiling(2, 1), 256: GroupTiling(2, 1)}
# Past head_dim 64 blocks that load for themselves are bound by the L2 cache; here two consumers share what is loaded.
PIPELINE = {128: PipelineTiling(keys=128), 192: PipelineTiling(), 256: PipelineTiling()}
