"""torch.optim by this package's update rules: the same classes, keywords and states, a launch for a group's tensors.

What torch itself does as well stands here under its name: `Optimizer`, the schedulers and `swa_utils`.
"""

from __future__ import annotations

from ..untyped import torch
from .adamw import AdamW
from .averages import get_ema_multi_avg_fn, get_swa_multi_avg_fn
from .by_rule import ByRule
from .eight_bits import Adam8bit, AdamW8bit, Lion8bit, SGD8bit
from .estimates import CAME, Prodigy
from .factored import Adafactor
from .galore import GaLore
from .matrices import Muon
from .others import LAMB, LARS, Adan, Lion
from .preconditioned import SOAP, Shampoo
from .recent import AdamWScheduleFree, AdEMAMix, Sophia
from .rules import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, NAdam, RAdam, RMSprop, Rprop
from .second_order import LBFGS, SparseAdam
from .zero import ZeroOptimizer

Optimizer = torch.optim.Optimizer
lr_scheduler = torch.optim.lr_scheduler
swa_utils = torch.optim.swa_utils

__all__ = [
    "ASGD",
    "CAME",
    "LAMB",
    "LARS",
    "LBFGS",
    "SGD",
    "SOAP",
    "AdEMAMix",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "Adam8bit",
    "AdamW",
    "AdamW8bit",
    "AdamWScheduleFree",
    "Adamax",
    "Adan",
    "ByRule",
    "GaLore",
    "Lion",
    "Lion8bit",
    "Muon",
    "NAdam",
    "Optimizer",
    "Prodigy",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD8bit",
    "Shampoo",
    "Sophia",
    "SparseAdam",
    "ZeroOptimizer",
    "get_ema_multi_avg_fn",
    "get_swa_multi_avg_fn",
    "lr_scheduler",
    "swa_utils",
]
