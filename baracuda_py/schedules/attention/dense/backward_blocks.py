"""Tilings of the tensor-core kernels of attention's backward: the block of each head_dim.

docs/design/attention-backward.md says why these.
"""

from __future__ import annotations

from dataclasses import dataclass


class Block:
    """The facts of every kind of block.

    `neighbours`: how many key heads blocks work on together at least; more while their rows fit TOGETHER bytes. With
    many, fewer blocks wait for one another; with few, more of what they read stays in the L2 cache.
    `rises`: there is also a kernel whose blocks walk queries up from a causal mask's diagonal, so that in a fixed order
    of sums none waits. It is used where a head's rows stay in the L2 cache. Of eight key heads one walks down and goes
    last, for balance; the others go in turns of as many as give each multiprocessor two tiles of keys.
    """

    warps: int
    neighbours = 8
    source = ""  # the kernel file, if not the row's
    rises = False
    stays = False  # blocks are persistent: they go on to the next tile of keys
    sides = 0  # column parts of the sums of dq, where flash_finish always makes dq of them

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def finish(self) -> str:
        """The name of the kernel that makes dq of its sums."""
        return "finish_sides" if self.sides else "finish"


@dataclass(frozen=True)
class Blocks(Block):
    """A block of `flash_gradients` (mma.sync), the tensor-core row of any target, for one head_dim.

    `warps`, of which `split` share their keys, and as many of those as a tile has slabs make scores; `tiles`: 16-row
    tiles of keys a warp; `queries` a tile, of which a warp takes `slab` at a time; `stages` of queries; warps `across`
    the queries of dq; `blocks` a multiprocessor.
    """

    warps: int
    tiles: int
    split: int
    queries: int
    slab: int
    stages: int
    across: int
    blocks: int
    terms_blocks: int = 0  # blocks a multiprocessor with score terms, if not `blocks`

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return 16 * self.warps // self.split * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: keys and values, `stages` tiles of q and dy with two numbers a row, ds, and p if keys are shared."""
        elements = 2 * (self.keys + self.stages * self.queries) * d + min(self.split, 2) * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries

    def bias_smem(self) -> int:
        """More bytes with a mask: none, as its elements are read from global memory."""
        return 0

    def call(self, d: int) -> str:
        """The kernel's template without its last argument."""
        numbers = self.warps, self.tiles, self.split, self.queries, self.slab, self.stages, self.across
        return f"flash_gradients<{{T}}, {d}, {', '.join(map(str, numbers))}, "


# Spills are 1 to 7 registers of loop bounds and strides, on one target or the other; at head_dim 64, 25 registers,
# which is faster than tiles of 32 queries.
WIDE = {
    32: Blocks(4, 2, 1, 64, 32, 2, 2, 2, terms_blocks=1),
    64: Blocks(4, 2, 1, 64, 16, 2, 2, 2, terms_blocks=1),
    96: Blocks(8, 1, 1, 64, 32, 2, 4, 1), 128: Blocks(8, 2, 2, 64, 16, 2, 2, 1),
    192: Blocks(8, 1, 2, 64, 32, 2, 2, 1), 256: Blocks(8, 1, 2, 32, 16, 2, 2, 1),
    512: Blocks(8, 1, 4, 32, 16, 1, 2, 1),
}  # fmt: skip
NARROW = {  # for 99 KB of shared memory
    96: Blocks(4, 1, 1, 64, 32, 2, 2, 1), 128: Blocks(4, 1, 1, 32, 16, 2, 2, 1),
    192: Blocks(4, 1, 2, 32, 16, 2, 2, 1), 256: Blocks(4, 1, 2, 32, 16, 1, 2, 1),
    512: Blocks(8, 1, 8, 32, 16, 1, 2, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Groups(Block):
    """A block of `flash_gradients_wgmma` for one head_dim: two warpgroups, 64 queries a tile.

    `split` 1: each group has 64 keys of its own; 2: they share 64 keys. `stages` of queries.
    """

    split: int
    stages: int
    warps: int = 8
    queries: int = 64
    blocks: int = 1
    terms_blocks: int = 0
    neighbours = 16

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 128 // self.split

    def smem(self, d: int) -> int:
        """As `Blocks.smem`, the ticket, and up to 1 KB that aligns the swizzle."""
        sets = self.split * (2 if self.stages == 3 else 1)
        elements = 2 * (self.keys + self.stages * self.queries) * d + sets * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries + 16 + 1024

    def bias_smem(self) -> int:
        """More bytes with a mask: its elements for a tile of scores, of 4 bytes or less."""
        return 4 * self.keys * self.queries

    def call(self, d: int) -> str:
        """The kernel's template without its last argument."""
        return f"flash_gradients_wgmma<{{T}}, {d}, {self.split}, {self.stages}, "


@dataclass(frozen=True)
class Pipeline(Groups):
    """A block of `flash_gradients_pipelined`: two consumer warpgroups, and a producer that loads and adds to dq."""

    source = "attention/dense/flash_sdpa_backward_pipelined.cu"
    stays = True
    sides = 2
    neighbours = 32

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + 128

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and dy, two numbers a row, keys and values (two stages at 64), two ds, one dq."""
        kv_stages = 2 if d == 64 else 1
        elements = 2 * (kv_stages * self.keys + self.stages * self.queries) * d + 2 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * d + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template without its last argument."""
        return f"flash_gradients_pipelined<{{T}}, {d}, {self.stages}, "


@dataclass(frozen=True)
class Relay(Pipeline):
    """A block of `flash_gradients_relay`: one consumer passes weights to the other, which makes ds of them."""

    source = "attention/dense/flash_sdpa_backward_relay.cu"
    rises = True
    stays = False
    sides = 4
    neighbours = 8

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and one of dy, keys and values, two ds and weights, and two quarters of dq."""
        elements = (2 * self.keys + (self.stages + 1) * self.queries) * d + 3 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * (d // 2) + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template without its last argument."""
        return f"flash_gradients_relay<{{T}}, {d}, "


SM90A = {64: Groups(1, 3), 128: Groups(1, 3), 256: Groups(2, 2)}  # masks and dropout
# Everything else. Producers have 40 registers (56 at head_dim 64) and spill; consumers do not.
PIPELINED = {64: Pipeline(1, 4), 128: Pipeline(1, 3), 256: Relay(2, 2)}
