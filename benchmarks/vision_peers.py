"""torchvision as a peer, where it is installed: `VISION[op](desc, s)` gives calls by name, as `LIBRARIES` does."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Peers = dict[str, Callable[[], Any]]


def _ops() -> Any:
    try:
        return importlib.import_module("torchvision.ops")
    except (ImportError, RuntimeError):  # or is built for another torch
        return None


def nms(desc: Any, s: Any) -> Peers:
    """torchvision sorts the scores itself, and walks through the pairs on the host."""
    ops = _ops()
    if ops is None:
        return {}
    scores = torch.empty(desc.boxes_count, device=s["boxes"].device)
    scores[s["order"]] = torch.linspace(1, 0, desc.boxes_count, device=scores.device)
    return {"torchvision": lambda: ops.nms(s["boxes"], scores, s["iou_threshold"])}


def _pooling(ops: Any, name: str, desc: Any) -> Callable[[Any, Any], Any]:
    """A function of x and rois."""
    facts: dict[str, Any] = {"output_size": tuple(desc.output_size), "spatial_scale": desc.spatial_scale}
    if name == "roi_align":
        facts["sampling_ratio"] = desc.sampling_ratio or -1
        if desc.position_sensitive:
            name = "ps_roi_align"
        else:
            facts["aligned"] = desc.aligned
    function = getattr(ops, name)
    return lambda x, rois: function(x, rois, **facts)


def _forward(name: str) -> Callable[[Any, Any], Peers]:
    def peer(desc: Any, s: Any) -> Peers:
        ops = _ops()
        if ops is None:
            return {}
        pooled = _pooling(ops, name, desc)
        return {"torchvision": lambda: pooled(s["x"], s["rois"])}

    return peer


def _backward(name: str) -> Callable[[Any, Any], Peers]:
    """The backward pass alone: its graph is built here."""

    def peer(desc: Any, s: Any) -> Peers:
        ops = _ops()
        if ops is None:
            return {}
        x = torch.randn_like(s["dx"]).requires_grad_()
        y = _pooling(ops, name, desc)(x, s["rois"])
        return {"torchvision": lambda: torch.autograd.grad(y, x, s["dy"], retain_graph=True)}

    return peer


VISION: dict[str, Callable[[Any, Any], Peers]] = {
    "image.nms": nms,
    **{f"image.{name}": _forward(name) for name in ("roi_align", "roi_pool", "ps_roi_pool")},
    **{f"image.{name}_backward": _backward(name) for name in ("roi_align", "roi_pool", "ps_roi_pool")},
}
