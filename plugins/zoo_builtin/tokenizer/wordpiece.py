"""BERT's WordPiece: words without case and accents, cut into the longest pieces that a vocabulary has.

    word = longest piece that begins it + "##" longest piece that continues + ...; [UNK] if a piece is missing

Schuster and Nakajima 2012; Wu and others 2016 (arXiv:1609.08144); as in BERT (arXiv:1810.04805), with a published
vocab.txt or trained on the training text like byte pairs, by ``tokenizers``. Text doesn't come back: white space,
control characters, and with ``lower_case`` case and accents are dropped. Cost: some 2 MB of text a second and core.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.contracts.tokenizer import Tokenizer, utf8
from zoo.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

__all__ = ["Wordpiece"]

logger = logging.getLogger(__name__)

_UNKNOWN = "[UNK]"
_SPECIALS = {"padding": "[PAD]", "class": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
_CONTINUES = "##"


class Wordpiece(Tokenizer):
    """Pieces of normalized words."""

    exact: ClassVar[bool] = False

    @dataclasses.dataclass(kw_only=True)
    class Config(Tokenizer.Config):
        """Where the vocabulary comes from, and how text is normalized."""

        vocab: Path | None = None
        """File of a published vocabulary, a piece a line (BERT's vocab.txt); null trains one on the training text."""
        vocab_size: int = 8192
        """Number of ids to train: [PAD], [UNK], [CLS], [SEP], [MASK], characters, and the merged pieces."""
        min_frequency: int = 2
        """How often a pair must occur to be merged in training."""
        alphabet: int = 1000
        """Most frequent characters that training keeps; a word with another one is [UNK]."""
        lower_case: bool = True
        """Make letters small, as the uncased BERTs do."""
        strip_accents: bool | None = None
        """Drop accents; null means only together with ``lower_case``."""
        split_chinese: bool = True
        """Make each Chinese character a word."""
        longest_word: int = 100
        """A word with more characters is [UNK]."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        _check_config(config)
        self._pieces: list[str] = []
        self._made: tuple[Library, dict[str, int]] | None = None

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special ones included."""
        return len(self._vocabulary())

    @property
    def end_of_text(self) -> int:
        """The id of [SEP], which ends a BERT's sentences."""
        return self.specials["separator"]

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of [MASK], [CLS], [SEP] and [PAD] as ``mask``, ``class``, ``separator`` and ``padding``."""
        _, ids = self._library()
        return MappingProxyType({name: ids[piece] for name, piece in _SPECIALS.items()})

    def fit(self, documents: Iterable[str]) -> None:
        """Train on the documents, unless there is a published vocabulary; the same documents give the same ids."""
        if self.config.vocab is None:
            self._take(_train(documents, self.config))

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of a text; a text that spells [MASK] says ``[``, ``mask``, ``]``."""
        library, _ = self._library()
        utf8(text)
        return library.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of several texts, on all cores."""
        library, _ = self._library()
        for text in texts:
            utf8(text)
        found = library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(encoding.ids, dtype=np.int64) for encoding in found]

    def token_bytes(self, token: int) -> bytes:
        """A space and a word's first piece, or the letters of a further piece; U+FFFD for [UNK]."""
        pieces = self._vocabulary()
        if not 0 <= token < len(pieces) or pieces[token] in _SPECIALS.values():
            return b""
        if pieces[token] == _UNKNOWN:
            return " \ufffd".encode()
        first, rest = pieces[token][:2], pieces[token][2:]
        return rest.encode() if first == _CONTINUES and rest else f" {pieces[token]}".encode()

    def decode(self, tokens: Iterable[int]) -> str:
        """The words with a space between two, without one in front."""
        return super().decode(tokens).removeprefix(" ")

    def state(self) -> dict[str, Any]:
        """All pieces in the order of their ids, so that a run needs no other file; empty before there are any."""
        if self.config.vocab is not None:
            self._vocabulary()
        return {"pieces": list(self._pieces)} if self._pieces else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the pieces.

        Raises:
            UserError: no list of pieces, each once, with the special ones among them.
        """
        pieces = state.get("pieces")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise UserError("this is no state of a wordpiece tokenizer: it needs 'pieces', a list of texts")
        self._take(pieces)

    def fingerprint(self) -> str:
        """Hash of the pieces and of the knobs; where a vocabulary's file lies decides no id."""
        knobs = {**dataclasses.asdict(self.config), "vocab": self.config.vocab is not None}
        return hashlib.sha256(json.dumps([knobs, self.state()], sort_keys=True).encode()).hexdigest()

    def _vocabulary(self) -> list[str]:
        if not self._pieces:
            if self.config.vocab is None:
                raise RuntimeError("a wordpiece tokenizer has no vocabulary before fit or restore")
            self._take(_read_vocabulary(self.config.vocab.expanduser()), where=str(self.config.vocab))
        return self._pieces

    def _take(self, pieces: list[str], where: str | None = None) -> None:
        ids: dict[str, int] = {}
        for number, piece in enumerate(pieces):
            if ids.setdefault(piece, number) != number:
                at = f"{where}:{number + 1}" if where else None
                raise UserError(f"the piece {piece!r} is twice in the vocabulary: {ids[piece]} and {number}", where=at)
        if missing := [piece for piece in (_UNKNOWN, *_SPECIALS.values()) if piece not in ids]:
            raise UserError(
                f"a BERT vocabulary has {', '.join(missing)}; this one, of {len(pieces)} pieces, hasn't",
                where=where,
                fix="name a BERT's vocab.txt, a piece a line",
            )
        self._pieces, self._made = list(pieces), None

    def _library(self) -> tuple[Library, dict[str, int]]:
        """What encodes, and the id of each piece."""
        if self._made is None:
            from tokenizers.models import WordPiece

            ids = {piece: number for number, piece in enumerate(self._vocabulary())}
            model = WordPiece(ids, unk_token=_UNKNOWN, max_input_chars_per_word=self.config.longest_word)
            self._made = _with_words(model, self.config), ids
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        """Another process makes the library's object itself."""
        return {**self.__dict__, "_made": None}


def _check_config(config: Wordpiece.Config) -> None:
    least = {"vocab_size": len(_SPECIALS) + 2, "min_frequency": 1, "alphabet": 1, "longest_word": 1}
    for name, lowest in least.items():
        if getattr(config, name) < lowest:
            raise UserError(
                f"{name} is {getattr(config, name)}", where=f"tokenizer.{name}", fix=f"set it to {lowest} or more"
            )


def _with_words(model: Any, config: Wordpiece.Config) -> Library:
    """BERT's words: cleaned, Chinese characters set apart, no accents, no case, cut at spaces and punctuation."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers

    library = Tokenizer(model)
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.split_chinese,
        strip_accents=config.strip_accents,
        lowercase=config.lower_case,
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _read_vocabulary(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().decode().split("\n")
    except OSError as error:
        raise UserError(
            f"can't read the vocabulary {path}: {error.strerror}",
            where="tokenizer.vocab",
            fix="name a BERT's vocab.txt, or leave vocab out to train one on the data",
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"byte {error.start} of the vocabulary is no UTF-8 text: {error.reason}",
            where=str(path),
            fix="name a BERT's vocab.txt, a piece a line",
        ) from None
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _train(documents: Iterable[str], config: Wordpiece.Config) -> list[str]:
    """Pieces in the order of their ids.

    ``tokenizers`` gives continuing characters ids in the order of a hash table, another one in each process, and
    breaks ties between merges by id. So all characters are handed to it as special tokens, in a fixed order; for
    that, they must be known before it begins, and the normalized text waits in a file.
    """
    from tokenizers.models import WordPiece
    from tokenizers.trainers import WordPieceTrainer

    library = _with_words(WordPiece(unk_token=_UNKNOWN), config)
    with tempfile.TemporaryDirectory(prefix="zoo-wordpiece-") as folder:
        normalized = Path(folder) / "normalized.txt"
        kept = _alphabet(_write_normalized(library, documents, normalized), config.alphabet)
        specials = [_SPECIALS["padding"], _UNKNOWN, *list(_SPECIALS.values())[1:]]
        first = [*specials, *kept, *(_CONTINUES + character for character in kept if _continues(library, character))]
        if len(first) > config.vocab_size:
            raise UserError(
                f"{len(specials)} special pieces and {len(kept)} characters, at the beginning of words and inside, "
                f"are {len(first)} ids; vocab_size is {config.vocab_size}",
                where="tokenizer.vocab_size",
                fix=f"set it to more than {len(first)}, or tokenizer.alphabet to fewer characters",
            )
        trainer = WordPieceTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_frequency,
            special_tokens=first,
            initial_alphabet=kept,
            limit_alphabet=len(kept),
            continuing_subword_prefix=_CONTINUES,
            show_progress=False,
        )
        library.train([str(normalized)], trainer)
    pieces = sorted(library.get_vocab(with_added_tokens=False).items(), key=lambda entry: entry[1])
    if len(pieces) < config.vocab_size:
        logger.warning(
            "wordpiece: %d ids instead of %d: no other pair occurs %d times in the training text",
            len(pieces),
            config.vocab_size,
            config.min_frequency,
        )
    return [piece for piece, _ in pieces]


def _write_normalized(library: Library, documents: Iterable[str], path: Path) -> Counter[str]:
    """Write the normalized documents, which is as BERT sees them, and count their characters."""
    counts: Counter[str] = Counter()
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for document in documents:
            utf8(document)
            text = library.normalizer.normalize_str(document)
            counts.update(text)
            stream.write(text + "\n")
    return counts


def _alphabet(counts: Counter[str], most: int) -> list[str]:
    """The most frequent characters but white space, sorted; of equally frequent ones the first of the alphabet."""
    written = [(-count, character) for character, count in counts.items() if not character.isspace()]
    return sorted(character for _, character in sorted(written)[:most])


def _continues(library: Library, character: str) -> bool:
    """Whether a word can go on with a character; it can't with a Chinese one or a full stop."""
    pair = library.normalizer.normalize_str("a" + character)
    return len(library.pre_tokenizer.pre_tokenize_str(pair)) == 1
