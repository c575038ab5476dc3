// layer_norm  h = x + residual;  y = (h - mean) * rstd * weight + bias;  rstd = 1 / sqrt(var(h) + eps)
//
// Rows of up to 64 KB stay in registers, of a part of a warp, a warp or a block; many long ones stream through a ring
// in shared memory; longer ones are read twice. The schedule, and what fixes the order of the sums, is in forward.cuh.
#include "forward.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int ADD, bool WIDE, class P>
BARACUDA_D void layer_norm_row(const P& p) {
  norm::row<T, W, THREADS, LANES, CHUNKS, ROWS, ADD, true, WIDE>(p);
}

template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int STAGES, class P>
BARACUDA_D void layer_norm_stream(const P& p) {
  norm::stream<T, W, THREADS, LANES, CHUNKS, ROWS, STAGES, true>(p);
}

template <class T, class W, int THREADS, int ADD, bool WIDE, class P> BARACUDA_D void layer_norm_loop(const P& p) {
  norm::loop<T, W, THREADS, ADD, true, WIDE>(p);
}

}  // namespace baracuda
