"""torchvision, CuPy and cuCIM as peers, where installed: `VISION[op](desc, s)` gives calls by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Peers = dict[str, Callable[[], Any]]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError):  # or is built for another torch
        return None


def _ops() -> Any:
    return _module("torchvision.ops")


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


def _samples(desc: Any, s: Any) -> list[Any]:
    """CuPy's views of images or volumes: its functions, and cuCIM's, take one at a time."""
    return [importlib.import_module("cupy").asarray(one) for one in s["x"].reshape(-1, *desc.space)]


def components(desc: Any, s: Any) -> Peers:
    """What numbers parts compactly, and counts them on the host."""
    samples, found = _samples(desc, s), {}
    if (ndimage := _module("cupyx.scipy.ndimage")) is not None:
        structure = ndimage.generate_binary_structure(desc.rank, desc.hops)
        found["cupyx"] = lambda: [ndimage.label(one, structure) for one in samples]
    if (measure := _module("cucim.skimage.measure")) is not None:
        found["cuCIM"] = lambda: [measure.label(one, connectivity=desc.hops) for one in samples]
    return found


def distances(desc: Any, s: Any) -> Peers:
    """The parallel banding algorithm of CuPy, which was cuCIM's."""
    ndimage, samples = _module("cupyx.scipy.ndimage"), _samples(desc, s)
    if desc.metric != "euclidean" or not hasattr(ndimage, "distance_transform_edt"):
        return {}
    return {"cupyx": lambda: [ndimage.distance_transform_edt(one, desc.spacing) for one in samples]}


VISION: dict[str, Callable[[Any, Any], Peers]] = {
    "image.nms": nms,
    "image.connected_components": components,
    "image.distance_transform": distances,
    **{f"image.{name}": _forward(name) for name in ("roi_align", "roi_pool", "ps_roi_pool")},
    **{f"image.{name}_backward": _backward(name) for name in ("roi_align", "roi_pool", "ps_roi_pool")},
}
