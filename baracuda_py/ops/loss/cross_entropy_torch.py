"""cross_entropy in torch, with what it makes besides the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_torch(torch: Any, desc: Any, *, logits: Any, targets: Any, weight: Any, wanted: set[str]) -> Mapping[str, Any]:
    """torch's cross_entropy, in float32 at least, and its autograd; the statistics by their formulas."""
    wide, t = torch.promote_types(logits.dtype, torch.float32), targets.reshape(-1).long()
    differentiated, mean = "dlogits" in wanted, desc.reduction == "mean"
    if differentiated or "total_weight" in wanted:
        counted = t != desc.ignore_index
        own = (
            counted.to(wide) if weight is None else torch.where(counted, weight.to(wide)[torch.where(counted, t, 0)], 0)
        )
        total = own.sum()
    with torch.set_grad_enabled(differentiated or torch.is_grad_enabled()):
        leaf = logits.detach().requires_grad_() if differentiated else logits
        loss = torch.nn.functional.cross_entropy(
            leaf.to(wide).reshape(-1, desc.num_classes), t, weight, ignore_index=desc.ignore_index,
            label_smoothing=desc.label_smoothing, reduction="sum" if differentiated and mean else desc.reduction,
        )  # fmt: skip
    made = {"loss": loss.reshape(desc.loss_shape)}
    if differentiated:
        scale = torch.where(total > 0, 1 / total, 0) if mean else torch.ones_like(loss)  # of no rows it is 0
        made["dlogits"] = torch.autograd.grad(loss, leaf, scale)[0]
        made["loss"] = made["loss"].detach() / total if mean else made["loss"].detach()
    if "lse" in wanted:
        made["lse"] = torch.logsumexp(logits.to(wide), -1)
    if "stats" in wanted:
        top = logits.amax(-1, keepdim=True).to(wide)
        made["stats"] = torch.cat([top, (logits.to(wide) - top).exp().sum(-1, keepdim=True)], -1)
    if "total_weight" in wanted:
        made["total_weight"] = total
    return made
