"""Public names of PyTorch, JAX, NumPy and SciPy that this package has not, why, and what to call instead.

`AbsentName` quotes a name's row, and docs/not-offered.md has them all. In `instead`, what stands between backticks is
here, unless it begins with another package's name.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Whose name it is, why it is not offered, and what to call instead, where {0} stands for the name."""

    source: str
    reason: str
    instead: str

    def words(self, name: str) -> str:
        """The row as an error quotes it."""
        return f"it is of {self.source} and not offered, as {self.reason}: {self.instead.format(name)}"


def _rows(source: str, names: str, reason: str, instead: str) -> dict[str, Row]:
    """One row of several names."""
    return dict.fromkeys(names.split(), Row(source, reason, instead))


_SPARSE = "functions of sparse matrices have a module of their own"
_NESTED = "rows of different lengths have a module of their own"
_HOST = "arrays are made by their own package and taken as they are"
_DESIGN = "the design of a filter is a few numbers, which the host makes once"
_RANKS = "collectives of several ranks have a module of their own"
_MESH = "axes of a mesh are JAX's, whose programs run on all its devices"
_LOOP = "a loop over calls is Python's, and a trace of it that of the framework that traces"
_TRANSFORM = "programs are transformed by the framework whose arrays come in"
_REAL_ORDER = "Bessel functions are offered where their order is 0 or 1, as in PyTorch and JAX"

