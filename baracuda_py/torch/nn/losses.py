"""The losses of torch.nn, with its parameters, over the functional layer: reduced ones are in float32 at least."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.errors import InvalidProblemError
from ..untyped import torch


class MSELoss(torch.nn.MSELoss):  # type: ignore[misc]
    """torch.nn.MSELoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of input and target, which broadcast."""
        return bct.mse_loss(input, target, reduction=self.reduction)


class L1Loss(torch.nn.L1Loss):  # type: ignore[misc]
    """torch.nn.L1Loss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of input and target, which broadcast."""
        return bct.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(torch.nn.SmoothL1Loss):  # type: ignore[misc]
    """torch.nn.SmoothL1Loss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of input and target, which broadcast."""
        return bct.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(torch.nn.HuberLoss):  # type: ignore[misc]
    """torch.nn.HuberLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of input and target, which broadcast."""
        return bct.huber_loss(input, target, delta=self.delta, reduction=self.reduction)


def _same_shape(module: Any, input: Any, target: Any) -> None:
    """Refuses what would broadcast, [N, 1] with [N] to [N, N], as torch's own modules do."""
    if input.shape != target.shape:
        name = type(module).__name__
        raise InvalidProblemError(f"{name}: target must have shape {tuple(input.shape)}, got {tuple(target.shape)}")


class BCELoss(torch.nn.BCELoss):  # type: ignore[misc]
    """torch.nn.BCELoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of probabilities and targets of their shape."""
        _same_shape(self, input, target)
        return bct.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(torch.nn.BCEWithLogitsLoss):  # type: ignore[misc]
    """torch.nn.BCEWithLogitsLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logits and targets of their shape."""
        _same_shape(self, input, target)
        return bct.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(torch.nn.KLDivLoss):  # type: ignore[misc]
    """torch.nn.KLDivLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The divergence of the target from the input, of which that is the logarithm."""
        return bct.kl_div_loss(input, target, log_target=self.log_target, reduction=self.reduction)


class PoissonNLLLoss(torch.nn.PoissonNLLLoss):  # type: ignore[misc]
    """torch.nn.PoissonNLLLoss."""

    def forward(self, log_input: Any, target: Any) -> Any:
        """The loss of counts."""
        return bct.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(torch.nn.GaussianNLLLoss):  # type: ignore[misc]
    """torch.nn.GaussianNLLLoss."""

    def forward(self, input: Any, target: Any, var: Any) -> Any:
        """The loss of means and variances."""
        return bct.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class HingeEmbeddingLoss(torch.nn.HingeEmbeddingLoss):  # type: ignore[misc]
    """torch.nn.HingeEmbeddingLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of distances; targets are 1 or -1."""
        return bct.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(torch.nn.SoftMarginLoss):  # type: ignore[misc]
    """torch.nn.SoftMarginLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of scores; targets are 1 or -1."""
        return bct.soft_margin_loss(input, target, reduction=self.reduction)


class MarginRankingLoss(torch.nn.MarginRankingLoss):  # type: ignore[misc]
    """torch.nn.MarginRankingLoss."""

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """The loss of two scores; the target is 1 where the first should be larger, else -1."""
        return bct.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class NLLLoss(torch.nn.NLLLoss):  # type: ignore[misc]
    """torch.nn.NLLLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of log-probabilities [N, C, d1, …] and classes [N, d1, …]."""
        return bct.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )  # fmt: skip


class MultiMarginLoss(torch.nn.MultiMarginLoss):  # type: ignore[misc]
    """torch.nn.MultiMarginLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of scores [N, C] and classes [N]."""
        return bct.multi_margin_loss(
            input, target, self.weight, p=self.p, margin=self.margin, reduction=self.reduction
        )  # fmt: skip


class MultiLabelMarginLoss(torch.nn.MultiLabelMarginLoss):  # type: ignore[misc]
    """torch.nn.MultiLabelMarginLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of scores [N, C] and labels [N, C], which end before the first -1."""
        return bct.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(torch.nn.MultiLabelSoftMarginLoss):  # type: ignore[misc]
    """torch.nn.MultiLabelSoftMarginLoss."""

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of logits [N, C] and targets in [0, 1]."""
        return bct.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class CosineEmbeddingLoss(torch.nn.CosineEmbeddingLoss):  # type: ignore[misc]
    """torch.nn.CosineEmbeddingLoss."""

    def forward(self, input1: Any, input2: Any, target: Any) -> Any:
        """The loss of two embeddings; the target is 1 where they should be alike, else -1."""
        return bct.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(torch.nn.TripletMarginLoss):  # type: ignore[misc]
    """torch.nn.TripletMarginLoss."""

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """The loss of three embeddings."""
        return bct.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(torch.nn.TripletMarginWithDistanceLoss):  # type: ignore[misc]
    """torch.nn.TripletMarginWithDistanceLoss."""

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """The loss of three embeddings."""
        return bct.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class CTCLoss(torch.nn.CTCLoss):  # type: ignore[misc]
    """torch.nn.CTCLoss."""

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """The loss of log-probabilities [steps, batch, classes]; lengths are tensors where those are."""
        return bct.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, blank=self.blank, reduction=self.reduction,
            zero_infinity=self.zero_infinity,
        )  # fmt: skip
