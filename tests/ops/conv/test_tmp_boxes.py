import sys; sys.path.insert(0,'/work/wt/h_conv/tests/ops/conv')
import pytest, numpy as np
import baracuda_py as bc
from test_conv_emulated import run, LAST
@pytest.mark.usefixtures("emulation")
def test_fwd():
    desc = bc.ConvDescriptor(shape=(3, 64, 6, 5), filter_shape=(72, 64, 3, 2), padding=(1,(0,1)), element="bfloat16")
    steps = run(bc.ConvPlan, desc, ("bias",), LAST, "wgmma", 2)
    print([s.kernel for s in steps], [s.axes for s in steps], steps[-1].params["box"])
    assert steps[-1].kernel=="boxes"
@pytest.mark.usefixtures("emulation")
def test_dw():
    desc = bc.ConvBackwardDescriptor(shape=(4, 64, 8, 4), filter_shape=(72, 64, 3, 3), padding=1, element="bfloat16")
    steps = run(bc.ConvBackwardPlan, desc, ("dw",), LAST, "wgmma", 2)
    print([s.kernel for s in steps], [s.axes for s in steps], steps[-1].params["splits"])
    assert steps[0].kernel=="filter_boxes"
