"""Conformance of a tokenizer: text to ids and back, exactly unless it says otherwise, whatever the text says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from zoo.errors import UserError
from zoo.testing.modules import documented_config
from zoo.testing.suite import Check, Failed, Skipped, Suite
from zoo.testing.variants import Variant, variants

NASTY = [
    "",
    " ",
    "\n",
    "\r\n\t  \n",
    "plain words, and a number: 1234567890",
    "é😀 — naïve café 日本語 العربية עברית",
    "e\u0301 👩‍👩‍👧 \u200b\u202e",
    "\ufeffa byte order mark, a \x00 and a \x7f",
    "a <|endoftext|> b <s></s> [CLS] [MASK] <pad>",
    "x" * 300,
    "    def f(x):\n        return x  # four spaces\n",
    "\ufffd",
]
"""Texts that have broken tokenizers."""

_UNKNOWN = "\ufffd"

_CORPUS = [*NASTY, "the quick brown fox jumps over the lazy dog. " * 20, "a b c d e f g " * 20]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerCase:
    """One tokenizer with certain knobs, fitted on a small corpus that has every character of the texts."""

    component: type[Any]
    variant: Variant

    @property
    def label(self) -> str:
        """``unknown=replace``."""
        return self.variant.label

    def new(self) -> Any:
        """The tokenizer before it has learned anything."""
        return self.component(self.component.Config(**self.variant.knobs))

    def make(self) -> Any:
        """The tokenizer after ``fit``.

        Raises:
            Skipped: it needs a file that this machine doesn't have.
        """
        try:
            made = self.new()
            made.fit(iter(_CORPUS))
            made.encode("")
        except UserError as error:
            raise Skipped(f"it can't be made here: {error.what}") from error
        return made


class TokenizerSubject:
    """A tokenizer class."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], **others: Any) -> None:
        self.component = component

    def cases(self, check: Check) -> Iterator[TokenizerCase]:
        """The defaults and each knob changed."""
        for variant in variants(self.component, lambda variant: True):
            yield TokenizerCase(component=self.component, variant=variant)


SUITE = Suite("tokenizer", TokenizerSubject)


@SUITE.check("text comes back exactly")
def round_trip(case: TokenizerCase) -> str:
    """Spaces, line ends, combining characters, bytes that look like markers: all of it."""
    tokenizer = case.make()
    for text in NASTY:
        ids = list(tokenizer.encode(text))
        back = tokenizer.decode(ids)
        if tokenizer.exact and back != text:
            raise Failed(
                f"{text[:40]!r} comes back as {back[:40]!r}; a tokenizer that normalizes text says exact = False"
            )
        if not tokenizer.exact and _UNKNOWN not in back and list(tokenizer.encode(back)) != ids:
            raise Failed(f"{text[:40]!r} comes back as {back[:40]!r}, which has other ids")
    return (
        f"{tokenizer.vocab_size} ids" if tokenizer.exact else f"{tokenizer.vocab_size} ids; text comes back normalized"
    )


@SUITE.check("ids are whole numbers below the vocabulary size")
def ids_in_range(case: TokenizerCase) -> None:
    """An embedding table has exactly ``vocab_size`` rows."""
    tokenizer = case.make()
    for text in NASTY:
        wrong = [token for token in tokenizer.encode(text) if not 0 <= int(token) == token < tokenizer.vocab_size]
        if wrong:
            raise Failed(f"{text[:40]!r} gives id {wrong[0]!r}; the vocabulary has {tokenizer.vocab_size}")
    for name, token in _special_ids(tokenizer).items():
        if not 0 <= token < tokenizer.vocab_size:
            raise Failed(f"{name} is {token}, the vocabulary has {tokenizer.vocab_size}")


