"""The model of `gpt_model` on several ranks: its batch, its matrices, or its optimizer's states spread over them.

Whatever is spread, a number of ranks that divides 8 gives the loss and the weights of one rank, bit for bit: sums over
ranks are made in one binary tree, of which each rank adds a part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpt_model import Decoder, Preset, Weights

import baracuda_py as bc
from baracuda_py import distributed

MICRO_BATCHES = 8  # whose gradients are added in the tree
ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
Step = Callable[[Any, Any, int, float], Any]  # (tokens, targets, number from 1, learning rate) → the loss


def part(x: Any, comm: Any, axis: int) -> Any:
    """This rank's part of an array along an axis, in memory of its own."""
    size = x.shape[axis] // comm.size
    cut = (slice(None),) * axis + (slice(comm.rank * size, (comm.rank + 1) * size),)
    return x[cut].copy()


class SpreadDecoder:
    """The matrices of a `Decoder` cut as Megatron-LM cuts them: heads, hidden features and the vocabulary over ranks.

    Those of q, k and v, and of gate and up, are apart, so that a rank's columns are neighbours. Weights are [in, out].
    """

    def __init__(self, whole: Decoder, comm: Any) -> None:
        p = self.preset = whole.preset
        self.comm, self.xp, self.norms = comm, whole.xp, {n: w.copy() for n, w in whole.norms.items()}
        if p.kv_heads % comm.size:
            raise bc.InvalidProblemError(f"{p.kv_heads} heads of keys cannot be shared out to {comm.size} ranks")
        m, queries, keys = whole.matrices, p.heads * p.head_dim, p.kv_heads * p.head_dim
        self.matrices: Weights = {"embedding": part(m["embedding"], comm, 0), "head": part(m["head"], comm, 1)}
        for i in range(p.layers):
            cuts = {"gate": (f"up{i}", 0, p.ffn), "up": (f"up{i}", p.ffn, p.ffn), "q": (f"qkv{i}", 0, queries)}
            cuts |= {"k": (f"qkv{i}", queries, keys), "v": (f"qkv{i}", queries + keys, keys)}
            for name, (of, first, count) in cuts.items():
                self.matrices[f"{name}{i}"] = part(m[of][:, first : first + count], comm, 1)
            for name in ("out", "down"):
                self.matrices[f"{name}{i}"] = part(m[f"{name}{i}"], comm, 0)
        self.copies = None if p.compute == "float32" else {n: bc.cast(w, p.compute) for n, w in self.matrices.items()}
        self.moments = {n: [self.xp.zeros_like(w) for _ in "mv"] for n, w in (self.matrices | self.norms).items()}

    @property
    def weights(self) -> Weights:
        """The matrices in the compute element."""
        return self.copies or self.matrices

    def column(self, x: Any, name: str) -> Any:
        """x W of a matrix of which the ranks have columns."""
        return distributed.column_parallel_linear(x, self.weights[name].T, None, self.comm)

    def row(self, x: Any, name: str) -> Any:
        """x W of a matrix of which the ranks have rows."""
        return distributed.row_parallel_linear(x, self.weights[name].T, None, self.comm)

    def back(self, dy: Any, x: Any, name: str, grads: Weights) -> Any:
        """The gradient of x, and in grads the float32 one of the matrix."""
        rows = name.startswith(("out", "down"))
        backward = distributed.row_parallel_linear_backward if rows else distributed.column_parallel_linear_backward
        dx, dweight, _ = backward(dy, x, self.weights[name].T, None, self.comm, dweight_element="float32")
        grads[name] = dweight.T
        return dx

    def loss_and_gradients(self, tokens: Any, targets: Any) -> tuple[Any, Weights]:
        """The loss, and float32 gradients of this rank's weights."""
        p, shape, saved, grads = self.preset, tokens.shape, {}, {}
        embedded = distributed.vocab_parallel_embedding(tokens, self.weights["embedding"], self.comm)
        branch, stream = embedded.reshape((tokens.size, p.d)), None
        for i in range(p.layers):
            branch, stream = self._norm(f"attention{i}", branch, stream, saved)
            branch = self.row(self._attention(i, branch, shape, saved), f"out{i}")
            branch, stream = self._norm(f"mlp{i}", branch, stream, saved)
            gate, up = self.column(branch, f"gate{i}"), self.column(branch, f"up{i}")
            saved[f"gated{i}"] = (gate, up, bc.swiglu(gate, up))
            branch = self.row(saved[f"gated{i}"][2], f"down{i}")
        branch, _ = self._norm("final", branch, stream, saved)
        loss, dx, dhead = distributed.vocab_parallel_linear_cross_entropy(
            branch, self.weights["head"].T, targets.reshape(-1), comm=self.comm, return_dx=True, return_dweight=True
        )
        grads["head"] = bc.cast(dhead, "float32").T
        return loss, self._backward(tokens, dx, saved, grads)

    def _norm(self, name: str, branch: Any, stream: Any, saved: Weights) -> tuple[Any, Any]:
        given = {"eps": self.preset.eps, "return_rstd": True}
        if stream is None:
            (y, rstd), stream = bc.rms_norm(branch, self.norms[name], **given), branch
        else:
            y, stream, rstd = bc.rms_norm(branch, self.norms[name], stream, return_h=True, **given)
        saved[name] = (stream, rstd, y)
        return y, stream

    def _heads(self, x: Any, shape: tuple[int, int]) -> Any:
        """[tokens, this rank's features] as a view [batch, heads, context, head_dim]."""
        return x.reshape((*shape, -1, self.preset.head_dim)).transpose(0, 2, 1, 3)

    def _attention(self, i: int, x: Any, shape: tuple[int, int], saved: Weights) -> Any:
        q, k, v = (self._heads(self.column(x, f"{name}{i}"), shape) for name in "qkv")
        bc.rope(q, x2=k, out=(q, k))
        y = self.xp.empty((x.shape[0], q.shape[1] * q.shape[3]), x.dtype)
        lse = bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True, out={"y": self._heads(y, shape)})[1]
        saved[f"sdpa{i}"] = (q, k, v, y, lse)
        return y

    def _backward(self, tokens: Any, dx: Any, saved: Weights, grads: Weights) -> Weights:
        p, shape = self.preset, tokens.shape
        dstream = self._norm_back("final", dx, None, saved, grads)
        for i in reversed(range(p.layers)):
            gate, up, hidden = saved[f"gated{i}"]
            dgate, dup = bc.swiglu_backward(self.back(dstream, hidden, f"down{i}", grads), gate, up)
            x = saved[f"mlp{i}"][2]
            dx = bc.add(self.back(dgate, x, f"gate{i}", grads), self.back(dup, x, f"up{i}", grads))
            dstream = self._norm_back(f"mlp{i}", dx, dstream, saved, grads)
            q, k, v, y, lse = saved[f"sdpa{i}"]
            dy, x = self.back(dstream, y, f"out{i}", grads), saved[f"attention{i}"][2]
            flat = [self.xp.empty((dy.shape[0], one.shape[1] * p.head_dim), dy.dtype) for one in (q, k, v)]
            dq, dk, dv = (self._heads(one, shape) for one in flat)
            heads = self._heads(y, shape), lse, self._heads(dy, shape)
            bc.flash_sdpa_backward(q, k, v, *heads, is_causal=True, out=(dq, dk, dv))
            bc.rope_backward(dq, dy2=dk, out=(dq, dk))
            each = [self.back(one, x, f"{name}{i}", grads) for name, one in zip("qkv", flat, strict=True)]
            dx = bc.add(bc.add(each[0], each[1]), each[2])
            dstream = self._norm_back(f"attention{i}", dx, dstream, saved, grads)
        grads["embedding"] = distributed.vocab_parallel_embedding_backward(
            dstream.reshape((*shape, p.d)), tokens, self.weights["embedding"], self.comm, dweight_element="float32"
        )
        return grads

    def _norm_back(self, name: str, dy: Any, dstream: Any, saved: Weights, grads: Weights) -> Any:
        h, rstd, _ = saved[name]
        dx, grads[name] = bc.rms_norm_backward(dy, h, rstd, self.norms[name], dstream)
        return dx

    def step(self, tokens: Any, targets: Any, number: int, rate: float) -> Any:
        """A step of training; the loss."""
        loss, grads = self.loss_and_gradients(tokens, targets)
        adam(self, grads, number, rate)
        return loss


