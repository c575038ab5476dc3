"""Dropouts, with torch.nn's keywords: their draws are Philox's, and torch's generator gives the seeds.

inplace=True writes into x where no gradient is recorded; where one is, the result is a new tensor.
"""

from __future__ import annotations

from typing import ClassVar

from ..untyped import torch
from .activations import Activation


class _Dropout(Activation):
    """A dropout of probability p, in training."""

    _function: ClassVar[str]
    _settings = ("p", "training")


class Dropout(_Dropout, torch.nn.Dropout):  # type: ignore[misc]
    """torch.nn.Dropout: each element."""

    _function = "dropout"


class Dropout1d(_Dropout, torch.nn.Dropout1d):  # type: ignore[misc]
    """torch.nn.Dropout1d: whole channels of x (batch, channels, length), or without batch."""

    _function = "dropout1d"


class Dropout2d(_Dropout, torch.nn.Dropout2d):  # type: ignore[misc]
    """torch.nn.Dropout2d: whole channels of x (batch, channels, height, width)."""

    _function = "dropout2d"


class Dropout3d(_Dropout, torch.nn.Dropout3d):  # type: ignore[misc]
    """torch.nn.Dropout3d: whole channels of x (batch, channels, depth, height, width), or without batch."""

    _function = "dropout3d"


class AlphaDropout(_Dropout, torch.nn.AlphaDropout):  # type: ignore[misc]
    """torch.nn.AlphaDropout: each element, to the value at which SELU saturates; mean and variance stay."""

    _function = "alpha_dropout"


class FeatureAlphaDropout(_Dropout, torch.nn.FeatureAlphaDropout):  # type: ignore[misc]
    """torch.nn.FeatureAlphaDropout: AlphaDropout of whole channels."""

    _function = "feature_alpha_dropout"