@SUITE.check("special tokens have no text, and no text is special")
def nothing_special(case: TokenizerCase) -> None:
    """A document that spells a marker gets ordinary ids; special ids and ids out of range have no bytes."""
    tokenizer = case.make()
    specials = _special_ids(tokenizer)
    if unknown := tokenizer.specials.keys() - {"mask", "class", "separator", "padding"}:
        raise Failed(f"specials has {', '.join(sorted(unknown))}; the names are mask, class, separator, padding")
    if len(set(tokenizer.specials.values())) < len(tokenizer.specials):
        raise Failed(f"two of the specials are one id: {dict(tokenizer.specials)}")
    for text in NASTY:
        if said := set(tokenizer.encode(text)) & set(specials.values()):
            raise Failed(f"{text[:40]!r} holds the special ids {sorted(said)}, which no text may say")
    for token in (*specials.values(), -1, tokenizer.vocab_size, tokenizer.vocab_size + 1000):
        if tokenizer.token_bytes(token):
            raise Failed(f"id {token} has the bytes {tokenizer.token_bytes(token)!r}; it should have none")


def _special_ids(tokenizer: Any) -> dict[str, int]:
    return {"end_of_text": tokenizer.end_of_text, **tokenizer.specials}


@SUITE.check("a text is the bytes of its tokens")
def concatenates(case: TokenizerCase) -> None:
    """``token_bytes`` one after the other is the text's UTF-8, so that a stream can be printed byte by byte.

    Of a tokenizer that isn't exact: the normalized text's, with or without a space in front.
    """
    tokenizer = case.make()
    for text in NASTY:
        ids = list(tokenizer.encode(text))
        joined = b"".join(map(tokenizer.token_bytes, ids))
        fitting = [text] if tokenizer.exact else [tokenizer.decode(ids), " " + tokenizer.decode(ids)]
        if joined not in map(str.encode, fitting):
            raise Failed(f"the tokens of {text[:30]!r} have the bytes {joined[:40]!r}")


@SUITE.check("a batch is its texts")
def batches(case: TokenizerCase) -> None:
    """``encode_batch`` gives what ``encode`` gives one by one, as one-dimensional integer arrays."""
    tokenizer = case.make()
    for text, ids in zip(NASTY, tokenizer.encode_batch(NASTY), strict=True):
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise Failed(f"a text of a batch becomes {ids.ndim}-dimensional {ids.dtype}")
        if ids.tolist() != list(tokenizer.encode(text)):
            raise Failed(f"{text[:40]!r} has other ids in a batch")


@SUITE.check("its state survives JSON")
def restores(case: TokenizerCase) -> None:
    """A new one that takes the state gives the same ids, size and fingerprint; a state of something else is refused."""
    tokenizer, other = case.make(), case.new()
    other.restore(json.loads(json.dumps(tokenizer.state())))
    for text in NASTY:
        if list(other.encode(text)) != list(tokenizer.encode(text)):
            raise Failed(f"after state and restore {text[:40]!r} has other ids")
    if (other.vocab_size, other.end_of_text) != (tokenizer.vocab_size, tokenizer.end_of_text):
        raise Failed("after state and restore the vocabulary has another size or end of text")
    if other.fingerprint() != tokenizer.fingerprint():
        raise Failed("after state and restore the fingerprint is another")
    try:
        case.new().restore({"something": "else"})
    except UserError:
        return
    raise Failed("took the state {'something': 'else'}; raise UserError")


@SUITE.check("the same documents give the same vocabulary")
def fits_the_same(case: TokenizerCase) -> None:
    """Fitting is deterministic, whatever the process."""
    if case.make().fingerprint() != case.make().fingerprint():
        raise Failed("fitted twice on the same documents it has two fingerprints")


@SUITE.check("half a character is refused or replaced, not a crash")
def surrogates(case: TokenizerCase) -> None:
    """A lone surrogate can't be UTF-8: a UserError on encode; half of a character decodes to U+FFFD."""
    tokenizer = case.make()
    try:
        tokenizer.encode("a\ud83d b")
    except UserError:
        pass
    else:
        raise Failed("a lone surrogate was encoded without a word")
    ids = list(tokenizer.encode("😀"))
    if len(ids) > 1 and "\ufffd" not in tokenizer.decode(ids[:-1]):
        raise Failed(f"a part of a character decodes to {tokenizer.decode(ids[:-1])!r}, without U+FFFD")


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: TokenizerCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
