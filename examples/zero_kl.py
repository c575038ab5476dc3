"""A policy gradient without off-policy error: the trainer's probabilities are the server's, bit for bit.

    python examples/zero_kl.py                  # preset cpu on the NumPy backend: a minute on 2 cores
    python examples/zero_kl.py --preset gpu     # on a CUDA device

The model of train_gpt.py, with random weights, learns by GRPO to write lower-case letters. Each step the loop of
one_answer.py draws several texts behind each prompt; the trainer then takes one step of AdamW on them. Where server and
trainer add in different orders, importance ratios exp(trainer - rollout) are not 1 although the weights are the same,
and clipping and corrections treat noise. Here every ratio is 1 and the KL is 0, and the run fails where one is not.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_model import PRESETS, Decoder
from gpt_rollout import Rollouts, forward, rectangle
from train_gpt import Parser, UsageError, choose_device, describe, main

import baracuda_py as bc
from baracuda_py.serving import Request, SamplingParams, Sequence

PROMPTS = (b"def ", b"import ", b"return ", b"x = ")
LEARNING_RATE = 2e-3
PAGE = 16


@dataclasses.dataclass
class Step:
    """The mean reward of a step's texts, the largest |ratio - 1| of its tokens, and the KL of the two policies."""

    reward: float
    off: float
    kl: float


def reward(text: list[int]) -> float:
    """The share of lower-case letters."""
    return sum(ord("a") <= token <= ord("z") for token in text) / len(text)


def rollout(model: Decoder, group: int, length: int, seed: int, drafts: int) -> list[Sequence]:
    """`group` texts behind each prompt."""
    requests = [
        Request(prompt, length, SamplingParams(seed=seed + i))
        for i, prompt in enumerate(prompt for prompt in PROMPTS for _ in range(group))
    ]
    pages = len(requests) * -(-(max(map(len, PROMPTS)) + length) // PAGE)
    return Rollouts(model, pages, drafts=drafts, max_sequences=len(requests)).serve(requests, len(requests))


def advantages(rewards: Any) -> Any:
    """Rewards [prompts, group] less their group's mean, in its standard deviations: float32 [prompts · group]."""
    spread = rewards.std(axis=1, keepdims=True)
    return ((rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-4)).reshape(-1).astype(np.float32)


def trained(model: Decoder, texts: list[Sequence], group: int, number: int) -> Step:
    """One step on the texts."""
    place, tokens = model.xp.asarray, rectangle(texts)
    rollouts, mask = np.zeros(tokens[:, 1:].shape, np.float32), np.zeros(tokens[:, 1:].shape, bool)
    for i, one in enumerate(texts):
        drawn = slice(one.prompt_length - 1, len(one.tokens) - 1)
        rollouts[i, drawn], mask[i, drawn] = one.logprobs, True
    rewards = np.array([reward(one.generated) for one in texts]).reshape(-1, group)
    given = [place(x) for x in (rollouts, advantages(rewards))]
    tokens, mask_there = place(tokens), place(mask)
    policy, logits, saved = forward(model, tokens)
    _, kl = bc.grpo_loss(policy, *given, mask=mask_there, loss_type="dapo", return_approx_kl=True)
    old, advantage = given
    dpolicy = bc.policy_loss_backward(
        model.xp.ones((), np.float32), policy, old, advantage[:, None], mask=mask_there, kind="policy"
    )
    targets = tokens[:, 1:].reshape(-1)
    stats = bc.cross_entropy(logits, targets, reduction="none", return_stats=True)[1]
    dlogits = bc.cross_entropy_backward(bc.neg(dpolicy).reshape(-1), logits, targets, stats, reduction="none")
    model.update(model.gradients(tokens[:, :-1].copy(), dlogits, saved), number, LEARNING_RATE)
    host = policy.get() if hasattr(policy, "get") else policy
    ratios = np.exp((host - rollouts)[mask])
    return Step(float(rewards.mean()), float(np.abs(ratios - 1).max()), float(kl))


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="12", trains=False)
    parser.add_argument("--group", type=int, default=8, help="texts behind each prompt (default: 8)")
    parser.add_argument("--length", type=int, default=16, help="bytes of a text (default: 16)")
    parser.add_argument("--drafts", type=int, default=2, help="tokens drafted behind a text, at most (default: 2)")
    return parser.checked(argv, steps=1, seed=0, group=2, length=1, drafts=0)


def run(argv: list[str] | None = None) -> list[Step]:
    """Train and report; what each step was."""
    asked = options(argv)
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    if (most := preset.context - max(map(len, PROMPTS))) < asked.length:
        raise UsageError(f"--length must be at most {most} with this preset")
    model = Decoder(preset, xp, asked.seed).with_same_bits()
    print(f"{preset.parameters():,} parameters, {model.weights['head'].dtype}, on {describe(device)}")
    print(f"{'step':>4} {'reward':>7} {'largest |ratio - 1|':>20} {'KL':>8}")
    steps = []
    for number in range(1, (asked.steps or 12) + 1):
        seed = asked.seed + number * asked.group * len(PROMPTS)
        texts = rollout(model, asked.group, asked.length, seed, asked.drafts)
        steps.append(trained(model, texts, asked.group, number))
        print(f"{number:>4} {steps[-1].reward:>7.3f} {steps[-1].off:>20.1e} {steps[-1].kl:>8.1e}", flush=True)
        if steps[-1].off or steps[-1].kl:
            raise SystemExit("server and trainer differ where the same bits were asked for")
    print(f"reward {steps[0].reward:.3f} → {steps[-1].reward:.3f}; every ratio was 1 and the KL 0")
    return steps


if __name__ == "__main__":
    raise SystemExit(main(run=run))
