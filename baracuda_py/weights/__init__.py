"""Readers of stored weights: safetensors, whole or in shards, and GGUF.

    import baracuda_py as bc
    weights = bc.weights.read_safetensors("model.safetensors", place=cupy.asarray)
    stored = bc.weights.read_gguf("model.gguf", "blk.0.*")["blk.0.attn_q.weight"]
    y = bc.quantized_matmul(x, stored.data, kind=stored.kind)

They stand on the packages safetensors and gguf: `pip install "baracuda_py[weights]"`.
"""

from .files import WeightsFileError as WeightsFileError
from .gguf_files import StoredTensor as StoredTensor
from .gguf_files import read_gguf as read_gguf
from .safetensors_files import read_safetensors as read_safetensors
