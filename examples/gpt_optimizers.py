"""Other optimizers for the matrices of `train_gpt.py`: the same decoder, another `update`.

Each is a rule of `bc.optimizer` over all matrices in one launch, which writes the working copies, too. Norms take
AdamW's step in any case. The gradient's norm is cut to 1 first.
"""

from __future__ import annotations

from typing import Any

from gpt_model import Decoder, Preset, Weights

import baracuda_py as bc

DECAY = 0.1
BLOCK = 256  # elements of a state in 8 bits that share a scale


class WithLion(Decoder):
    """Lion (Chen et al. 2023), at a tenth of AdamW's rate and ten times its decay."""

    name = "lion"
    share = 0.1
    """Of the preset's rate."""

    def __init__(self, preset: Preset, xp: Any, seed: int = 0) -> None:
        super().__init__(preset, xp, seed)
        self.rule = bc.optimizer(self.text(bc.optimizer(self.name).text))

    def text(self, rule: str) -> str:
        """The rule with the rate's share, and with the working copies where there are some."""
        rule = rule.replace("lr", f"({self.share} * lr)")
        return rule + "; copy = p" if self.copies else rule

    def update(self, grads: Weights, step: Any, learning_rate: Any) -> None:
        """One step of all weights."""
        _, clip = bc.global_norm(list(grads.values()), max_norm=1.0, return_clip_factor=True)
        self.matrices_step([grads[n] for n in self.matrices], step, learning_rate, clip)
        moments = [self.moments[n] for n in self.norms]
        bc.adam_step(
            list(self.norms.values()), [grads[n] for n in self.norms], [m for m, _ in moments], [v for _, v in moments],
            lr=learning_rate, step=step, grad_scale=clip, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0,
        )  # fmt: skip

    def matrices_step(self, grads: list[Any], step: Any, rate: Any, clip: Any) -> None:
        """The rule's."""
        m = [self.moments[n][0] for n in self.matrices]
        self.rule(**self.lists(), g=grads, m=m, lr=rate, b1=0.9, b2=0.99, weight_decay=10 * DECAY, grad_scale=clip)

    def lists(self) -> dict[str, list[Any]]:
        """The matrices, and their working copies."""
        copies = {"copy": [self.copies[n] for n in self.matrices]} if self.copies else {}
        return {"p": list(self.matrices.values()), **copies}


class WithAdamW8bit(WithLion):
    """AdamW with moments in 8 bits (Dettmers et al. 2022)."""

    name = "adamw"
    share = 1.0

    def __init__(self, preset: Preset, xp: Any, seed: int = 0) -> None:
        super().__init__(preset, xp, seed)
        kinds = {"m": "signed", "v": "unsigned"}
        self.rule = bc.optimizer(self.rule.text, states8bit=kinds)
        held = self.matrices.values()
        self.states = {n: [xp.zeros(w.shape, "uint8") for w in held] for n in kinds}
        self.states |= {f"{n}_scale": [xp.zeros(-(-w.size // BLOCK), "float32") for w in held] for n in kinds}
        for n in self.matrices:
            del self.moments[n]

    def matrices_step(self, grads: list[Any], step: Any, rate: Any, clip: Any) -> None:
        """The rule's."""
        facts = {"b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": DECAY}
        self.rule(**self.lists(), g=grads, **self.states, t=step, lr=rate, **facts, grad_scale=clip)


class WithMuon(WithLion):
    """Muon (Jordan et al. 2024): momentum, orthogonalised; all matrices, also the embedding, as it is a product's."""

    share = 1.0

    def __init__(self, preset: Preset, xp: Any, seed: int = 0) -> None:
        super().__init__(preset, xp, seed)
        step = "p = p * (1 - lr * weight_decay) - lr * longer * u"
        self.direction = bc.optimizer("muon_direction")
        self.rule = bc.optimizer(step + ("; copy = p" if self.copies else ""), weight_decay=DECAY)

    def matrices_step(self, grads: list[Any], step: Any, rate: Any, clip: Any) -> None:
        """The momenta's, orthogonalised, one shape's matrices together."""
        m, lists = [self.moments[n][0] for n in self.matrices], self.lists()
        u = [self.xp.empty_like(g) for g in grads]
        self.direction(g=grads, m=m, u=u, grad_scale=clip)
        shapes: dict[tuple[int, ...], list[int]] = {}
        for i, one in enumerate(u):
            shapes.setdefault(one.shape, []).append(i)
        for (rows, cols), places in shapes.items():
            made = bc.orthogonalize(bc.stack([u[i] for i in places]))
            own = {n: [one[i] for i in places] for n, one in lists.items()}
            longer = max(1.0, rows / cols) ** 0.5
            self.rule(**own, u=[made[k] for k in range(len(places))], lr=rate, longer=longer)


OPTIMIZERS: dict[str, type[Decoder]] = {
    "adamw": Decoder,
    "adamw8bit": WithAdamW8bit,
    "lion": WithLion,
    "muon": WithMuon,
}
"""By the name that `--optimizer` takes."""