def adam(model: Any, grads: Weights, number: int, rate: float) -> None:
    """An AdamW step of a model's weights on this rank; only matrices decay. Norms of all gradients are not clipped."""
    for group, decay in ((model.matrices, 0.1), (model.norms, 0.0)):
        copies = [model.copies[n] for n in group] if model.copies and group is model.matrices else None
        states = [[model.moments[n][i] for n in group] for i in (0, 1)]
        bc.adam_step(
            list(group.values()), [grads[n] for n in group], *states, copies, lr=rate, step=number,
            weight_decay=decay, **ADAM,
        )  # fmt: skip


def of_micro_batches(model: Decoder, comm: Any, tokens: Any, targets: Any) -> tuple[Any, Weights]:
    """The mean of the loss and gradients of this rank's micro-batches."""
    each, total, names = MICRO_BATCHES // comm.size, distributed.TreeSum(), list[str]()
    size = tokens.shape[0] // MICRO_BATCHES
    for at in range(comm.rank * each, (comm.rank + 1) * each):
        rows = slice(at * size, (at + 1) * size)
        loss, grads = model.loss_and_gradients(tokens[rows], targets[rows])
        names = list(grads)
        total.add([loss, *grads.values()])
    loss, *found = (bc.mul(one, 1 / each) for one in total.result())
    return loss, dict(zip(names, found, strict=True))