NOT_OFFERED: dict[str, Row] = {
    # torch
    **_rows("torch", "dsmm hsmm hspmm saddmm smm sspaddmm", _SPARSE, "call `sparse.{0}`"),
    **_rows("torch.sparse", "spdiags spsolve to_sparse_semi_structured", _SPARSE, "call `sparse.{0}`"),
    "spmm": Row("torch", _SPARSE, "call `sparse.spmm`"),
    **_rows(
        "torch", "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_compressed_tensor",
        "sparse matrices are arrays of values and indices, which a module of their own puts together",
        "call `sparse.{0}`",
    ),
    "sparse_bsc_tensor": Row(
        "torch", "blocks by columns have no product here, as in cuSPARSE", "give the transpose as `sparse.BSR`"
    ),
    "as_sparse_gradcheck": Row(
        "torch.sparse", "gradients are those of the arrays that a sparse matrix holds",
        "call `torch.autograd.gradcheck` on a function of the values of a `sparse.CSR`",
    ),
    **_rows("torch.nested", "nested_tensor as_nested_tensor nested_tensor_from_jagged to_padded_tensor", _NESTED,
            "call `nested.{0}`"),
    "slice_inverse": Row(
        "torch", "it undoes a view within torch's own traces, which hold no views of ours", "call `slice_scatter`"
    ),
    **_rows(
        "torch.nn", "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer",
        "it is a model made of modules and no op", "call `multi_head_attention_forward`, `layer_norm` and `linear`, or "
        "patch the model with `baracuda_py.torch.patch.patch`",
    ),
    **_rows("torch", "manual_seed initial_seed seed", "nothing draws from a state that is shared",
            "give seed= and offset= to the function that draws, as `rand`"),
    **_rows("torch", "tensor as_tensor from_numpy frombuffer", _HOST, "call `numpy.asarray`, `cupy.asarray` or "
            "`torch.as_tensor`"),
    **_rows("numpy", "array asarray fromiter", _HOST, "call `numpy.asarray`, `cupy.asarray` or `jax.numpy.asarray`"),
    "from_dlpack": Row("numpy", "every function takes arrays that speak DLPack", "give the array itself"),
    **_rows("torch", "save load", "files of weights have a module of their own",
            "call `weights.read_safetensors` or the framework's own"),
    # transformations and loops
    **_rows("jax", "grad vjp jvp pmap", _TRANSFORM, "call `jax.{0}` on functions of `jax`, or use torch's autograd"),
    "vmap": Row("jax", _TRANSFORM, "call `jax.vmap` or `torch.vmap`; most functions take a batch as they are"),
    **_rows("jax.lax", "while_loop fori_loop switch custom_root custom_linear_solve", _LOOP,
            "call `jax.lax.{0}` with functions of `jax` inside"),
    **_rows("jax.lax", "psum pmax pmin pmean", _RANKS,
            "call `distributed.all_reduce` outside programs of JAX, `jax.lax.{0}` inside"),
    "psum_scatter": Row(
        "jax.lax", _RANKS, "call `distributed.reduce_scatter`, or `jax.lax.psum_scatter` in `jax.shard_map`"
    ),
    **_rows("jax.lax", "all_gather all_to_all", _RANKS, "call `distributed.{0}`, or `jax.lax.{0}` in `jax.shard_map`"),
    "ragged_all_to_all": Row("jax.lax", _RANKS, "call `distributed.all_to_all_v`"),
    **_rows("jax.lax", "ppermute pshuffle", _RANKS, "call `distributed.permute`, or `jax.lax.{0}` in `jax.shard_map`"),
    "pswapaxes": Row("jax.lax", _RANKS, "call `distributed.all_to_all`, or `jax.lax.pswapaxes` in `jax.shard_map`"),
    "axis_index": Row("jax.lax", _MESH, "read the rank of a `distributed.Communicator`, or call `jax.lax.axis_index`"),
    **_rows("torch.distributed", "all_reduce reduce_scatter barrier", _RANKS, "call `distributed.{0}`"),
    "all_gather_into_tensor": Row("torch.distributed", _RANKS, "call `distributed.all_gather`"),
    "reduce_scatter_tensor": Row("torch.distributed", _RANKS, "call `distributed.reduce_scatter`"),
    "all_to_all_single": Row(
        "torch.distributed", _RANKS, "call `distributed.all_to_all` or `distributed.all_to_all_v`"
    ),
    "batch_isend_irecv": Row("torch.distributed", _RANKS, "call `distributed.send_receive` or `distributed.permute`"),
    "init_process_group": Row("torch.distributed", _RANKS, "call `distributed.communicator`"),
    "stop_gradient": Row("jax.lax", _TRANSFORM, "call `jax.lax.stop_gradient` or a tensor's `torch.Tensor.detach`"),
    "psend": Row("jax.lax", _RANKS, "call `distributed.send`, or `jax.lax.psend` in `jax.shard_map`"),
    "precv": Row("jax.lax", _RANKS, "call `distributed.receive`, or `jax.lax.precv` in `jax.shard_map`"),
    "ragged_dot_general": Row(
        "jax.lax", "its modes have names of their own",
        "call `ragged_dot` for rows in groups, `grouped_inner_gemm` for terms in groups, `matmul` for a batch",
    ),
    # signals
    "ntt": Row(
        "computer algebra", "PyTorch, JAX, NumPy and SciPy have no number theoretic transform",
        "products of n terms modulo p are exact by `convolve` of int64 where n p² is below 2⁶³",
    ),
    **_rows("scipy.signal", "butter cheby1 cheby2 ellip bessel iirfilter iirdesign firwin firwin2 firls remez", _DESIGN,
            "call `scipy.signal.{0}` and give its coefficients to `lfilter` or, as sections, to `sosfilt`"),
    **_rows("scipy.signal", "find_peaks argrelextrema", "how many there are is known on the device alone",
            "compare with neighbours in a formula and call `nonzero_static`"),
    "lombscargle": Row("scipy.signal", "times that are not even have no fast transform here",
                       "call `einsum` with the cosines of a formula"),
    # linear algebra
    **_rows("scipy.linalg", "cosm sinm tanm coshm sinhm tanhm", "it is a function of eigenvalues like any other",
            "call `funm` with the elementwise function"),
    **_rows("scipy.linalg", "qz ordqz", "no library on a device has the generalised Schur form",
            "call `eig` of `solve(b, a)`, or `scipy.linalg.{0}`"),
    **_rows("scipy.linalg", "solve_lyapunov solve_continuous_lyapunov",
            "it is Sylvester's equation with the same matrix on both sides", "call `solve_sylvester` with a and aᴴ"),
    "ldl": Row("scipy.linalg", "its permuted factor is torch's factors, unpacked", "call `ldl_factor` and `ldl_solve`"),
    **_rows("scipy.linalg", "qr_update qr_insert qr_delete", "no gradient and no library on a device has it",
            "call `qr` of the new matrix; `cholesky_update` is offered"),
    # special functions
    **_rows("scipy.special", "jv yv iv kv yn", _REAL_ORDER,
            "call `bessel_j0`, `bessel_j1`, `bessel_y0`, `modified_bessel_i0`, `modified_bessel_k0` and their like"),
    **_rows("scipy.special", "ellipk ellipe ellipj", "neither PyTorch nor JAX has elliptic functions",
            "call `scipy.special.{0}` on the host"),
    **_rows("scipy.special", "lambertw struve voigt_profile", "neither PyTorch nor JAX has it",
            "write Newton's steps as a formula of `elementwise`, or call `scipy.special.{0}`; Voigt's profile is the "
            "real part of `wofz`"),
    "airy": Row("scipy.special", "of the four functions PyTorch has one", "call `airy_ai`"),
    # numerical analysis
    **_rows("scipy", "quad odeint solve_ivp minimize root_scalar",
            "how often a function is called depends on its values, which are never read back",
            "call SciPy's, or the framework's, with functions of ours inside"),
}  # fmt: skip

