"""The parts of `baracuda_py.torch.patch`, by themselves: losses, rotary positions, attention and experts."""

from __future__ import annotations

import copy
import inspect
import itertools
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch_patch_models import BY_NAME, LLAMA, MIXTURES, MODELS, Tiny, close, loss_of, pair, same_gradients  # noqa: E402  # fmt: skip

from baracuda_py.torch.patch import FAMILIES, patch, register, unpatch  # noqa: E402
from baracuda_py.torch.patch.attention import attention_forward  # noqa: E402
from baracuda_py.torch.patch.experts import experts_forward  # noqa: E402
from baracuda_py.torch.patch.loss import _Logits  # noqa: E402
from baracuda_py.torch.patch.rotary import Rotary, of_complex_table, of_one, of_patches  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_patched")


# Losses


def test_labels_by_place() -> None:
    model, ours = pair(LLAMA)
    batch = LLAMA.batch(labels=True)
    places = list(inspect.signature(model.forward).parameters)
    given = [batch.get(name) for name in places[: places.index("labels") + 1]]
    close(ours.train()(*given).loss, model.train()(*given).loss, "loss")
    assert ours(*given).logits is None and ours(*given, skip_logits=False).logits is not None


def test_logits_that_are_asked_for() -> None:
    model, ours = pair(LLAMA)
    batch = LLAMA.batch(labels=True)
    assert ours.eval()(**batch).logits is not None and ours(**batch, skip_logits=True).logits is None
    found = ours.train()(**batch, skip_logits=False)
    wanted = model.train()(**batch)
    close(found.logits, wanted.logits, "logits")
    with torch.no_grad():
        close(ours(**batch, skip_logits=True).loss, wanted.loss, "loss")
    assert ours(**LLAMA.batch()).logits is not None


@pytest.mark.parametrize("tiny", MIXTURES, ids=lambda tiny: tiny.family)
def test_results_as_a_tuple(tiny: Tiny) -> None:
    """What is left out is the logits, wherever they stand."""
    model, ours = (one.train() for one in pair(tiny))
    given = {**tiny.batch(labels=True), "return_dict": False, "use_cache": False, "output_router_logits": True}
    wanted, found = model(**given), ours(**given)
    assert len(found) == len(wanted) - 1
    close(found[0], wanted[0], "loss")
    close(found[1], wanted[1], "auxiliary loss")


@pytest.mark.parametrize("tiny", MIXTURES, ids=lambda tiny: tiny.family)
def test_auxiliary_loss(tiny: Tiny) -> None:
    model, ours = pair(tiny)
    wanted, found = (loss_of(one, tiny, output_router_logits=True) for one in (model, ours))
    close(found, wanted, "loss")
    found.backward()
    wanted.backward()
    same_gradients(ours, model)


@pytest.mark.parametrize("items", [17, torch.tensor(17)])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2ForCausalLM", "CohereForCausalLM", "PhiForCausalLM"])
def test_losses_of_a_trainer(name: str, items: Any) -> None:
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    shifted = torch.roll(tiny.batch()["input_ids"], -1, 1)
    for more in ({"num_items_in_batch": items}, {"shift_labels": shifted}, {"logits_to_keep": 0}):
        close(loss_of(ours, tiny, **more), loss_of(model, tiny, **more), str(more))
    labels = tiny.batch()["input_ids"]
    for more in ({"ignore_index": int(labels[0, 5])}, {"ignore_index": int(labels[1, 2]), "num_items_in_batch": items}):
        found, wanted = (one(labels, labels=labels, **more).loss for one in (ours, model))
        close(found, wanted, str(more))


def test_a_loss_of_ones_own() -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **more: Any) -> Any:
        return logits.float().logsumexp(-1).mean()

    model, ours = pair(LLAMA)
    model.loss_function = ours.loss_function = loss
    found = ours.train()(**LLAMA.batch(labels=True))
    assert found.logits is not None
    close(found.loss, model.train()(**LLAMA.batch(labels=True)).loss, "loss")


def test_a_head_that_is_more_than_its_weight() -> None:
    model, ours = pair(LLAMA)
    calls = []
    ours.lm_head.register_forward_hook(lambda *given: calls.append(1))
    assert ours.train()(**LLAMA.batch(labels=True)).logits is not None and calls
    close(loss_of(ours), loss_of(model), "loss")


