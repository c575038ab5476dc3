// rms_norm    h = x + residual;  y = h * rstd * weight;  rstd = 1 / sqrt(mean(h^2) + eps)
//
// Rows of up to 64 KB stay in registers, of a part of a warp, a warp or a block; longer ones are read twice. The
// schedule, and what fixes the order of the sums, is in forward.cuh.
#include "forward.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int ADD, bool WIDE, class P>
BARACUDA_D void rms_norm_row(const P& p) {
  norm::row<T, W, THREADS, LANES, CHUNKS, ROWS, ADD, false, WIDE>(p);
}

template <class T, class W, int THREADS, int ADD, bool WIDE, class P> BARACUDA_D void rms_norm_loop(const P& p) {
  norm::loop<T, W, THREADS, ADD, false, WIDE>(p);
}

}  // namespace baracuda