LIMITED: dict[str, Row] = {  # functions that are here and do not take this, or are another library's of that name
    "schur, real": Row(
        "scipy.linalg", "blocks of two rows make a form whose shape depends on values",
        "`schur` gives the complex form of a real matrix, `rsf2csf` makes it of a real one",
    ),
    "schur of order above 64 on a device": Row(
        "scipy.linalg", "no library on a device has it, and ours is one launch in shared memory",
        "call `schur` on NumPy arrays, or `eig`, whose library takes any order",
    ),
    "ldl_factor, Hermitian of order above 64 on a device": Row(
        "torch.linalg", "cuSOLVER has no hetrf", "call `ldl_factor` of the real form of twice the order, or `lu_factor`"
    ),
    "lu, qr, svd, eigh of float16 and bfloat16": Row(
        "torch.linalg", "no library has them, and eight to eleven bits leave no digits", 'give `cast(x, "float32")`'
    ),
    "eig on a device without CUDA 12.8": Row(
        "torch.linalg", "earlier cuSOLVER has no general eigenvalues", "call `eigh` of Hermitian ones, or NumPy arrays"
    ),
    "fft of float16 over several axes": Row(
        "torch.fft", "16-bit numbers are transformed in shared memory, one axis",
        'give `cast(x, "float32")`, or `rfft` and then `fft` of the other axes',
    ),
    "batch_paged_decode(pos_encoding_mode=\"ROPE_LLAMA\")": Row(
        "flashinfer", "every step would rotate every key again, a sine and a cosine for each pair that it reads, in "
        "kernels whose keys go from memory to the tensor cores as they are",
        "`qk_norm_rope_append` with norm=False rotates queries and keys once, in the launch that writes the cache",
    ),
    "select(x, dim, index)": Row("torch", "`select` is numpy.select here", "call `index_in_dim`"),
    "resize(image, …)": Row("jax.image", "`resize` is numpy.resize here", "call `resize_image` or `interpolate`"),
    "norm(matrix)": Row(
        "torch.linalg, numpy.linalg", "`norm` is torch.norm, of vectors", "call `linalg.norm` or `matrix_norm`"
    ),
    "polar(matrix)": Row("scipy.linalg", "`polar` is torch.polar, of angles", "call `qdwh`"),
    "split(key), clone(key)": Row(
        "jax.random", "there are no keys: a number's place and a seed fix what is drawn", "give another seed="
    ),
}  # fmt: skip


def table(rows: dict[str, Row]) -> str:
    """The rows in Markdown, names of one row together."""
    together: dict[Row, list[str]] = {}
    for name, row in rows.items():
        together.setdefault(row, []).append(name)
    lines = ["| name | of | not offered, as | instead |", "| --- | --- | --- | --- |"]
    for row, names in together.items():
        said = row.instead.format(names[0] if len(names) == 1 else "…")
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {row.source} | {row.reason} | {said} |")
    return "\n".join(lines)
