"""ONNX operators of rows and channels: the softmax family, norms and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from .onnx_node import Node, need


def _hardmax(n: Node) -> Any:
    axis, x = n.get("axis", -1) % n[0].ndim, n[0]
    places = n.xp.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return bc.cast(bc.equal(bc.argmax(x, axis=axis, keepdims=True), places), x.dtype)


def _layer_norm(n: Node) -> Any:
    axis, rank = n.get("axis", -1) % n[0].ndim, n[0].ndim
    facts = {"normalized_shape": n[0].shape[axis:], "eps": n.get("epsilon", 1e-5)}
    y, mean, rstd = bc.layer_norm(n[0], n[1], n[2], **facts, return_mean=True, return_rstd=True)
    kept = (*n[0].shape[:axis], *(1,) * (rank - axis))
    return [y, mean.reshape(kept), rstd.reshape(kept)][: n.outputs]


def _rms_norm(n: Node) -> Any:
    axis = n.get("axis", -1) % n[0].ndim
    return bc.rms_norm(n[0], n[1], normalized_shape=n[0].shape[axis:], eps=n.get("epsilon", 1e-5))


def _batch_norm(n: Node) -> Any:
    x, weight, bias, mean, var = n.inputs
    eps, momentum = n.get("epsilon", 1e-5), n.get("momentum", 0.9)
    if not n.get("training_mode", 0):
        return bc.batch_norm(x, mean, var, weight, bias, eps=eps)
    y, own_mean, own_var = bc.channel_norm(x, weight, bias, eps=eps, return_mean=True, return_var=True)
    return [y, bc.lerp(own_mean, mean, momentum), bc.lerp(own_var, var, momentum)]  # ONNX's variance is the biased one


def _group_norm(n: Node) -> Any:
    return bc.group_norm(n[0], n.get("num_groups"), n[1], n[2], eps=n.get("epsilon", 1e-5))


def _instance_norm(n: Node) -> Any:
    return bc.instance_norm(n[0], weight=n[1], bias=n[2], eps=n.get("epsilon", 1e-5))


def _local_response_norm(n: Node) -> Any:
    size = n.get("size")
    need(size % 2 == 1, "an even window has its longer side behind, local_response_norm's before")
    return bc.local_response_norm(n[0], size, n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0))


def _standardize(n: Node) -> Any:
    return bc.standardize(n[0], n.axes() or (0, 2, 3), eps=1e-18)  # ONNX adds 1e-9 to the root


def _negative_log_likelihood(n: Node) -> Any:
    return bc.nll_loss(n[0], n[1], n[2], reduction=n.get("reduction", "mean"), ignore_index=n.get("ignore_index", -100))


def _cross_entropy(n: Node) -> Any:
    logits = n.xp.moveaxis(n[0], 1, -1)
    facts = {"reduction": n.get("reduction", "mean"), "ignore_index": n.get("ignore_index", -100)}
    loss = bc.cross_entropy(logits, n[1], n[2], **facts)
    return [loss, bc.log_softmax(n[0], axis=1)][: n.outputs]


ROWS: dict[str, Callable[[Node], Any]] = {
    "BatchNormalization": _batch_norm, "GroupNormalization": _group_norm, "Hardmax": _hardmax,
    "InstanceNormalization": _instance_norm, "LRN": _local_response_norm, "LayerNormalization": _layer_norm,
    "LogSoftmax": lambda n: bc.log_softmax(n[0], axis=n.get("axis", -1)),
    "LpNormalization": lambda n: bc.normalize(n[0], p=n.get("p", 2), axis=n.get("axis", -1)),
    "MeanVarianceNormalization": _standardize, "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "RMSNormalization": _rms_norm, "Softmax": lambda n: bc.softmax(n[0], axis=n.get("axis", -1)),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}  # fmt: skip
