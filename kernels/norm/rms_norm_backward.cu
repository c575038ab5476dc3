// rms_norm_backward    dx = rstd * (g - xhat * mean(g * xhat)) + dh,  dweight = sum over rows of dy * xhat;
// xhat = x * rstd, g = dy * weight
//
// One pass of blocks that stay over dy and x (`pipe`), which leaves a partial dweight a block, and `combine`. Rows that
// no ring in shared memory holds: sums by columns, then dx row by row. See backward.cuh.
#include "backward.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int STAGES, bool WIDE, class P>
BARACUDA_D void rms_norm_backward_pipe(const P& p) {
  norm::pipe<T, W, THREADS, LANES, CHUNKS, ROWS, STAGES, false, WIDE>(p);
}

template <class T, class W, int THREADS, bool WIDE, class P> BARACUDA_D void rms_norm_backward_loop(const P& p) {
  norm::loop<T, W, THREADS, false, WIDE>(p);
}

template <class T, int THREADS, bool WIDE, class P> BARACUDA_D void rms_norm_backward_columns(const P& p) {
  norm::columns<T, THREADS, false, WIDE>(p);
}

template <class T, class W, int THREADS, class P> BARACUDA_D void rms_norm_backward_combine(const P& p) {
  norm::combine<T, W, THREADS, false>(p);
}

}  // namespace baracuda
