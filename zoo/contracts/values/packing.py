"""Documents taken out of their rows into rows of their own, so that attention costs the squares of their lengths.

Dimension legend: B batch, T queries and keys, R rows of a group, L length of the group.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.band import taken

if TYPE_CHECKING:
    from zoo.contracts.values.mask import Mask


def places_of(valid_BS: Tensor | None, documents_BS: Tensor | None) -> Tensor:
    """(B, S) int64 numbers of slots in their document from its first valid one on, -1 for those before it.

    ``valid`` [0, 1, 0, 1] gives [-1, 0, 1, 2]; documents [7, 7, 9] give [0, 1, 0].
    """
    given = valid_BS if valid_BS is not None else documents_BS
    assert given is not None
    slot_BS = torch.arange(given.shape[1], device=given.device).expand_as(given)
    opens_BS = slot_BS == 0
    if documents_BS is not None:
        opens_BS = opens_BS | F.pad(documents_BS[:, 1:] != documents_BS[:, :-1], (1, 0))
    opened_BS = torch.where(opens_BS, slot_BS, -1).cummax(1).values
    if valid_BS is None:
        return slot_BS - opened_BS
    tokens_BS = valid_BS.long().cumsum(1)
    before_BS = (tokens_BS - valid_BS.long()).gather(1, opened_BS)
    first_BS = valid_BS & (tokens_BS - before_BS == 1)
    begun_BS = torch.where(first_BS, slot_BS, -1).cummax(1).values
    return torch.where(begun_BS >= opened_BS, slot_BS - begun_BS, -1)


@dataclasses.dataclass(frozen=True, eq=False)
class Packing:
    """Documents in groups of about equal length, and the way back.

    Attributes:
        groups: for each the numbers (R, L) of its tokens, batch and slots flattened, and the mask of its rows.
        number_BT: where each token is among all groups' tokens, one group behind another; behind the last is a
            token with an output of 0, for those that are in no document.
    """

    groups: list[tuple[Tensor, Mask]]
    number_BT: Tensor

    @staticmethod
    def of(mask: Mask, device: torch.device) -> Packing | None:
        """The packing of a mask; ``None`` where it saves nothing, or can't be said without a look at the tensors."""
        anchored = mask.pattern is not None and mask.pattern.anchored
        given = mask.documents_BS if mask.documents_BS is not None else mask.valid_BS
        if given is None or mask.one_document or not mask.is_whole():
            return None
        if not anchored and (mask.documents_BS is None or mask.cut(device) is not None):
            return None
        place_BT = places_of(mask.valid_BS if anchored else None, mask.documents_BS)
        if mask.documents_BS is None:
            return _padded_rows(mask, place_BT)
        if torch.compiler.is_compiling() or given.is_meta:
            return None
        return _documents(mask, place_BT, anchored)

    def spread(self, x_BTX: Tensor, numbers_RL: Tensor) -> Tensor:
        """(R, L, ...) a group's rows from (B, T, ...)."""
        return taken(x_BTX.flatten(0, 1)[None], numbers_RL)[0]

    def merged(self, outs: list[Tensor]) -> Tensor:
        """(B, T, ...) from the groups' (R, L, ...); 0 for a token in no document."""
        flat = torch.cat([out.flatten(0, 1) for out in outs])
        return taken(torch.cat([flat, torch.zeros_like(flat[:1])])[None], self.number_BT)[0]

    def empty_BT(self, device: torch.device) -> Tensor:
        """(B, T) bool: tokens that may attend to nothing."""
        sees = []
        for numbers_RL, mask in self.groups:
            empty_RL = mask.empty_BT(device)
            full = torch.ones_like(numbers_RL, dtype=torch.bool)
            sees.append(full if empty_RL is None else full & ~empty_RL)
        return ~self.merged(sees)


def _padded_rows(mask: Mask, place_BT: Tensor) -> Packing:
    """Each row of the batch, moved to the left so that its tokens begin at 0: nothing depends on the lengths."""
    batch, tokens = place_BT.shape
    slot_T = torch.arange(tokens, device=place_BT.device)
    before_B1 = (place_BT < 0).sum(1, keepdim=True)
    row_B1 = torch.arange(batch, device=place_BT.device)[:, None] * tokens
    there_BT = slot_T + before_B1 < tokens
    numbers_BT = row_B1 + torch.where(there_BT, slot_T + before_B1, 0)
    number_BT = torch.where(place_BT >= 0, row_B1 + place_BT, batch * tokens)
    return Packing([(numbers_BT, _group_mask(mask, numbers_BT, there_BT, before_B1[:, 0]))], number_BT)


def _documents(mask: Mask, place_BT: Tensor, anchored: bool) -> Packing | None:
    """Documents by length, each group at most 1.4 times as long as its shortest."""
    assert mask.documents_BS is not None
    batch, tokens = place_BT.shape
    place = place_BT.flatten()
    begins = (place == 0).nonzero()[:, 0]
    rows = begins // tokens
    names = torch.stack([rows, mask.documents_BS.flatten()[begins]])
    if not begins.numel() or torch.unique(names, dim=1).shape[1] < begins.numel():
        return None  # nothing, or a document in two pieces that see each other
    counted = torch.zeros_like(begins).scatter_add(
        0, ((place == 0).cumsum(0) - 1).clamp(min=0), (place >= 0).to(begins.dtype)
    )
    by_size: dict[int, list[int]] = {}
    for index, length in enumerate(counted.tolist()):
        by_size.setdefault(math.ceil(2 * math.log2(length)), []).append(index)
    lengths = {size: int(counted[chosen].max()) for size, chosen in by_size.items()}
    scores = sum(len(chosen) * lengths[size] ** 2 for size, chosen in by_size.items())
    if not anchored and 2 * scores > batch * tokens**2:
        return None
    groups, done = [], 0
    number = torch.full_like(place, sum(len(chosen) * lengths[size] for size, chosen in by_size.items()))
    for size, chosen in sorted(by_size.items()):
        step_L = torch.arange(lengths[size], device=place.device)
        there_RL = step_L < counted[chosen][:, None]
        numbers_RL = torch.where(there_RL, begins[chosen][:, None] + step_L, 0)
        index_RL = done + torch.arange(there_RL.numel(), device=place.device).view_as(there_RL)
        number[numbers_RL[there_RL]] = index_RL[there_RL]
        done += there_RL.numel()
        groups.append((numbers_RL, _group_mask(mask, numbers_RL, there_RL, begins[chosen] % tokens)))
    return Packing(groups, number.view_as(place_BT))


def _group_mask(mask: Mask, numbers_RL: Tensor, there_RL: Tensor, begins_R: Tensor) -> Mask:
    """The same mask over rows that begin at 0, each one document, perhaps with nothing behind it."""
    valid_RL = there_RL if mask.valid_BS is None else there_RL & mask.valid_BS.flatten()[numbers_RL]
    hidden_anyway = mask.valid_BS is None and mask.causal and mask.prefix_B is None
    prefix_R = None
    if mask.prefix_B is not None:
        prefix_R = (mask.prefix_B[numbers_RL[:, 0] // mask.keys] - begins_R).clamp(min=0)
    length = numbers_RL.shape[1]
    return mask.changed(
        prefix_B=prefix_R,
        valid_BS=None if hidden_anyway else valid_RL,
        documents_BS=None,
        documents_BT=None,
        queries=length,
        keys=length,
        one_document=True,
    )
