"""A gated recurrent unit as the mixer: a state that each token updates, the past in D numbers.

    r_t = sigmoid(W_r x_t + U_r h_{t-1}),  z_t = sigmoid(W_z x_t + U_z h_{t-1})
    n_t = tanh(W_n x_t + r_t (U_n h_{t-1})),  h_t = (1 - z_t) n_t + z_t h_{t-1},  out_t = W_o h_t    (biases left out)

Causal; padding leaves the state as it is, on either side; a document begins with a state of 0. A cache holds h.
Cho et al. 2014, section 2.3, arXiv:1406.1078, with the reset behind the product, as torch and cuDNN have it.
Cost for T tokens: 7 T D^2 multiply-adds in T steps one after the other, whatever the heads. torch's fused recurrence
does them where no documents are packed, else a loop.
"""

from __future__ import annotations

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import no_autocast
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.alignment import Alignment
from zoo.nn.recurrence import Steps, steps_of

__all__ = ["Gru"]


@final
class Gru(Attention):
    """A control: what the transformer replaced."""

    offers = frozenset({"causal", "cache", "padding", "documents"})

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.input = nn.Linear(self.dim, 3 * self.dim)  # of r, z and n, in this order
        self.recurrent = nn.Linear(self.dim, 3 * self.dim)
        self.output = branch_output(nn.Linear(self.dim, self.dim))

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D), the recurrence in float32 or wider."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        state_BD = None if cache is None else cache.get("state")
        if state_BD is None:
            state_BD = torch.zeros(x_BTD.shape[0], self.dim, dtype=wide, device=x_BTD.device)
        with no_autocast(x_BTD.device):
            run = self._fused if mask.documents_BS is None and not torch.compiler.is_compiling() else self._stepped
            call = self.call(x_BTD, mask=mask, place=place, cache=cache, notes=notes, dtype=wide)
            h_BTD, state_BD = run(x_BTD.to(wide), state_BD, steps_of(call.tokens()))
        if cache is not None:
            cache.put("state", state_BD)
        return self.output(h_BTD.to(x_BTD.dtype))

    def _fused(self, x_BTD: Tensor, state_BD: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        """States (B, T, D) after each token, 0 for padding, and the last (B, D); padding is moved behind the tokens."""
        aligned = Alignment(steps.valid_BT)
        weights = [layer.weight.to(x_BTD.dtype) for layer in (self.input, self.recurrent)]
        biases = [layer.bias.to(x_BTD.dtype) for layer in (self.input, self.recurrent)]
        training = torch.is_grad_enabled()  # not that of the module: cuDNN has no gradients else; nothing is dropped
        h_BTD, _ = torch.gru(
            aligned.front(x_BTD), state_BD[None], [*weights, *biases], True, 1, 0.0, training, False, True
        )
        if steps.valid_BT is None:
            return h_BTD, h_BTD[:, -1]
        count_B11 = steps.valid_BT.sum(1)[:, None, None].expand(-1, 1, self.dim)
        last_BD = torch.cat([state_BD[:, None], h_BTD], 1).gather(1, count_B11)[:, 0]
        return aligned.back(h_BTD), last_BD

    def _stepped(self, x_BTD: Tensor, state_BD: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        """The same, a token at a time, with documents."""
        wide, (valid_BT, number_BT) = x_BTD.dtype, steps
        given_BTX = F.linear(x_BTD, self.input.weight.to(wide), self.input.bias.to(wide))
        weight, bias = self.recurrent.weight.to(wide), self.recurrent.bias.to(wide)
        states = []
        for t, given_BX in enumerate(given_BTX.unbind(1)):
            if number_BT is not None:
                goes_on_B = number_BT[:, t] == (number_BT[:, t - 1] if t else 0)
                state_BD = state_BD * goes_on_B[:, None]
            (r, z, n), (r_h, z_h, n_h) = given_BX.chunk(3, -1), F.linear(state_BD, weight, bias).chunk(3, -1)
            update_BD = (z + z_h).sigmoid()
            new_BD = (n + (r + r_h).sigmoid() * n_h).tanh()
            after_BD = (1 - update_BD) * new_BD + update_BD * state_BD
            state_BD = after_BD if valid_BT is None else torch.where(valid_BT[:, t, None], after_BD, state_BD)
            states.append(state_BD)
        h_BTD = torch.stack(states, 1)
        return h_BTD if valid_BT is None else h_BTD.masked_fill(~valid_BT[..., None], 0.0), state_BD
