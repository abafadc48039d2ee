"""Conformance of an attention layer: every word in ``offers`` has checks that run because the word is there."""

from __future__ import annotations

from zoo.testing import attention_basics, attention_cache, attention_kernels, attention_long, attention_masks
from zoo.testing.attention_case import SUITE
from zoo.testing.modules import BRANCH_CHECKS, MODULE_CHECKS

__all__ = ["SUITE", "attention_basics", "attention_cache", "attention_kernels", "attention_long", "attention_masks"]

SUITE.include([*BRANCH_CHECKS, *MODULE_CHECKS])
