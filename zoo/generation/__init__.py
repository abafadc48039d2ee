"""Generation: one token after another, cached, several prompts in a batch as if each were alone."""

from zoo.generation.prompts import Generated, can_generate, has_cache
from zoo.generation.text import Continuation, TextStream, continue_texts
from zoo.generation.tokens import generate

__all__ = ["Continuation", "Generated", "TextStream", "can_generate", "continue_texts", "generate", "has_cache"]
