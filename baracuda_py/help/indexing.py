"""Examples of the functions of indexing that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_X = "rng = np.random.default_rng(0)\nx = rng.standard_normal((3, 4), dtype=np.float32)\n"
_ROWS = f"{_X}index, src = np.array([2, 0]), np.ones((2, 4), np.float32)\n"
_KEYS = f"{_X}i, j = np.array([[0], [2]]), np.array([1, -1])\n"

EXAMPLES: dict[str, str] = {
    "argwhere": f"{_X}places, count = bc.argwhere(x > 0)",
    "compress": f"{_X}y, count = bc.compress(np.array([True, False, True]), x, axis=0)",
    "extract": f"{_X}y, count = bc.extract(x > 0, x)",
    "flatnonzero": f"{_X}places, count = bc.flatnonzero(x > 0, size=5)",
    "gather_nd": f"{_X}y = bc.gather_nd(x, np.array([[0, 1], [2, 3]]))",
    "gather_slices": f"""{_X}indices = np.array([[0, 1], [1, 2]])  # where windows of 2 x 2 begin
y = bc.gather_slices(x, indices, offset_dims=(1, 2), start_index_map=(0, 1), slice_sizes=(2, 2))""",
    "index": f"{_KEYS}y = bc.index(x, (i, j))  # x[i, j]",
    "index_add": f"{_ROWS}y = bc.index_add(x, index, src, axis=0)",
    "index_copy": f"{_ROWS}y = bc.index_copy(x, index, src, axis=0)",
    "index_fill": f"{_ROWS}y = bc.index_fill(x, index, 0.5, axis=0)",
    "index_put": f"{_KEYS}y = bc.index_put(x, (i, j), 1.0, accumulate=True)",
    "index_reduce": f'{_ROWS}y = bc.index_reduce(x, index, src, "mean", axis=0)',
    "index_take": f"{_KEYS}y = bc.index_take(x, (i, j), (0, 1))",
    "masked_scatter": f"{_X}y = bc.masked_scatter(x, x > 0, np.arange(12, dtype=np.float32))",
    "masked_select": f"{_X}y, count = bc.masked_select(x, x > 0)",
    "nonzero_static": f"{_X}places = bc.nonzero_static(x > 0, size=5)",
    "put": f"{_X}y = bc.put(x, np.array([0, 5, -1]), 2.0)",
    "put_along_axis": f"{_X}y = bc.put_along_axis(x, bc.argmax(x, axis=1, keepdims=True), 0.0, 1)",
    "scatter_nd": f'{_X}y = bc.scatter_nd(x, np.array([[0], [2]]), np.ones((2, 4), np.float32), "add")',
    "scatter_slices": f"""{_X}indices, windows = np.array([[0, 1], [1, 2]]), np.ones((2, 2, 2), np.float32)
axes = {{"update_window_dims": (1, 2), "scatter_dims_to_operand_dims": (0, 1)}}
y = bc.scatter_slices(x, indices, windows, "add", **axes)""",
    "scatter_sub": f"{_X}y = bc.scatter_sub(x, np.array([[2, 0, 2, 1]]), np.ones((1, 4), np.float32), axis=0)",
    "take_along_axis": f"{_X}y = bc.take_along_axis(x, np.array([[0], [3], [1]]), 1)",
    "take_along_dim": f"{_X}y = bc.take_along_dim(x, np.array([[0], [3], [1]]), 1)",
    "trim_zeros": "x = np.array([0, 0, 3, 0, 4, 0])\nvalues, number = bc.trim_zeros(x)",
}
