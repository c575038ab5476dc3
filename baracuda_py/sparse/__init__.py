"""Sparse matrices: arrays of values and indices, products with gradients, conversions that say where they wait.

    import baracuda_py as bc
    a = bc.sparse.CSR(values, columns, offsets, shape=(rows, cols))
    y = bc.sparse.spmm(a, x)  # [cols, n] to [rows, n]
    scores = bc.sparse.sampled_addmm(a, q, k.T)

`COO`, `CSR`, `CSC` and `BSR` hold arrays of any package as they are. Sparse tensors of torch and matrices of SciPy and
CuPy are taken wherever one of these is. All sums have a fixed order: the same bits in every run.
"""

from .check import check as check
from .convert import bsr_to_coo as bsr_to_coo
from .convert import coalesce as coalesce
from .convert import coo_to_csr as coo_to_csr
from .convert import csc_to_coo as csc_to_coo
from .convert import csc_to_csr as csc_to_csr
from .convert import csr_to_bsr as csr_to_bsr
from .convert import csr_to_coo as csr_to_coo
from .convert import csr_to_csc as csr_to_csc
from .convert import sparse_transpose as sparse_transpose
from .convert import to_coo as to_coo
from .convert import to_csr as to_csr
from .dense import dense_to_coo as dense_to_coo
from .dense import dense_to_csr as dense_to_csr
from .dense import from_dense as from_dense
from .dense import sparse_mask as sparse_mask
from .dense import to_dense as to_dense
from .entrywise import add as add
from .entrywise import log_softmax as log_softmax
from .entrywise import mul as mul
from .entrywise import softmax as softmax
from .entrywise import sum as sum
from .formats import BSR as BSR
from .formats import COO as COO
from .formats import CSC as CSC
from .formats import CSR as CSR
from .formats import Sparse as Sparse
from .named import addmm as addmm
from .named import dsmm as dsmm
from .named import hsmm as hsmm
from .named import hspmm as hspmm
from .named import mm as mm
from .named import saddmm as saddmm
from .named import smm as smm
from .named import sparse_bsr_tensor as sparse_bsr_tensor
from .named import sparse_compressed_tensor as sparse_compressed_tensor
from .named import sparse_coo_tensor as sparse_coo_tensor
from .named import sparse_csc_tensor as sparse_csc_tensor
from .named import sparse_csr_tensor as sparse_csr_tensor
from .named import spdiags as spdiags
from .named import spsolve as spsolve
from .named import sspaddmm as sspaddmm
from .named import to_sparse_semi_structured as to_sparse_semi_structured
from .products import sampled_addmm as sampled_addmm
from .products import spmm as spmm
from .products import spmv as spmv
from .spgemm import spgemm as spgemm
from .triangular import spsolve_triangular as spsolve_triangular
