"""Paddings, with torch.nn's keywords."""

from __future__ import annotations

from typing import Any, ClassVar

from ...nn import functional
from ..untyped import torch


class _Pad:
    """The last axes of x by the numbers of `padding`, those of the last axis first; negative ones cut."""

    _mode: ClassVar[str]

    def forward(self: Any, input: Any) -> Any:
        """y, of x's dtype."""
        return functional.pad(input, self.padding, self._mode, getattr(self, "value", 0))


class CircularPad1d(_Pad, torch.nn.CircularPad1d):  # type: ignore[misc]
    """torch.nn.CircularPad1d: x goes on at its other end, of x (…, length)."""

    _mode = "circular"


class CircularPad2d(_Pad, torch.nn.CircularPad2d):  # type: ignore[misc]
    """torch.nn.CircularPad2d: x goes on at its other end, of x (…, height, width)."""

    _mode = "circular"


class CircularPad3d(_Pad, torch.nn.CircularPad3d):  # type: ignore[misc]
    """torch.nn.CircularPad3d: x goes on at its other end, of x (…, depth, height, width)."""

    _mode = "circular"


class ConstantPad1d(_Pad, torch.nn.ConstantPad1d):  # type: ignore[misc]
    """torch.nn.ConstantPad1d: `value` around x, of x (…, length)."""

    _mode = "constant"


class ConstantPad2d(_Pad, torch.nn.ConstantPad2d):  # type: ignore[misc]
    """torch.nn.ConstantPad2d: `value` around x, of x (…, height, width)."""

    _mode = "constant"


class ConstantPad3d(_Pad, torch.nn.ConstantPad3d):  # type: ignore[misc]
    """torch.nn.ConstantPad3d: `value` around x, of x (…, depth, height, width)."""

    _mode = "constant"


class ReflectionPad1d(_Pad, torch.nn.ReflectionPad1d):  # type: ignore[misc]
    """torch.nn.ReflectionPad1d: x is mirrored at its border elements, of x (…, length)."""

    _mode = "reflect"


class ReflectionPad2d(_Pad, torch.nn.ReflectionPad2d):  # type: ignore[misc]
    """torch.nn.ReflectionPad2d: x is mirrored at its border elements, of x (…, height, width)."""

    _mode = "reflect"


class ReflectionPad3d(_Pad, torch.nn.ReflectionPad3d):  # type: ignore[misc]
    """torch.nn.ReflectionPad3d: x is mirrored at its border elements, of x (…, depth, height, width)."""

    _mode = "reflect"


class ReplicationPad1d(_Pad, torch.nn.ReplicationPad1d):  # type: ignore[misc]
    """torch.nn.ReplicationPad1d: the border elements of x go on, of x (…, length)."""

    _mode = "replicate"


class ReplicationPad2d(_Pad, torch.nn.ReplicationPad2d):  # type: ignore[misc]
    """torch.nn.ReplicationPad2d: the border elements of x go on, of x (…, height, width)."""

    _mode = "replicate"


class ReplicationPad3d(_Pad, torch.nn.ReplicationPad3d):  # type: ignore[misc]
    """torch.nn.ReplicationPad3d: the border elements of x go on, of x (…, depth, height, width)."""

    _mode = "replicate"


class ZeroPad1d(_Pad, torch.nn.ZeroPad1d):  # type: ignore[misc]
    """torch.nn.ZeroPad1d: zeros around x, of x (…, length)."""

    _mode = "constant"


class ZeroPad2d(_Pad, torch.nn.ZeroPad2d):  # type: ignore[misc]
    """torch.nn.ZeroPad2d: zeros around x, of x (…, height, width)."""

    _mode = "constant"


class ZeroPad3d(_Pad, torch.nn.ZeroPad3d):  # type: ignore[misc]
    """torch.nn.ZeroPad3d: zeros around x, of x (…, depth, height, width)."""

    _mode = "constant"
