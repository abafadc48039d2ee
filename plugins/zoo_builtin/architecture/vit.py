"""A vision transformer: an image's patches as tokens of an encoder.

    image -> patches, each projected; class token in front -> + positions -> dropout
          -> [ x + attention(norm(x)); x + feed_forward(norm(x)) ] x layers
          -> norm -> hidden -> class token's hidden state -> scores of the classes

Dosovitskiy et al. 2021, "An image is worth 16x16 words", arXiv:2010.11929, equations 1 to 4 (article, section 8).
The defaults are the sizes of ViT-B/16; presets add eps 1e-6 and exact GELU.
"""

from __future__ import annotations

from typing import final

from zoo.nn.single_stack import SingleStack, single_stack_slots

__all__ = ["ViT"]


@final
class ViT(SingleStack):
    """A bidirectional model of image patches."""

    causal = False
    offers = frozenset({"bidirectional"})
    slots = single_stack_slots(
        embedding="patches",
        position="learned",
        residual="pre",
        head="classification",
        needs=frozenset({"bidirectional"}),
    )
