"""Graph convolution: the communities of a graph, from noisy features and a few labels, by sparse products.

    python examples/graph_conv.py                 # on the NumPy backend: seconds
    python examples/graph_conv.py --preset gpu    # on a CUDA device: a million edges

Nodes are in communities and have most of their edges inside them. Each has features that tell its community badly, and
one in twenty a label. Two layers Â relu(Â X W1) W2, with Â = D^-1/2 (A + I) D^-1/2 (Kipf and Welling, Semi-supervised
classification with graph convolutional networks, 2017), are trained on the labels; the nodes without are told at the
end. Beside it stands the same model without the graph. Every sum has a fixed order: two runs agree in every bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import numpy as np
from train_gpt import UsageError, choose_device, describe, main

import baracuda_py as bc

sparse = bc.sparse


@dataclasses.dataclass(frozen=True)
class Preset:
    """Sizes of a graph, and how it is trained."""

    nodes: int
    communities: int
    degree: int  # edges that begin at a node
    features: int
    hidden: int
    epochs: int
    learning_rate: float = 0.02


PRESETS = {
    "cpu": Preset(nodes=2000, communities=5, degree=6, features=32, hidden=32, epochs=60),
    "gpu": Preset(nodes=131072, communities=16, degree=8, features=128, hidden=128, epochs=200),
}
INSIDE, LABELLED, NOISE, NONE = 0.8, 0.05, 3.0, -100


def graph(preset: Preset, xp: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Â, features, the community of every node, and the labels that are told (NONE for the others)."""
    rng = np.random.default_rng(seed)
    n = preset.nodes
    community = np.sort(rng.integers(0, preset.communities, n))
    source = np.repeat(np.arange(n), preset.degree)
    first, after = (np.searchsorted(community, community[source], side=side) for side in ("left", "right"))
    near, far = first + (rng.random(source.size) * (after - first)).astype(np.int64), rng.integers(0, n, source.size)
    target = np.where(rng.random(source.size) < INSIDE, near, far)
    own = np.arange(n)
    ends = np.concatenate([source, target, own]), np.concatenate([target, source, own])
    rows, columns = (xp.asarray(one.astype(np.int32)) for one in ends)
    edges = sparse.COO(xp.ones(rows.size, np.float32), rows, columns, (n, n))
    a = sparse.coo_to_csr(sparse.coalesce(edges))
    a = a.with_values(xp.ones_like(a.values))  # an edge counts once
    scale = bc.rsqrt(sparse.sum(a, axis=1))
    a = a.with_values(scale[sparse.csr_to_coo(a).rows] * scale[a.columns])
    means = rng.standard_normal((preset.communities, preset.features))
    features = means[community] + NOISE * rng.standard_normal((n, preset.features))
    told = np.where(rng.random(n) < LABELLED, community, NONE)
    return a, xp.asarray(features.astype(np.float32)), xp.asarray(community), xp.asarray(told)


class Layers:
    """Â relu(Â X W1) W2, and its gradient; without a matrix, relu(X W1) W2."""

    def __init__(self, a: Any, preset: Preset, xp: Any, seed: int) -> None:
        self.a, rng = a, np.random.default_rng(seed)
        sizes = (preset.features, preset.hidden), (preset.hidden, preset.communities)
        self.weights = [xp.asarray((rng.standard_normal(s) / s[0] ** 0.5).astype(np.float32)) for s in sizes]
        self.moments = [[xp.zeros_like(w) for w in self.weights] for _ in range(2)]
        self.steps = 0

    def spread(self, x: Any) -> Any:
        """Â x. Â is symmetric, so this is its own gradient."""
        return x if self.a is None else sparse.spmm(self.a, x)

    def logits(self, x: Any) -> Any:
        """Of every node and community; what the gradient needs is kept."""
        self.first = self.spread(x)
        self.before = bc.matmul(self.first, self.weights[0])
        self.second = self.spread(bc.relu(self.before))
        return bc.matmul(self.second, self.weights[1])

    def gradients(self, dlogits: Any) -> list[Any]:
        """Of both weights."""
        dsecond = bc.matmul(dlogits, self.weights[1].T)
        dbefore = bc.relu_backward(self.spread(dsecond), self.before)
        return [bc.matmul(self.first.T, dbefore), bc.matmul(self.second.T, dlogits)]

    def train(self, x: Any, told: Any, learning_rate: float) -> Any:
        """A step of Adam on the labelled nodes; the loss."""
        loss, dlogits = bc.cross_entropy(self.logits(x), told, ignore_index=NONE, return_dlogits=True)
        self.steps += 1
        facts = {"lr": learning_rate, "step": self.steps, "weight_decay": 5e-3, "mode": "adamw"}
        bc.adam_step(self.weights, self.gradients(dlogits), *self.moments, **facts)
        return loss


def run(argv: list[str] | None = None) -> dict[str, float]:
    """Train with and without the graph, report; returns the accuracies on nodes without a label."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), help="default: gpu on a CUDA device, else cpu")
    parser.add_argument("--device", help="cpu or cuda:N (default: a CUDA device if there is one)")
    parser.add_argument("--epochs", type=int, help="default: the preset's")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    if asked.epochs is not None and asked.epochs < 1:
        raise UsageError(f"--epochs must be at least 1, got {asked.epochs}")
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    epochs = asked.epochs or preset.epochs
    a, x, community, told = graph(preset, xp, asked.seed)
    hidden = told == NONE
    print(
        f"{preset.nodes:,} nodes, {a.nnz:,} entries, {int((~hidden).sum()):,} labels, on {describe(device)}", flush=True
    )
    found = {}
    for name, matrix in (("with the graph", a), ("without it", None)):
        model = Layers(matrix, preset, xp, asked.seed)
        loss = float(model.train(x, told, preset.learning_rate))  # compiles what is needed
        start = time.perf_counter()
        for _ in range(epochs - 1):
            loss = model.train(x, told, preset.learning_rate)
        loss, seconds = float(loss), time.perf_counter() - start
        right = bc.argmax(model.logits(x), axis=-1) == community
        found[name] = float(right[hidden].mean())
        each = f", {1e3 * seconds / (epochs - 1):.2f} ms an epoch" if epochs > 1 else ""
        print(f"{name:15} loss {loss:.3f}, {found[name]:.1%} of the other nodes right{each}", flush=True)
    return found


if __name__ == "__main__":
    raise SystemExit(main(run=run))