def data_step(model: Decoder, comm: Any) -> Step:
    """Every rank has all weights and takes its part of the batch; gradients are averaged over the ranks."""

    def step(tokens: Any, targets: Any, number: int, rate: float) -> Any:
        loss, grads = of_micro_batches(model, comm, tokens, targets)
        distributed.all_reduce_gradients([loss, *grads.values()], comm)
        adam(model, grads, number, rate)
        return loss

    return step


def zero_step(model: Decoder, comm: Any) -> Step:
    """The same, but every rank keeps the moments, and makes the update, of its part of the weights alone (ZeRO-1)."""
    groups = [(list(model.matrices), 0.1), (list(model.norms), 0.0)]
    held = model.matrices | model.norms
    states = [
        [model.xp.zeros(distributed.zero_shard_size([held[n] for n in names], comm), np.float32) for _ in "mv"]
        for names, _ in groups
    ]
    model.moments.clear()

    def step(tokens: Any, targets: Any, number: int, rate: float) -> Any:
        loss, grads = of_micro_batches(model, comm, tokens, targets)
        loss = distributed.all_reduce(loss, comm, "mean")
        for (names, decay), moments in zip(groups, states, strict=True):
            params = [held[n] for n in names]
            distributed.distributed_adam_step(
                params, [grads[n] for n in names], *moments, comm, lr=rate, step=number, weight_decay=decay, **ADAM
            )
        if model.copies:
            for name, copy in model.copies.items():
                bc.cast(model.matrices[name], str(copy.dtype), out=copy)
        return loss

    return step


def stepper(mode: str, preset: Preset, xp: Any, comm: Any, seed: int) -> tuple[Any, Step]:
    """The model of this rank, and what takes a step of it."""
    whole = Decoder(preset, xp, seed)
    if mode == "tensor":
        model = SpreadDecoder(whole, comm)
        return model, model.step
    return whole, (data_step if mode == "data" else zero_step)(whole, comm)


def gathered(model: Any, comm: Any) -> Weights:
    """All weights, whole, on every rank."""
    found: Weights = dict(model.norms)
    for name, w in model.matrices.items():
        rows = name == "embedding" or name.startswith(("out", "down"))
        spread = isinstance(model, SpreadDecoder)
        found[name] = distributed.all_gather(w, comm, axis=0 if rows else 1) if spread else w
    return found