def test_what_else_is_done_to_logits_makes_them() -> None:
    head, hidden = torch.nn.Linear(4, 7), torch.randn(2, 3, 4)
    logits, lazy = head(hidden), _Logits(hidden, head)
    labels = torch.tensor([0, 6, 2, -100, 3, 1])
    assert torch.equal(lazy.softmax(-1), logits.softmax(-1)) and lazy.shape == logits.shape
    assert torch.equal(torch.sigmoid(lazy), torch.sigmoid(logits))
    rest = {"label_smoothing": 0.1}, {"weight": torch.rand(7)}, {"reduction": "none"}, {"reduction": "sum"}
    for steps in (lambda x: x, lambda x: x * 3, lambda x: torch.tanh(x / 3) * 3, lambda x: torch.tanh(x) * 2):
        for more in rest:
            found, wanted = (
                torch.nn.functional.cross_entropy(steps(one).float().view(-1, 7), labels, **more)
                for one in (lazy, logits)
            )
            close(found, wanted, str(more))


def test_a_scaled_loss_in_float16() -> None:
    """Gradients below float16's range, which the scale lifts, are not lost before it does."""
    torch.manual_seed(0)
    head, hidden, labels = torch.nn.Linear(8, 16, bias=False), torch.randn(4096, 8) * 1e-4, torch.randint(16, (4096,))
    torch.nn.functional.cross_entropy(head(hidden), labels).backward()
    half = copy.deepcopy(head).half()
    half.weight.grad = None
    (torch.nn.functional.cross_entropy(_Logits(hidden.half(), half), labels) * 2.0**14).backward()
    wanted = head.weight.grad
    assert float((half.weight.grad.float() / 2.0**14 - wanted).abs().max()) < 2e-2 * float(wanted.abs().max())


# Rotary positions


SERVED = [tiny for tiny in MODELS if FAMILIES[tiny.family].functions]
TURNING = [
    tiny for tiny in SERVED if any(isinstance(rule, Rotary) for rule in FAMILIES[tiny.family].functions.values())
]


