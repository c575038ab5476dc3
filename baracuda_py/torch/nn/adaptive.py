"""The adaptive softmax of many classes, with torch.nn's keywords and parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import baracuda_py.torch as bct

from ...core.errors import InvalidProblemError
from ..untyped import torch


class AdaptiveLogSoftmax(NamedTuple):
    """What the module returns: the log-probability of each target, and the mean of their negatives."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(torch.nn.AdaptiveLogSoftmaxWithLoss):  # type: ignore[misc]
    """torch.nn.AdaptiveLogSoftmaxWithLoss (Grave et al. 2017): frequent classes in the head, rare ones in clusters.

    No row is read back to the host, so a target that is no class is no error: its output is 0.
    """

    def forward(self, input_: Any, target_: Any) -> AdaptiveLogSoftmax:
        """(output, loss) of x [batch, in_features] and targets [batch], or of one row; both float32 at least."""
        if tuple(target_.shape) != tuple(input_.shape[:-1]) or input_.ndim not in (1, 2):
            raise InvalidProblemError(
                f"target must have one class for each row of x {tuple(input_.shape)}, got {tuple(target_.shape)}"
            )
        one = input_.ndim == 1
        x, target = (input_[None], target_[None]) if one else (input_, target_)
        tails = [(down.weight, up.weight) for down, up in self.tail]
        output, loss = bct.adaptive_log_softmax_with_loss(x, target, self.head.weight, tails, self.head.bias)
        return AdaptiveLogSoftmax(output[0] if one else output, loss)

    def log_prob(self, input: Any) -> Any:
        """The log-probabilities [batch, n_classes] of x [batch, in_features]."""
        head = bct.log_softmax(bct.linear(input, self.head.weight, self.head.bias), 1)
        parts = [head[:, : self.shortlist_size]]
        for k, (down, up) in enumerate(self.tail):
            local = bct.log_softmax(bct.linear(bct.linear(input, down.weight), up.weight), 1)
            at = self.shortlist_size + k
            parts.append(bct.add(local, head[:, at : at + 1]))
        return bct.concat(parts, axis=1)

    def predict(self, input: Any) -> Any:
        """The class [batch], int64, of the highest probability for each row of x [batch, in_features]."""
        return bct.argmax(self.log_prob(input), axis=1)
