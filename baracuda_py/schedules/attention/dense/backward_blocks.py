"""What blocks of the tensor-core kernels of attention's backward are made of, for each head_dim."""

from __future__ import annotations

from dataclasses import dataclass


class Block:
    """What all kinds of blocks have.

    `neighbours`: key heads that blocks take in turn, at least; more while they are within TOGETHER. With many, fewer
    blocks wait for one another at each; with few, they share more of what is in the L2 cache.
    `rises`: whether there is a kernel whose blocks walk queries up from a causal mask's diagonal, so that in a fixed
    order of sums none waits, where a head's rows stay in the L2 cache. Of eight key heads one walks down and goes last,
    for balance. The others go in turns of as many as give each multiprocessor two tiles of keys and stay in the cache.
    H200, TFLOP/s, head_dim 256: walking down 243 (1024 tokens), 302 (2048), 363 (4096), 397 (8192), 430 (16384); up
    277, 354, 408, 430, 443, and with 24, 12 and 8 heads in turn 255, 327 (2048) and 338 (4096). Of windows and of
    grouped heads as many go in turn as walk down: 1024 keys of 16384 336, with fewer 294.
    """

    warps: int
    neighbours = 8
    source = ""  # the row's
    rises = False
    stays = False  # whether a block goes on to the next tile of keys
    sides = 0  # parts by columns that sums of dq stand in where dq is always left to flash_finish

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
    """The tensor-core row's block for one head_dim, as `flash_gradients` takes it.

    `warps`, of which `split` share their keys; 16-row tiles of keys a warp; queries a tile, those a warp takes at a
    time, and buffers of them; warps along the queries of dq; blocks an SM.
    """

    warps: int
    tiles: int
    split: int
    queries: int
    slab: int
    stages: int
    across: int
    blocks: int
    terms_blocks: int = 0  # of the kernel with score terms, if not as many

    @property
    def keys(self) -> int:
        """Keys a block takes."""
        return 16 * self.warps // self.split * self.tiles

    def smem(self, d: int) -> int:
        """Bytes: keys and values, `stages` tiles of q and dy with two numbers a row, and `split` tiles of scores."""
        elements = 2 * (self.keys + self.stages * self.queries) * d + self.split * self.keys * self.queries
        return 2 * elements + 8 * self.stages * self.queries

    def bias_smem(self) -> int:
        """Bytes besides where a mask is given: its elements are read where they stand."""
        return 0

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        numbers = self.warps, self.tiles, self.split, self.queries, self.slab, self.stages, self.across
        return f"flash_gradients<{{T}}, {d}, {', '.join(map(str, numbers))}, "


# At head_dim 64, 64 queries spill 25 registers: 511 us for 32 x [8, 1024, 64] causal on an H200 against 552 with 32.
# The other spills are 1 to 7 registers of loop bounds and strides, on one target or the other.
WIDE = {
    32: Blocks(4, 2, 1, 64, 32, 2, 2, 2, terms_blocks=1),
    64: Blocks(4, 2, 1, 64, 16, 2, 2, 2, terms_blocks=1),
    96: Blocks(8, 1, 1, 64, 32, 2, 4, 1), 128: Blocks(8, 2, 2, 64, 16, 2, 2, 1),
    192: Blocks(8, 1, 2, 64, 32, 2, 2, 1), 256: Blocks(8, 1, 2, 32, 16, 2, 2, 1),
}  # fmt: skip
NARROW = {  # for 99 KB of shared memory
    96: Blocks(4, 1, 1, 64, 32, 2, 2, 1), 128: Blocks(4, 1, 1, 32, 16, 2, 2, 1),
    192: Blocks(4, 1, 2, 32, 16, 2, 2, 1), 256: Blocks(4, 1, 2, 32, 16, 1, 2, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Groups(Block):
    """The wgmma row's block for one head_dim, as `flash_gradients_wgmma` takes it: two warpgroups, 64 queries a tile.

    `split` 1: a group has 64 keys of its own; 2: they share 64 keys. `stages`: buffers of queries.
    """

    split: int
    stages: int
    warps: int = 8
    queries: int = 64
    blocks: int = 1
    terms_blocks: int = 0
    neighbours = 16  # H200, head_dim 256, 4096 keys, causal / full, TFLOP/s: 8 234 / 274, 16 253 / 270, 32 252 / 260

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
        """Bytes besides where a mask is given: its elements for a tile of scores, of 4 bytes or less."""
        return 4 * self.keys * self.queries

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_wgmma<{{T}}, {d}, {self.split}, {self.stages}, "


@dataclass(frozen=True)
class Pipeline(Groups):
    """A block of `flash_gradients_pipelined`: a warpgroup more, which loads and adds to dq."""

    source = "attention/dense/flash_sdpa_backward_pipelined.cu"
    stays = True
    sides = 2
    neighbours = 32  # head_dim 128 there: 8 442 / 506, 16 463 / 513, 32 477 / 517

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + 128

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and dy, two numbers a row, keys and values (at 64 twice), two ds, one dq."""
        homes = 2 if d == 64 else 1
        elements = 2 * (homes * self.keys + self.stages * self.queries) * d + 2 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * d + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_pipelined<{{T}}, {d}, {self.stages}, "


@dataclass(frozen=True)
class Relay(Pipeline):
    """A block of `flash_gradients_relay`: one warpgroup's weights pass to the other, which makes ds of them."""

    source = "attention/dense/flash_sdpa_backward_relay.cu"
    rises = True
    stays = False
    sides = 4
    neighbours = 8  # 4096 keys, causal, in order / in any: 8 347 / 410, 16 358 / 392; 32, from memory, 237 / 280

    def smem(self, d: int) -> int:
        """Bytes: `stages` tiles of q and one of dy, keys and values, ds twice and weights, and two quarters of dq."""
        elements = (2 * self.keys + (self.stages + 1) * self.queries) * d + 3 * self.keys * self.queries
        return 2 * elements + 4 * self.queries * (d // 2) + 8 * self.stages * self.queries + 1024

    def call(self, d: int) -> str:
        """The kernel's template but for its last argument."""
        return f"flash_gradients_relay<{{T}}, {d}, "


SM90A = {64: Groups(1, 3), 128: Groups(1, 3), 256: Groups(2, 2)}  # masks and dropout
# All else. Loaders spill, as they have 40 registers, 56 at head_dim 64; warps that multiply have 232 or 224 and do not.
# With 72 and 216 none spills, and head_dim 64 is 4 % slower at 16384 tokens.
PIPELINED = {64: Pipeline(1, 4), 128: Pipeline(1, 3), 256: Relay(2, 2)}