@pytest.mark.parametrize("tiny", SERVED, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_are_served(tiny: Tiny, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None goes to the original, which holds for what a model does not do."""

    def original(*given: Any, **more: Any) -> Any:
        raise AssertionError("the original was called")

    modelling = import_module(f"transformers.models.{tiny.family}.modeling_{tiny.family}")
    ours = tiny.make().to(dtype)
    for name in FAMILIES[tiny.family].functions:
        monkeypatch.setattr(modelling, name, original)
    patch(ours)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tiny.batch().items()}
    ours(**batch)
    unpatch(ours)


@pytest.mark.parametrize("tiny", TURNING, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
def test_functions_alone(tiny: Tiny) -> None:
    """Results and their elements are the original's, whatever those of the table are."""
    for name, rule in FAMILIES[tiny.family].functions.items():
        if not isinstance(rule, Rotary):
            continue
        original = getattr(import_module(f"transformers.models.{tiny.family}.modeling_{tiny.family}"), name)
        ours = rule.make(original)
        for element, table in itertools.product((torch.float32, torch.bfloat16), repeat=2):
            q, k = torch.randn(2, 4, 6, 8).to(element), torch.randn(2, 2, 6, 8).to(element)
            angles = torch.randn(2, 6, 4)
            if rule.form is of_complex_table:
                given: tuple[Any, ...] = (q, k, torch.polar(torch.ones_like(angles), angles))
            elif rule.form is of_patches:
                angles = torch.cat([angles[0], angles[0]], -1)
                given = (q[0].transpose(0, 1), k[0].transpose(0, 1), angles.cos().to(table), angles.sin().to(table))
            else:
                both = {"first": torch.cat([angles, angles], -1), "even": angles.repeat_interleave(2, -1)}
                angles = both.get(rule.columns, angles)
                given = (q, *([] if rule.form is of_one else [k]), angles.cos().to(table), angles.sin().to(table))
            found, wanted = ours(*given), original(*given)
            for one, other in zip(*((y,) if torch.is_tensor(y) else y for y in (found, wanted)), strict=True):
                assert one.dtype == other.dtype
                torch.testing.assert_close(one, other, atol=1e-6 if one.dtype == torch.float32 else 6e-2, rtol=1e-5)


# Attention


def _heads(*, sinks: bool = False, bias: bool = False, **shape: int) -> dict[str, Any]:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    return {
        "query": q, "key": k, "value": v, "s_aux": torch.randn(4) if sinks else None,
        "position_bias": torch.randn(1, 4, 6, 6) if bias else None,
    }  # fmt: skip


@pytest.mark.parametrize("terms", [{}, {"sinks": True}, {"bias": True}])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_bounds_keep_sequences_apart(terms: dict[str, bool], window: int | None, causal: bool) -> None:
    """Whatever else the scores have."""
    given, module = _heads(**terms), torch.nn.Identity()
    ends = torch.tensor([0, 2, 6], dtype=torch.int32)
    y, _ = attention_forward(
        module, attention_mask=None, is_causal=causal, sliding_window=window, cu_seq_lens_q=ends, cu_seq_lens_k=ends,
        max_length_q=4, max_length_k=4, **given,
    )  # fmt: skip
    at = torch.arange(6)
    of = (at >= 2).long()
    seen = of[:, None] == of
    if causal:
        seen &= at <= at[:, None]
    if window is not None:
        seen &= (at - at[:, None]).abs() < window
    k, v = (given[name].repeat_interleave(2, 1) for name in ("key", "value"))
    scores = given["query"] @ k.mT * 8**-0.5 + (given["position_bias"] if terms.get("bias") else 0.0)
    scores = scores.masked_fill(~seen, -torch.inf)
    if terms.get("sinks"):
        scores = torch.cat([scores, given["s_aux"].view(1, 4, 1, 1).expand(1, 4, 6, 1)], -1)
    close(y, (scores.softmax(-1)[..., :6] @ v).transpose(1, 2), "y")


@pytest.mark.parametrize("terms", [{}, {"sinks": True}])
def test_bounds_of_queries_are_those_of_keys(terms: dict[str, bool]) -> None:
    given, module, ends = _heads(**terms), torch.nn.Identity(), torch.tensor([0, 2, 6])
    short = attention_forward(module, attention_mask=None, cu_seq_lens_q=ends, **given)[0]
    whole = attention_forward(
        module, attention_mask=None, cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=4, max_length_k=4, **given
    )[0]
    assert torch.equal(short, whole)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2ForCausalLM", "GptOssForCausalLM",
                                  "T5ForConditionalGeneration", "WhisperForConditionalGeneration",
                                  "ViTForImageClassification"])  # fmt: skip
def test_attention_weights(name: str) -> None:
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    wanted, found = (one(**tiny.batch(), output_attentions=True) for one in (model, ours))
    parts = [name for name in wanted if name.endswith("attentions")]
    assert parts
    for part in parts:
        for one, other in zip(found[part], wanted[part], strict=True):
            close(one, other, part)


def test_dropout_in_attention() -> None:
    ours = pair(LLAMA, attention_dropout=0.5)[1]
    torch.manual_seed(5)
    first, second = loss_of(ours).item(), loss_of(ours).item()
    torch.manual_seed(5)
    assert loss_of(ours).item() == first != second
    ours.eval()
    batch = LLAMA.batch()
    assert torch.equal(ours(**batch).logits, ours(**batch).logits)


# Experts


@pytest.mark.parametrize("tiny", MIXTURES, ids=lambda tiny: tiny.family)
def test_experts(tiny: Tiny) -> None:
    """A number behind the last expert's adds nothing, and the gradients are those of the experts that are."""
    model, ours = pair(tiny)
    experts = [next(m for m in one.modules() if type(m).__name__.endswith("Experts")) for one in (ours, model)]
    where = torch.tensor([[0, 3], [4, 1], [2, 0], [1, 4]])
    found = []
    for one in experts:
        x, weights = torch.ones(4, 32).cumsum(0).div(9).requires_grad_(), torch.full((4, 2), 0.4, requires_grad=True)
        y = one(x, where, weights)
        y.square().sum().backward()
        found.append([y, x.grad, weights.grad, *(p.grad for p in one.parameters())])
    for one, other in zip(*found, strict=True):
        close(one, other, "experts")
    with torch.no_grad():
        x = torch.randn(3, 32)
        wanted = experts[0](x, torch.tensor([[0, 2]] * 3), torch.tensor([[0.5, 0.0]] * 3))
        close(experts[0](x, torch.tensor([[0, 5]] * 3), torch.tensor([[0.5, 0.7]] * 3)), wanted, "outside")
        assert torch.equal(experts[0](x, torch.tensor([[0, 2]] * 3), torch.tensor([[0.5, 0.0]] * 3)), wanted)


