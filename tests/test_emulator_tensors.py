"""Boxes by TMA and clusters of blocks, emulated: each kernel here is right, or wrong in one way."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core import ElementKind, TensorMap
from baracuda_py.jit import Unit
from baracuda_py.testing.emulator import EmulationError, run_kernel, translated
from baracuda_py.testing.layouts import aligned_bytes
from baracuda_py.testing.recording import encoded_map

pytestmark = pytest.mark.usefixtures("emulation")

CODE = """
#include <baracuda/tma.cuh>
using namespace baracuda;
struct P { TensorMap from, to; float* y; int x0, y0, z0, how; };
BARACUDA_D unsigned char* aligned_smem() {
  BARACUDA_DYNAMIC_SMEM(unsigned char, s);
  return s + (1024 - smem_address(s) % 1024) % 1024;
}
extern "C" __global__ void boxed(const __grid_constant__ P p) {  // how 1: unfenced, 2: waits for more, 3: for nothing
  __shared__ Barrier full;
  float* const box = reinterpret_cast<float*>(aligned_smem());
  if (threadIdx.x == 0) {
    full.init(1);
    publish_barriers();
    arrive_expecting(full, 8 * 32 * 4 * (p.how == 2 ? 2 : 1));
    tensor_load(box, p.from, full, p.x0, p.y0);
  }
  __syncthreads();
  if (p.how != 3) full.wait(0);
  for (int n = threadIdx.x; n < 8 * 32; n += 32) p.y[n] = box[n];
  __syncwarp();
  for (int n = threadIdx.x; n < 8 * 32; n += 32) box[n] += 1.0f;
  if (p.how != 1) bulk_fence();
  __syncwarp();
  if (threadIdx.x == 0) {
    tensor_store(p.to, box, p.x0, p.y0);
    bulk_commit();
    bulk_wait<0>();
  }
  if (p.how == 3) full.wait(0);
}
extern "C" __global__ void boxed3(const __grid_constant__ P p) {
  __shared__ Barrier full;
  float* const box = reinterpret_cast<float*>(aligned_smem());
  if (threadIdx.x == 0) {
    full.init(1);
    publish_barriers();
    arrive_expecting(full, 2 * 4 * 32 * 4);
    tensor_load(box, p.from, full, p.x0, p.y0, p.z0);
  }
  __syncthreads();
  full.wait(0);
  for (int n = threadIdx.x; n < 2 * 4 * 32; n += 32) p.y[n] = box[n];
}
// Each of two blocks loads half of a box into both, tells the other that it has read it, and both load the next.
// how 1: loads the next without waiting for the other's readers; 2: ends before the other is done.
extern "C" __global__ void shared(const __grid_constant__ P p) {
  __shared__ Barrier full, empty;
  float* const box = reinterpret_cast<float*>(aligned_smem());
  const u32 rank = cluster_rank();
  if (threadIdx.x == 0) {
    full.init(1), empty.init(2);
    publish_barriers();
  }
  cluster_sync();
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) {
      if (p.how != 1) empty.wait(round ^ 1);
      arrive_expecting(full, 8 * 32 * 4);
      tensor_load_to(3, box + rank * 4 * 32, p.from, full, 32 * round, 4 * rank);
    }
    full.wait(round);
    if (rank == 1) __nanosleep(100);
    for (int n = threadIdx.x; n < 8 * 32; n += 32) p.y[(2 * round + rank) * 256 + n] = box[n];
    __syncwarp();
    if (threadIdx.x < 2) arrive_remote(empty, threadIdx.x);
  }
  if (p.how != 2) cluster_sync();
}
"""
NAMES = ("boxed", "boxed3", "shared")
UNIT = Unit("emulator_tensors", CODE, symbols=NAMES)


def run(
    name: str, maps: list[tuple[TensorMap, np.ndarray]], y: np.ndarray, at: tuple[int, ...], how: int = 0, **grid: int
) -> None:
    blocks = grid.get("cluster", 1)
    encoded = b"".join(encoded_map(m, array.ctypes.data) for m, array in maps).ljust(256, b"\0")
    numbers = np.array([*at, *(0,) * (3 - len(at)), how], np.int32).tobytes()
    params = encoded + np.array([y.ctypes.data], np.uint64).tobytes() + numbers
    library = translated(UNIT, "sm_90a", name)
    run_kernel(library, name, (blocks, 1, 1), (32, 1, 1), 4096, params, grid.get("seed", 1), blocks)


def floats(*shape: int) -> np.ndarray:
    """0, 1, … from a multiple of 256 bytes on."""
    made = aligned_bytes(4 * int(np.prod(shape))).view(np.float32).reshape(shape)
    made[...] = np.arange(made.size).reshape(shape)
    return made


def swizzled(box: np.ndarray, span: int) -> np.ndarray:
    """A box of rows of `span` bytes as it lies in shared memory."""
    pieces = box.reshape(-1, span // 16, 4)
    rows = np.arange(pieces.shape[0])[:, None] * span // 128
    order = np.arange(span // 16)[None, :] ^ rows % (span // 16)
    return np.take_along_axis(pieces, order[:, :, None], 1).reshape(-1) if span > 16 else box.reshape(-1)


def cut(x: np.ndarray, start: tuple[int, ...], box: tuple[int, ...]) -> np.ndarray:
    """The box of an array that begins at `start`, zeros outside."""
    made = np.zeros(box, x.dtype)
    for at in np.ndindex(*box):
        place = tuple(s + n for s, n in zip(start, at, strict=True))
        if all(0 <= n < extent for n, extent in zip(place, x.shape, strict=True)):
            made[at] = x[place]
    return made


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize(("x0", "y0"), [(0, 0), (32, 8), (24, 7), (40, 20), (-4, -3), (100, 0)])
def test_boxes_are_copied_zeros_come_in_from_outside_and_nothing_goes_out(swizzle: int, x0: int, y0: int) -> None:
    x, z, y = floats(11, 44), floats(11, 44), np.zeros(256, np.float32)
    one = TensorMap("x", ElementKind.F32, (41, 11), (44 * 4,), (32, 8), swizzle)
    run("boxed", [(one, x), (one, z)], y, (x0, y0))
    box = cut(x[:, :41], (y0, x0), (8, 32))
    assert (y == (swizzled(box, 128) if swizzle else box.reshape(-1))).all()
    wanted = floats(11, 44)
    rows, cols = (slice(max(n, 0), max(n + size, 0)) for n, size in ((y0, 8), (x0, 32)))
    wanted[rows, cols][:, : max(41 - max(x0, 0), 0)] += 1
    assert (z == wanted).all()


def test_boxes_of_three_axes() -> None:
    x, y = floats(3, 6, 64), np.zeros(256, np.float32)
    one = TensorMap("x", ElementKind.F32, (64, 6, 3), (64 * 4, 6 * 64 * 4), (32, 4, 2), 0)
    run("boxed3", [(one, x)], y, (32, 3, 2))
    assert (y == cut(x, (2, 3, 32), (2, 4, 32)).reshape(-1)).all()


@pytest.mark.parametrize(("how", "says"), [(1, "without a fence.proxy.async"), (2, "all threads wait"), (3, None)])
def test_what_a_copy_needs_is_told(how: int, says: str | None) -> None:
    x, z, y = floats(8, 32), floats(8, 32), np.zeros(256, np.float32)
    one = TensorMap("x", ElementKind.F32, (32, 8), (32 * 4,), (32, 8), 128)
    if says is None:  # what was read is what was there before
        run("boxed", [(one, x), (one, z)], y, (0, 0), how)
        assert not (y == swizzled(x, 128)).all()
        return
    with pytest.raises(EmulationError, match=says):
        run("boxed", [(one, x), (one, z)], y, (0, 0), how)


@pytest.mark.parametrize("seed", range(6))
def test_a_cluster_shares_boxes(seed: int) -> None:
    x, y = floats(8, 64), np.zeros(1024, np.float32)
    one = TensorMap("x", ElementKind.F32, (64, 8), (64 * 4,), (32, 4), 0)
    run("shared", [(one, x)], y, (0,), cluster=2, seed=seed)
    left, right = x[:, :32].reshape(-1), x[:, 32:].reshape(-1)
    assert (y == np.concatenate([left, left, right, right])).all()


def test_a_box_written_too_early_or_into_a_block_that_has_ended_shows() -> None:
    one = TensorMap("x", ElementKind.F32, (64, 8), (64 * 4,), (32, 4), 0)
    for how in (1, 2):
        wrong = 0
        for seed in range(12):
            x, y = floats(8, 64), np.zeros(1024, np.float32)
            try:
                run("shared", [(one, x)], y, (0,), how, cluster=2, seed=seed)
            except EmulationError:
                wrong += 1
            else:
                left, right = x[:, :32].reshape(-1), x[:, 32:].reshape(-1)
                wrong += int(not (y == np.concatenate([left, left, right, right])).all())
        assert wrong, f"how {how} went unseen"


@pytest.mark.parametrize(
    ("shape", "strides", "box", "swizzle"),
    [((8,), (), (8, 1), 0), ((8, 8), (32,), (6, 1), 0), ((8, 8), (32,), (8, 257), 0), ((64, 8), (256,), (64, 1), 128)],
)
def test_a_map_that_no_array_could_have_is_refused(
    shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> None:
    with pytest.raises(TypeError):
        TensorMap("x", ElementKind.F32, shape, strides, box, swizzle)


def test_arrays_that_the_copy_engine_does_not_take() -> None:
    made = TensorMap("x", ElementKind.F32, (8, 8), (32,), (8, 1), 0)
    assert made.refusal(4096) is None
    assert "multiple of 16 bytes" in (made.refusal(4100) or "")
    assert "strides" in (TensorMap("x", ElementKind.F32, (8, 8), (36,), (8, 1), 0).refusal(4096) or "")
    assert "axis" in (TensorMap("x", ElementKind.F32, (8, 0), (32,), (8, 1), 0).refusal(4096) or "")
