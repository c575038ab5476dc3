#pragma once
// tensor_map   what the host tells TMA of an array (core/tensor_map.py), encoded by the driver: a kernel
// parameter that only the instructions of tma.cuh read.

namespace baracuda {

struct alignas(64) TensorMap {
  unsigned char encoded[128];
};

}  // namespace baracuda
