// rms_norm_backward    dx = rstd * (g - xhat * mean(g * xhat)) + dh,  dweight = sum over rows of dy * xhat;
// xhat = x * rstd, g = dy * weight
//
// Persistent blocks pass once over dy and x (`pipe`) and leave partial sums of dweight, which `combine` adds. Rows too
// long for a ring in shared memory take two kernels: sums by columns, then dx row by row. See backward.cuh.
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
