"""Examples of the functions of shape and layout that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"
_IMAGES = f"{_RNG}x = rng.standard_normal((2, 4, 4, 6), dtype=np.float32)\n"
_CUBE = f"{_RNG}x = rng.standard_normal((2, 3, 4), dtype=np.float32)\n"
_PART = f"{_X}update = np.zeros((2, 2), np.float32)\n"
_COLUMN = f"{_RNG}c = rng.standard_normal(4, dtype=np.float32)\n"
_COLUMN_AND_ROW = f"{_COLUMN}r = rng.standard_normal(5, dtype=np.float32)\n"

LAYOUT: dict[str, str] = {
    "append": f"{_X}y = bc.append(x, x[:2], axis=0)",
    "as_strided_copy": f"{_X}y = bc.as_strided_copy(x, (2, 3), (1, 2), 5)",
    "as_strided_scatter": f"""{_X}src = np.zeros((2, 2), np.float32)
y = bc.as_strided_scatter(x, src, (2, 2), (8, 2), 1)""",
    "channel_shuffle": f"{_IMAGES}y = bc.channel_shuffle(x, 2)",
    "circulant": f"{_COLUMN}y = bc.circulant(c)",
    "col2im": f"{_RNG}x = rng.standard_normal((1, 8, 12), dtype=np.float32)\ny = bc.col2im(x, (4, 5), (2, 2))",
    "combinations": f"{_X}y = bc.combinations(x[0], 2)",
    "companion": "a = np.float32([2, -3, 5, 1])\ny = bc.companion(a)",
    "concat_mla_k": f"""{_RNG}k_nope = rng.standard_normal((3, 2, 4), dtype=np.float32)
k_rope = rng.standard_normal((3, 1, 2), dtype=np.float32)
k = bc.concat_mla_k(k_nope, k_rope)""",
    "convolution_matrix": 'a = np.float32([1, 2, -1])\ny = bc.convolution_matrix(a, 5, "same")',
    "delete": f"{_X}y = bc.delete(x, (1, 3), axis=1)",
    "depth_to_space": f'{_IMAGES}y = bc.depth_to_space(x, 2, "CRD")',
    "diag_embed": f"{_X}y = bc.diag_embed(x, offset=1)",
    "diagflat": f"{_X}y = bc.diagflat(x)",
    "dynamic_index_in_dim": f"{_X}index = np.array(2, np.int32)\ny = bc.dynamic_index_in_dim(x, index, axis=1)",
    "dynamic_slice": f"{_X}start = np.array([1, 2], np.int32)\ny = bc.dynamic_slice(x, start, (2, 2))",
    "dynamic_slice_in_dim": f"{_X}start = np.array(1, np.int32)\ny = bc.dynamic_slice_in_dim(x, start, 2, axis=1)",
    "dynamic_update_index_in_dim": f"""{_X}row, index = np.zeros(4, np.float32), np.array(1, np.int32)
y = bc.dynamic_update_index_in_dim(x, row, index, 0)""",
    "dynamic_update_slice": f"""{_PART}start = np.array([1, 2], np.int32)
y = bc.dynamic_update_slice(x, update, start)""",
    "dynamic_update_slice_in_dim": f"""{_X}rows, start = np.zeros((2, 4), np.float32), np.array(1, np.int32)
y = bc.dynamic_update_slice_in_dim(x, rows, start, 0)""",
    "expand_copy": f"{_X}y = bc.expand_copy(x, (2, -1, 4))",
    "fiedler_companion": "a = np.float32([2, -3, 5, 1])\ny = bc.fiedler_companion(a)",
    "fill_diagonal": f"{_X}bc.fill_diagonal(x, 2.0)  # in place",
    "hankel": f"{_COLUMN_AND_ROW}y = bc.hankel(c, r)",
    "insert": f"{_X}column = np.zeros((3, 1), np.float32)\ny = bc.insert(x, (2,), column, axis=1)",
    "leslie": "f, s = np.float32([0.1, 2, 1, 0.1]), np.float32([0.2, 0.8, 0.7])\ny = bc.leslie(f, s)",
    "narrow_copy": f"{_X}y = bc.narrow_copy(x, 1, 1, 2)",
    "packbits": "x = np.array([[1, 0, 2], [0, 1, 1]], np.uint8)\ny = bc.packbits(x, axis=1)",
    "pad": f'{_X}y = bc.pad(x, (1, 2), "reflect")',
    "pad_in_dim": f"{_X}y = bc.pad_in_dim(x, 1.5, ((1, 0, 1), (0, -2, 0)))",
    "permute_copy": f"{_CUBE}y = bc.permute_copy(x, 2, 0, 1)",
    "pixel_shuffle": f"{_IMAGES}y = bc.pixel_shuffle(x, 2)",
    "pixel_unshuffle": f"{_IMAGES}y = bc.pixel_unshuffle(x, 2)",
    "repeat_interleave": f"{_X}y = bc.repeat_interleave(x, np.array([2, 0, 1]), axis=0, total=3)",
    "roll": f"{_X}y = bc.roll(x, (1, -2), axis=(0, 1))",
    "select_scatter": f"{_X}src = np.zeros(3, np.float32)\ny = bc.select_scatter(x, src, 1, 2)",
    "slice_static": f"{_X}y = bc.slice_static(x, (1, 0), (3, 4), (1, 2))",
    "space_to_depth": f"{_IMAGES}y = bc.space_to_depth(x, 2)",
    "split_copy": f"{_X}left, right = bc.split_copy(x, 2, axis=1)",
    "tile": f"{_X}y = bc.tile(x, (2, 1))",
    "toeplitz": f"{_COLUMN_AND_ROW}y = bc.toeplitz(c, r)",
    "transpose_copy": f"{_CUBE}y = bc.transpose_copy(x, 2, 0)",
    "unbind_copy": f"{_X}rows = bc.unbind_copy(x)",
    "unfold_copy": f"{_X}y = bc.unfold_copy(x, 1, 3, 1)",
    "unpackbits": "x = np.array([[1, 255]], np.uint8)\ny = bc.unpackbits(x, axis=1)",
    "write_slice": f"{_PART}start = np.array([1, 2], np.int32)\nbc.write_slice(x, update, start)  # in place",
}  # fmt: skip
