"""Examples of the functions of order that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"
_AB = f"{_RNG}a, b = rng.standard_normal((2, 3, 4), dtype=np.float32)\n"
_POINTS = f"{_RNG}x = rng.standard_normal((40, 2), dtype=np.float32)\n"
_BOUNDS = f"{_X}boundaries = np.array([-0.5, 0.5, 1.0], np.float32)\n"
_SETS = "a, b = np.array([3, 1, 2, 3, 5]), np.array([2, 3, 7])\n"
_REPEATED = "x = np.array([3, 1, 1, 3, 3, 5])\n"

SORT: dict[str, str] = {
    "bincount": f"{_REPEATED}counts = bc.bincount(x, length=6)",
    "bucketize": f"{_BOUNDS}y = bc.bucketize(x, boundaries)",
    "digitize": f"{_BOUNDS}y = bc.digitize(x, boundaries)",
    "histc": f"{_X}counts = bc.histc(x, 4, -2.0, 2.0)",
    "histogram": f"{_X}counts, edges = bc.histogram(x, 4, range=(-2.0, 2.0))",
    "histogram2d": f"{_POINTS}counts, x_edges, y_edges = bc.histogram2d(x[:, 0], x[:, 1], (4, 3))",
    "histogram_bin_edges": f"{_X}edges = bc.histogram_bin_edges(x, 4)",
    "histogramdd": f"{_POINTS}counts, edges = bc.histogramdd(x, (4, 3))",
    **{f"{name}1d": f"{_SETS}y, number = bc.{name}1d(a, b)" for name in ("intersect", "setdiff", "setxor", "union")},
    "interp": f"{_X}xp, fp = np.float32([-1, 0, 2]), np.float32([0, 3, 1])\ny = bc.interp(x, xp, fp)",
    "isin": f"{_SETS}y = bc.isin(a, b)",
    "kthvalue": f"{_X}y, indices = bc.kthvalue(x, 2)",
    "lexsort": f"{_AB}order = bc.lexsort((a > 0, b))",
    "merge_sorted": f"{_AB}a, b = np.sort(a), np.sort(b)\ny = bc.merge_sorted(a, b)",
    **{name: f"{_X}y = bc.{name}(x, 0.25, axis=1)" for name in ("quantile", "nanquantile")},
    **{
        name: f"{_X}q = np.array([10.0, 50.0])\ny = bc.{name}(x, q, axis=1)" for name in ("percentile", "nanpercentile")
    },
    "rankdata": f'{_X}y = bc.rankdata(x, axis=1, method="min")',
    "segment_sort": f"{_REPEATED}values, indices = bc.segment_sort(x, np.array([0, 2, 6]))",
    "segment_topk": f"{_REPEATED}values, indices = bc.segment_topk(x, np.array([0, 1, 6]), 2)",
    "topk_varlen": f"{_X}values, places = bc.topk_varlen(x, np.array([4, 1, 3]), 2)",
    "sort_backward": f"{_X}y, indices = bc.sort(x)\ndx = bc.sort_backward(np.ones_like(y), indices, shape=(3, 4))",
    "sort_complex": "x = np.complex64([2 + 1j, 1 - 1j, 1 - 2j])\ny = bc.sort_complex(x)",
    "sort_key_val": f"{_AB}keys, values = bc.sort_key_val(a, b)",
    "unique": f"{_REPEATED}values, number = bc.unique(x)",
    "unique_all": f"{_REPEATED}values, first, inverse, counts, number = bc.unique_all(x)",
    "unique_consecutive": f"{_REPEATED}values, number = bc.unique_consecutive(x)",
    "unique_counts": f"{_REPEATED}values, counts, number = bc.unique_counts(x)",
    "unique_inverse": f"{_REPEATED}values, inverse, number = bc.unique_inverse(x)",
    "unique_values": f"{_REPEATED}values, number = bc.unique_values(x)",
}
