"""Examples of clouds, graphs, spellings and decoding, written by hand; tests run every one."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_POINTS = f"{_RNG}points = rng.random((2, 50, 3), dtype=np.float32)\n"
_GRAPH = "indptr, indices = np.array([0, 2, 3, 5]), np.array([1, 2, 0, 0, 1])\n"
_LOG_PROBS = f"{_RNG}log_probs = bc.log_softmax(rng.standard_normal((12, 2, 5), dtype=np.float32))\n"
_LOGITS = f"{_RNG}logits = rng.standard_normal((2, 40), dtype=np.float32)\n"
_SITES = f"""{_RNG}sites = np.stack(np.unravel_index(rng.permutation(512)[:40], (1, 8, 8, 8)), 1)
x, w = rng.standard_normal((40, 4), dtype=np.float32), rng.standard_normal((3, 3, 3, 4, 6), dtype=np.float32)
"""
_WINDOW = "window = dict(spatial_shape=(8, 8, 8), stride=2, padding=1)\n"

CLOUDS: dict[str, str] = {
    "ball_query": f"{_POINTS}index = bc.ball_query(points, points[:, :10], 0.2, 8)",
    "chamfer_distance": f"{_POINTS}y = bc.chamfer_distance(points, points[:, :10])",
    "ctc_align": f"""{_LOG_PROBS}targets = np.array([[1, 2, 2], [3, 4, 0]])
path, score = bc.ctc_align(log_probs, targets, np.array([12, 10]), np.array([3, 2]))""",
    "ctc_beam_decode": f"{_LOG_PROBS}tokens, counts, scores = bc.ctc_beam_decode(log_probs, beam_width=8, nbest=2)",
    "ctc_collapse": f"{_LOG_PROBS}tokens, counts = bc.ctc_collapse(log_probs.argmax(-1))",
    "ctc_greedy_decode": f"{_LOG_PROBS}tokens, counts = bc.ctc_greedy_decode(log_probs, np.array([12, 10]))",
    "draft_tree": f"""{_RNG}parents = np.array([[-1, -1, 0, 0, 1, 2]])
scores = -rng.random((1, 6), dtype=np.float32)
ids, node_parents, depths, picked, mask = bc.draft_tree(
    np.array([7]), rng.integers(0, 50, (1, 6)), parents, scores, nodes=4
)""",
    "edit_distance": """a, b = np.array([[1, 2, 3, 4]]), np.array([[1, 3, 4, 5]])
distance = bc.edit_distance(a, b)""",
    "farthest_point_sample": f"{_POINTS}index = bc.farthest_point_sample(points, 8)",
    "grid_cells": f"{_POINTS}cells = bc.grid_cells(points, size=0.25, low=0.0, high=0.99)",
    "mirostat_mask": f"{_LOGITS}y = bc.mirostat_mask(logits, 5.0)",
    "mirostat_sample": f"""{_LOGITS}mu = np.full(2, 10, np.float32)
ids, mu = bc.mirostat_sample(logits, mu, tau=5.0, seed=7)""",
    "nearest_points": f"{_POINTS}index = bc.nearest_points(points, points[:, :10], 4)",
    "neighbor_sample": f"{_GRAPH}neighbors = bc.neighbor_sample(indptr, indices, np.array([2, 0]), k=2, seed=7)",
    "random_walk": f"{_GRAPH}path = bc.random_walk(indptr, indices, np.array([0, 1, 2]), length=5, seed=7)",
    "repeat_penalties": f"""{_LOGITS}history = rng.integers(0, 40, (2, 100))
y = bc.repeat_penalties(logits, history, ngram=4, multiplier=0.8)""",
    "sparse_conv": f"""{_SITES}{_WINDOW}targets, count = bc.sparse_conv_sites(sites, 3, max_sites=64, **window)
y = bc.sparse_conv(x, bc.sparse_conv_table(sites, targets, 3, **window), w)""",
    "sparse_conv_sites": f"{_SITES}{_WINDOW}targets, count = bc.sparse_conv_sites(sites, 3, max_sites=64, **window)",
    "sparse_conv_table": f"""{_SITES}table = bc.sparse_conv_table(sites, sites, 3, spatial_shape=(8, 8, 8), padding=1)
y = bc.sparse_conv(x, table, w)""",
    "submanifold_conv": f"{_SITES}y = bc.submanifold_conv(x, sites, w, spatial_shape=(8, 8, 8))",
    "stochastic_depth": f"{_LOGITS}y = bc.stochastic_depth(logits, 0.25, seed=7)",
    "xtc_mask": f"{_LOGITS}y = bc.xtc_mask(logits, 0.1, 0.5, seed=7)",
}
