"""A mixture of experts: a router sends each token to a few of many networks and adds up what they say.

    p = softmax(W_r x),    MoE(x) = sum over the k experts e of largest p_e of  g_e E_e(x)  [ + shared experts ]

    g_e = p_e / (sum of the k largest), or p_e;   E_e(x) = W_2 (f(W_g x) * W_1 x), or W_2 f(W_1 x)

Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, "Switch transformers", arXiv:2101.03961 (k = 1, plain
experts, the balance loss of equations 4 to 6); Jiang et al. 2024, "Mixtral of experts", section 2.1, arXiv:2401.04088
(the defaults); Dai et al. 2024, "DeepSeekMoE", equation 9, arXiv:2401.06066 (shared experts). All experts' parameters,
the multiply-adds of k of them.

Dimension legend: B batch, T tokens, N = B T tokens, D width, E experts, K choices of a token, A = K N choices.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.call import no_autocast
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output
from zoo.nn.activations import activate
from zoo.nn.grouped import GroupedLinear

__all__ = ["Mixture"]


@final
class Mixture(FeedForward):
    """The feed-forward network of Mixtral; with other knobs that of Switch or DeepSeekMoE."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs of the mixture."""

        experts: int = 8
        """Number of experts E, of which the router chooses."""
        top_k: int = 2
        """Experts that a token is sent to."""
        shared: int = 0
        """Further experts that every token is sent to, with weight 1."""
        hidden: int | None = None
        """Hidden units of an expert; null means 8/3 of the width, up to a multiple of 8, or 4 times without a gate."""
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "silu"
        """Nonlinearity of an expert: of its gate, or between its two layers."""
        gated: bool = True
        """Whether an expert is a gated MLP or a plain one."""
        renormalize: bool = True
        """Whether the weights of a token's experts are divided by their sum. Not with a top_k of 1, where each weight
        would be 1 and the router learn nothing."""
        capacity: float | None = None
        """Most tokens of an expert in training, as a multiple of its even share; it drops the others, later tokens and
        second choices first. Null drops none; neither does evaluation, where no token may depend on others."""
        balance: float = 0.01
        """Factor of the balance loss, E times the sum over experts of (share of tokens) * (mean of p)."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if not 1 <= config.top_k <= config.experts:
            raise ValueError(f"top_k must be between 1 and the number of experts, {config.experts}; got {config.top_k}")
        if config.renormalize and config.top_k == 1:
            raise ValueError(
                "with a top_k of 1 renormalized weights are always 1 and the router can't learn: "
                "set renormalize to false"
            )
        if config.shared < 0:
            raise ValueError(f"shared must be at least 0, got {config.shared}")
        if config.capacity is not None and config.capacity <= 0:
            raise ValueError(f"capacity must be above 0, got {config.capacity}; null drops no token")
        hidden = config.hidden or (-(-self.dim // 3) * 8 if config.gated else 4 * self.dim)
        self.router = nn.Linear(self.dim, config.experts, bias=False)
        self.experts = _Experts(config, self.dim, hidden, config.experts)
        self.shared = _Experts(config, self.dim, config.shared * hidden, 1) if config.shared else None

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D); padding is sent to no expert and counts nowhere."""
        x_ND = x_BTD.flatten(0, -2)
        valid_N = None if valid_BT is None else valid_BT.flatten()
        p_NE = self._probabilities(x_ND)
        weight_NK, expert_NK = p_NE.topk(self.config.top_k)
        if self.config.renormalize:
            weight_NK = weight_NK / weight_NK.sum(-1, keepdim=True)
        if valid_N is not None:
            expert_NK = expert_NK.masked_fill(~valid_N[:, None], self.config.experts)  # one past the last: to nobody
        if notes is not None and self.config.balance:
            self._balance(p_NE, expert_NK, valid_N, notes)
        out_ND = self._sent(x_ND, weight_NK, expert_NK, valid_N)
        if self.shared is not None:
            out_ND = out_ND + self.shared(x_ND, torch.full((1,), len(x_ND), device=x_ND.device))
        return out_ND.view(x_BTD.shape)

    def idle_parameters(self) -> int:
        """Those of the experts that weren't chosen."""
        each = sum(parameter[0].numel() for parameter in self.experts.parameters())
        return (self.config.experts - self.config.top_k) * each

    def _probabilities(self, x_ND: Tensor) -> Tensor:
        """(N, E) in float32 or wider, also under autocast: a rounding would send tokens elsewhere."""
        wide = torch.promote_types(x_ND.dtype, torch.float32)
        with no_autocast(x_ND.device):
            return F.linear(x_ND.to(wide), self.router.weight.to(wide)).softmax(-1)

    def _sent(self, x_ND: Tensor, weight_NK: Tensor, expert_NK: Tensor, valid_N: Tensor | None) -> Tensor:
        """(N, D) weighted sums of what the chosen experts make of the tokens."""
        expert_A = expert_NK.T.flatten()  # the first choices of all tokens, then the second ones, ...
        if self.training and self.config.capacity is not None:
            expert_A = self._within_capacity(expert_A, len(x_ND) if valid_N is None else valid_N.sum())
        order_A = expert_A.argsort(stable=True)
        y_AD = self.experts(x_ND[order_A % len(x_ND)], self._counts(expert_A).cumsum(0))
        y_KND = y_AD[order_A.argsort()].unflatten(0, (self.config.top_k, -1))
        return (y_KND * weight_NK.T[..., None].to(y_KND.dtype)).sum(0)

    def _counts(self, expert_A: Tensor) -> Tensor:
        """(E,) int64, how many choices fell on each expert."""
        counts = expert_A.new_zeros(self.config.experts + 1)
        return counts.scatter_add(0, expert_A, torch.ones_like(expert_A))[:-1]

    def _within_capacity(self, expert_A: Tensor, tokens: Tensor | int) -> Tensor:
        """(A,) the choices, those that find their expert full sent to nobody."""
        sorted_A, order_A = expert_A.sort(stable=True)
        rank_A = torch.arange(len(expert_A), device=expert_A.device) - torch.searchsorted(sorted_A, sorted_A)
        fits_A = rank_A < self.config.capacity * self.config.top_k * tokens / self.config.experts
        kept_A = torch.where(fits_A, sorted_A, self.config.experts)
        return torch.empty_like(expert_A).scatter(0, order_A, kept_A)

    def _balance(self, p_NE: Tensor, expert_NK: Tensor, valid_N: Tensor | None, notes: Notes) -> None:
        """Leave the balance loss, summed over tokens; it is ``balance * top_k`` a token where all are used alike."""
        tokens = torch.as_tensor(len(p_NE)) if valid_N is None else valid_N.sum()
        if valid_N is not None:
            p_NE = p_NE.masked_fill(~valid_N[:, None], 0.0)
        chosen_E = self._counts(expert_NK.flatten()).to(p_NE.dtype)
        loss = self.config.experts * (chosen_E * p_NE.sum(0)).sum() / tokens.clamp(min=1)
        notes.auxiliary(f"balance.{self.layer}", self.config.balance * loss, tokens)


class _Experts(nn.Module):
    """Networks of one shape, each for the tokens that it is sent."""

    def __init__(self, config: Any, dim: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.activation = config.activation
        self.gate = GroupedLinear(experts, dim, hidden) if config.gated else None
        self.up = GroupedLinear(experts, dim, hidden)
        self.down = branch_output(GroupedLinear(experts, hidden, dim))

    def forward(self, x_AD: Tensor, ends_E: Tensor) -> Tensor:
        """(A, D) of rows in the order of their experts."""
        up_AF = self.up(x_AD, ends_E)
        if self.gate is None:
            return self.down(activate(self.activation, up_AF), ends_E)
        return self.down(activate(self.activation, self.gate(x_AD, ends_E)) * up_AF, ends_E)
