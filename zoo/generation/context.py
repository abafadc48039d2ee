"""What some rows hold so far, and what the model remembers of it.

Dimension legend: B rows, T tokens, S tokens of a source, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.head import TokenHead
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.generation.prompts import Prompt


class Context:
    """Rows that grow by an id at a time, one for each prompt at first.

    Prompts are padded on the left, so that all rows go on at the same place; sources on the right.

    Args:
        model: what reads them, in evaluation mode.
        prompts: at least one.
        cache: keep keys, values and the encoder's memory; without it everything is computed again for each id.
    """

    def __init__(self, model: Architecture, prompts: Sequence[Prompt], cache: bool) -> None:
        self.model, self.head = model, cast(TokenHead, model.head)
        self.device = self.head.weight.device
        self.cache = Cache() if cache else None
        self.ids_BT, self.valid_BT = self._padded([prompt.ids for prompt in prompts], left=True)
        self._source: dict[str, Tensor | None] = {}
        sources = [prompt.source for prompt in prompts if prompt.source is not None]
        if sources:
            source_BS, valid_BS = self._padded(sources, left=False)
            self._source = {"source_BS": source_BS, "source_valid_BS": valid_BS}

    def _padded(self, rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Tensor, Tensor | None]:
        """Rows of one width, and where they hold something, or ``None`` where that is everywhere."""
        widest = max(map(len, rows))
        gaps = [[0] * (widest - len(row)) for row in rows]
        padded = [[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)]
        lengths_B1 = torch.tensor([[len(row)] for row in rows], device=self.device)
        place_T = torch.arange(widest, device=self.device)
        valid_BT = place_T >= widest - lengths_B1 if left else place_T < lengths_B1
        ids_BT = torch.tensor(padded, dtype=torch.int64, device=self.device)
        return ids_BT, valid_BT if any(gaps) else None

    def scores(self) -> Tensor:
        """(B, V) scores of the next id, float32 or wider."""
        seen = self.cache.length if self.cache else 0
        valid_BT = None if self.valid_BT is None else self.valid_BT[:, seen:]
        mask = Mask(causal=True, valid_BS=valid_BT)
        hidden_BTD = self.model(self.ids_BT[:, seen:], mask=mask, cache=self.cache, **self._source).hidden
        if self.cache:
            self._source = {}  # the cache knows it now
        scores_BV = self.head(hidden_BTD[:, -1])
        return scores_BV.to(torch.promote_types(scores_BV.dtype, torch.float32))

    def append(self, tokens_B: Tensor) -> None:
        """Put a new id behind each row."""
        self.ids_BT = torch.cat([self.ids_BT, tokens_B[:, None]], 1)
        if self.valid_BT is not None:
            self.valid_BT = torch.cat([self.valid_BT, self.valid_BT.new_ones(len(tokens_B), 1)], 1)

    def keep(self, places: list[int]) -> None:
        """Go on with these rows, in this order; a row may be taken several times."""
        index_B = torch.tensor(places, device=self.device)
        self.ids_BT = self.ids_BT[index_B]
        self.valid_BT = None if self.valid_BT is None else self.valid_BT[index_B]
        self._source = {name: None if rows is None else rows[index_B] for name, rows in self._source.items()}
        if self.cache:
            self.cache.reorder(index_B)