@pytest.mark.parametrize("tiny", MIXTURES, ids=lambda tiny: tiny.family)
def test_experts_by_name(tiny: Tiny) -> None:
    """experts_implementation="baracuda" without a patch: logits, and the gradients of the experts."""
    register()
    found = []
    for name in ("eager", "baracuda"):
        model = tiny.make(experts_implementation=name)
        calls = [
            m for m in model.modules() if getattr(getattr(m, "config", None), "_experts_implementation", "") == name
        ]
        assert calls, "no module asks for experts by name"
        logits = model(**tiny.batch()).logits
        logits.square().mean().backward()
        experts = next(m for m in model.modules() if type(m).__name__.endswith("Experts"))
        found.append([logits, *(p.grad for p in experts.parameters())])
    for one, other in zip(*found, strict=True):
        close(one, other, tiny.family)


class _Own:
    """Experts whose gate, norm and layout are no model's here."""

    def __init__(self, transposed: bool, gate: bool, bias: bool, norm: bool, concatenated: bool) -> None:
        made = torch.Generator().manual_seed(2)
        rows = 12 if gate else 6
        first, second = (torch.randn(4, *s, generator=made) for s in ((rows, 5), (5, 6)))
        self.has_gate, self.has_bias, self.is_transposed, self.is_concatenated = gate, bias, transposed, concatenated
        self.has_post_expert_norm, self.num_experts = norm, 4
        turned = [one.transpose(1, 2).contiguous() if transposed else one for one in (first, second)]
        setattr(self, "gate_up_proj" if gate else "up_proj", turned[0])
        self.down_proj = turned[1]
        if bias:
            setattr(self, "gate_up_proj_bias" if gate else "up_proj_bias", torch.randn(4, rows, generator=made))
            self.down_proj_bias = torch.randn(4, 5, generator=made)
        self.act_fn = torch.nn.SiLU()
        self.post_expert_norm = torch.nn.LayerNorm(5)
        self.plain = (first, second)

    def _apply_gate(self, y: Any) -> Any:
        gate, up = y.chunk(2, -1) if self.is_concatenated else (y[..., ::2], y[..., 1::2])
        return torch.tanh(gate) * (up + 2)

    def by_hand(self, x: Any, chosen: Any, weights: Any) -> Any:
        y = torch.zeros_like(x)
        for t in range(len(x)):
            for j in range(chosen.shape[1]):
                e = int(chosen[t, j])
                if e >= 4:
                    continue
                h = self.plain[0][e] @ x[t]
                if self.has_bias:
                    h = h + (self.gate_up_proj_bias if self.has_gate else self.up_proj_bias)[e]
                h = self.plain[1][e] @ (self._apply_gate(h) if self.has_gate else self.act_fn(h))
                h = h + self.down_proj_bias[e] if self.has_bias else h
                y[t] += weights[t, j] * (self.post_expert_norm(h) if self.has_post_expert_norm else h)
        return y


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("gate", "concatenated"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("transposed", [False, True])
def test_experts_of_any_module(transposed: bool, gate: bool, concatenated: bool, bias: bool, norm: bool) -> None:
    own = _Own(transposed, gate, bias, norm, concatenated)
    x, weights = torch.randn(6, 5), torch.rand(6, 2)
    chosen = torch.tensor([[0, 3], [1, 2], [3, 0], [2, 7], [0, 1], [4, 2]])
    with torch.no_grad():
        close(experts_forward(own, x, chosen, weights), own.by_hand(x, chosen, weights), "experts")
