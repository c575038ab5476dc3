"""PyTorch's names and spellings for this package's functions: `baracuda_py.nn.functional`."""

from . import functional as functional
