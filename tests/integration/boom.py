"""An attention that brings a run to a bad end, in one of three ways."""

from __future__ import annotations

import dataclasses
import os
import signal
from typing import Any, Literal

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention

__all__ = ["Boom"]


class Boom(HeadedAttention):
    """Ends the run at the first forward pass with values."""

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """The way."""

        way: Literal["raise", "kill", "nan"] = "raise"
        """An exception, a process that is gone, or a loss that isn't finite."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Any) -> Tensor:
        """(B, N, T, V) of nan, if it comes to that."""
        if self.config.way == "raise":
            raise RuntimeError("boom")
        if self.config.way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV * torch.nan
