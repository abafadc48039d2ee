"""Generation: one token after another, cached, several prompts in a batch as if each were alone."""

from zoo.generation.text import Continuation, TextStream, continue_texts
from zoo.generation.tokens import Generated, generate, has_cache

__all__ = ["Continuation", "Generated", "TextStream", "continue_texts", "generate", "has_cache"]
