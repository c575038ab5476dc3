"""What launches on Hopper need beyond a plain one: tensor maps encoded for each pointer, and clusters of blocks."""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import BaracudaError
from ..core.tensor_map import NBYTES, TensorMap

_MAP = struct.Struct(f"{NBYTES}s")
_REMEMBERED = 256  # encoded maps of one launch; an allocator hands out the same pointers again and again
_TYPES = {
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "int32": "INT32",
    "int64": "INT64",
}  # fmt: skip

Fill = Callable[[Any, tuple[int, ...], tuple[Any, ...]], None]
Encode = Callable[[TensorMap, int], bytes]


def map_filler(fill: Fill, encode: Encode, maps: Sequence[tuple[int, int, TensorMap]]) -> Fill:
    """`fill`, and then the maps: each is (byte offset in the struct, position of its pointer, tensor map).

    An encoded map is remembered by its pointer. Threads may encode one at the same time, which makes the same bytes.
    """
    pack = _MAP.pack_into
    known: list[tuple[int, int, TensorMap, dict[int, bytes]]] = [(*one, {}) for one in maps]

    def fill_all(memory: Any, flat: tuple[int, ...], values: tuple[Any, ...]) -> None:
        fill(memory, flat, values)
        for offset, position, tensor_map, made in known:
            pointer = flat[position]
            encoded = made.get(pointer)
            if encoded is None:
                if len(made) >= _REMEMBERED:
                    made.clear()
                encoded = made[pointer] = encode(tensor_map, pointer) if pointer else bytes(NBYTES)
            pack(memory, offset, encoded)

    return fill_all


def encoder(driver: Any) -> Encode:
    """The driver's encoding of a map, which is a computation on the host: nothing waits, and capture may be on."""

    wide, narrow = driver.cuuint64_t, driver.cuuint32_t

    def encode(tensor_map: TensorMap, pointer: int) -> bytes:
        rank = len(tensor_map.shape)
        types, swizzles = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle
        unsigned = f"UINT{8 * tensor_map.element.itemsize}"  # bits are moved, whatever they mean
        kind = getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES.get(str(tensor_map.element), unsigned)}")
        swizzle = f"{tensor_map.swizzle}B" if tensor_map.swizzle else "NONE"
        shape, strides = ([wide(n) for n in numbers] for numbers in (tensor_map.shape, tensor_map.strides))
        box, steps = [narrow(n) for n in tensor_map.box], [narrow(1)] * rank
        status, made = driver.cuTensorMapEncodeTiled(
            kind, narrow(rank), pointer + tensor_map.offset, shape, strides, box, steps,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )  # fmt: skip
        if status:
            name = getattr(status, "name", status)
            raise BaracudaError(f"the CUDA driver does not encode {tensor_map} at {pointer:#x}: {name}")
        return ctypes.string_at(int(made.getPtr()), NBYTES)

    return encode


def clustered(driver: Any, cluster: int) -> Callable[..., Any]:
    """`cuLaunchKernel` in clusters of so many blocks along x, for one step: its grid, block and memory do not change.

    Configurations come from a free list, since each holds the stream of the launch that it is in use for.
    """
    free: deque[Any] = deque()

    def launch(
        function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, smem: int, stream: int, params: int,
        extra: int,
    ) -> Any:  # fmt: skip
        try:
            config = free.pop()
        except IndexError:
            config = _config(driver, cluster, (gx, gy, gz), (bx, by, bz), smem)
        config.hStream = stream
        status = driver.cuLaunchKernelEx(config, function, params, extra)
        free.append(config)
        return status

    return launch


def _config(driver: Any, cluster: int, grid: tuple[int, int, int], block: tuple[int, int, int], smem: int) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster, 1, 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = smem
    config.attrs, config.numAttrs = [attribute], 1
    return config
