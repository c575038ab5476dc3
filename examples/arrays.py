"""One function, arrays of every package: NumPy on any machine; CuPy, Numba and raw pointers where there is a GPU.

    python examples/arrays.py

What comes back is of the package that went in. Results go where `out=` says, work onto the stream that `stream=` names:
CuPy's, torch's, Numba's, cuda.core's (`__cuda_stream__`), or a pointer.
"""

from __future__ import annotations

import numpy as np

import baracuda_py as bc


def on_numpy() -> np.ndarray:
    """The NumPy backend: the same calls, evaluated in float64 and rounded once."""
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((4, 64), dtype=np.float32), np.ones(64, np.float32)
    y = bc.rms_norm(x, weight)
    bc.silu(y, out=y)  # in place: y may be x
    scores = bc.matmul(y, y[0])  # a vector is a column
    print("NumPy ", type(scores).__name__, scores.shape, bc.argmax(scores))
    return bc.softmax(bc.where(scores > 0, scores, -1e9), axis=-1)


def on_cupy() -> None:
    """A stream of CuPy: outputs come from its memory on that stream."""
    import cupy as cp

    x = cp.random.default_rng(0).standard_normal((4, 64), dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    y = bc.softmax(x, axis=-1, stream=stream)
    stream.synchronize()
    print("CuPy  ", type(y).__name__, y.shape, float(y.sum()))
    step = bc.graph(lambda a: bc.silu(bc.add(a, 1.0)), x)  # a CUDA graph: one launch a replay
    print("graph ", type(step()).__name__)


def on_numba() -> None:
    """Numba's device arrays go in by their CUDA array interface; what is made is CuPy's, `out=` may be Numba's."""
    from numba import cuda

    x, y = cuda.to_device(np.ones((4, 64), np.float32)), cuda.device_array((4, 64), np.float32)
    bc.silu(x, out=y, stream=cuda.default_stream())
    cuda.synchronize()
    print("Numba ", type(y).__name__, y.copy_to_host()[0, 0])


def on_pointers() -> None:
    """Memory of one's own: a pointer, a shape and an element."""
    import cupy as cp

    memory = cp.zeros(64, cp.float32)
    ref = bc.TensorRef(memory.data.ptr, (64,), element="float32", nbytes=memory.nbytes)
    bc.fill(ref, value=2.0)
    print("raw   ", float(memory.sum()))


def main() -> int:
    print("NumPy ", on_numpy())
    if not _gpu():
        print("no GPU here: CuPy, Numba and raw pointers are left out")
        return 0
    on_cupy()
    on_pointers()
    try:
        on_numba()
    except ImportError as error:
        print(f"Numba is left out: {error}")
    return 0


def _gpu() -> bool:
    """Whether CuPy sees a device."""
    try:
        import cupy as cp
    except ImportError:
        return False
    return bool(cp.cuda.is_available())


if __name__ == "__main__":
    raise SystemExit(main())
