"""Conformance of a data set: a batch is a pure function of its draw, parts are disjoint, sizes are told in advance."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.data import Draw, Split
from zoo.registry import Registry
from zoo.testing.modules import documented_config
from zoo.testing.suite import Check, Failed, Skipped, Suite

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_ROWS = 8
_COMPARED = 2048
_ANSWERS = ("targets", "labels")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataCase:
    """One part of a data set with its default knobs, prepared."""

    subject: DataSubject
    split: Split

    @property
    def label(self) -> str:
        """``train``."""
        return self.split

    @property
    def component(self) -> type[Any]:
        """The class."""
        return self.subject.component

    @property
    def data(self) -> Any:
        """The prepared data set."""
        return self.subject.prepared()

    @property
    def size(self) -> int:
        """Number of samples in the part.

        Raises:
            Skipped: the part is empty.
        """
        if not (size := self.data.size(self.split)):
            raise Skipped(f"there is no {self.split} part")
        return size

    def batch(self, samples: Sequence[int], *, data: Any = None, epoch: int = 0, seed: int = 0) -> dict[str, Tensor]:
        """The batch of these samples."""
        ids = np.asarray(samples, dtype=np.int64)
        draw = Draw(ids, np.full_like(ids, epoch), seed)
        return (data or self.data).batch(draw, self.split)

    def some(self) -> list[int]:
        """A few samples from all over the part."""
        return [int(sample) for sample in np.linspace(0, self.size - 1, _ROWS)]


class DataSubject:
    """A data set class with its default knobs and the default part in each of its slots."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], *, plugins: Sequence[Path | str] = (), **others: Any) -> None:
        self.component, self._plugins = component, plugins
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._prepared: Any = None

    def new(self) -> Any:
        """The data set before ``prepare``; all of them share a cache."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="zoo-check-")
        registry = Registry.discover(self._plugins)
        parts = {name: registry.find(slot.kind, slot.default) for name, slot in self.component.slots.items()}
        made = {name: record.load()(record.load().Config()) for name, record in parts.items()}
        return self.component(self.component.Config(), cache=Path(self._folder.name), **made)

    def prepared(self) -> Any:
        """The data set after ``prepare``, the same one each time."""
        if self._prepared is None:
            made = self.new()
            made.prepare()
            self._prepared = made
        return self._prepared

    def cases(self, check: Check) -> Iterator[DataCase]:
        """The three parts."""
        for split in SPLITS:
            yield DataCase(subject=self, split=split)


SUITE = Suite("data", DataSubject)


@SUITE.check("tells its sizes and gives batches")
def runs(case: DataCase) -> str:
    """Every tensor of a batch has a row for each sample, whichever samples are asked for."""
    for samples in ([0], case.some(), [case.size - 1] * 3):
        for name, tensor in case.batch(samples).items():
            if not isinstance(tensor, Tensor) or not tensor.ndim or tensor.shape[0] != len(samples):
                raise Failed(f"{name} of a batch of {len(samples)} is {tuple(getattr(tensor, 'shape', ()))}")
    return f"{case.size:,} samples in the {case.split} part"


@SUITE.check("a batch is a function of its draw")
def pure(case: DataCase) -> None:
    """Asked for again, after others, or by another object, it is bit-equal; a sample doesn't depend on the others."""
    samples = case.some()
    want = case.batch(samples, epoch=1, seed=3)
    case.batch(samples[::-1], epoch=2, seed=4)
    other = case.subject.new()
    other.prepare()
    for what, data in (("a second time", None), ("by another object", other)):
        _check_equal(case.batch(samples, epoch=1, seed=3, data=data), want, f"the same batch {what}")
    alone = case.batch(samples[2:3], epoch=1, seed=3)
    _check_equal(_unpadded(alone, 0), _unpadded(want, 2), "sample 2 of a batch, alone")


def _check_equal(got: dict[str, Tensor], want: dict[str, Tensor], what: str) -> None:
    if got.keys() != want.keys():
        raise Failed(f"{what} has the keys {sorted(got)} instead of {sorted(want)}")
    for name, tensor in want.items():
        if not torch.equal(got[name], tensor):
            raise Failed(f"{what} has another {name}")


def _unpadded(batch: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """A row of a batch without the padding that ``valid`` and ``source_valid`` show."""
    over_tokens = [name for name in batch if batch[name].ndim > 1 and name != "slices" and _mask_of(name) in batch]
    masks = {name: batch[_mask_of(name)][row] for name in over_tokens}
    return {name: tensor[row][masks[name]] if name in masks else tensor[row] for name, tensor in batch.items()}


def _mask_of(name: str) -> str:
    return "source_valid" if name.startswith("source") else "valid"


@SUITE.check("padding is on the right, and lengths are told")
def padding(case: DataCase) -> None:
    """What isn't valid follows what is and has no target; where rows differ in width, each has a length."""
    batch = case.batch(case.some())
    for name in batch.keys() & {"valid", "source_valid"}:
        mask = batch[name]
        if mask.dtype != torch.bool or bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise Failed(f"{name} isn't True on the left and False on the right of each row")
        if not bool(mask[:, 0].all()):
            raise Failed(f"{name} has a row with nothing valid, and it is no empty row")
    if "targets" in batch and "valid" in batch and bool((batch["targets"][~batch["valid"]] != -100).any()):
        raise Failed("targets has targets where there is padding")
    lengths = case.data.lengths(case.split)
    if lengths is None:
        for sample in case.some():
            if any(tensor.shape[1:] != batch[name].shape[1:] for name, tensor in case.batch([sample]).items()):
                raise Failed(f"sample {sample} alone has another width, but lengths() is None")
    elif lengths.shape != (case.size,) or lengths.dtype.kind not in "iu" or lengths.min() < 1:
        raise Failed(f"lengths() is {lengths.shape} {lengths.dtype}; it should hold {case.size} whole numbers from 1")


@SUITE.check("no global random state")
def global_state(case: DataCase) -> None:
    """Neither reads nor moves the generators of numpy and torch, which ranks and workers don't share."""
    samples = case.some()
    torch.manual_seed(1)
    np.random.seed(1)
    want = case.batch(samples, epoch=1)
    drawn = (float(torch.rand(())), float(np.random.rand()))
    torch.manual_seed(1)
    np.random.seed(1)
    if drawn != (float(torch.rand(())), float(np.random.rand())):
        raise Failed("a batch moved the global generators of torch or numpy")
    _check_equal(case.batch(samples, epoch=1), want, "the same batch under another global seed")


@SUITE.check("whole numbers fit the sizes it tells")
def ids_fit(case: DataCase) -> None:
    """Token ids are below ``vocab_size``, sequences no longer than ``max_length``; -100 is the only negative number."""
    about = case.data.describe()
    batch = case.batch(case.some())
    for name in ("ids", "blanked", "targets", "source"):
        if name not in batch or about.vocab_size is None:
            continue
        if int(batch[name].max()) >= about.vocab_size:
            raise Failed(f"{name} has {int(batch[name].max())}, the vocabulary is said to have {about.vocab_size}")
        lowest = int(batch[name].min())
        if lowest < 0 and (name != "targets" or set(batch[name][batch[name] < 0].tolist()) != {-100}):
            raise Failed(f"{name} has {lowest}")
        if about.max_length is not None and batch[name].shape[1] > about.max_length:
            raise Failed(f"{name} has {batch[name].shape[1]} tokens, max_length is said to be {about.max_length}")


@SUITE.check("images and labels fit the sizes it tells")
def images_fit(case: DataCase) -> None:
    """Images are float32 of the size and channels it tells, labels are classes; both sizes are told."""
    about = case.data.describe()
    batch = case.batch(case.some())
    if not {"images", "labels"} & batch.keys():
        raise Skipped("batches hold neither images nor labels")
    if "images" in batch:
        told, shape = (about.channels, *(about.image_size or ())), tuple(batch["images"].shape[1:])
        if shape != told or batch["images"].dtype != torch.float32 or not batch["images"].isfinite().all():
            raise Failed(f"images are {shape} {batch['images'].dtype}, channels and image_size are said to be {told}")
    if "labels" in batch:
        lowest, highest = int(batch["labels"].min()), int(batch["labels"].max())
        names = case.data.labels()
        if about.classes is None or lowest < 0 or highest >= about.classes:
            raise Failed(f"labels are {lowest} to {highest}, the number of classes is said to be {about.classes}")
        if names is not None and (len(names), len(set(names))) != (about.classes, about.classes):
            raise Failed(f"{about.classes} classes have {len(names)} names: {', '.join(names)}")


@SUITE.check("slices are told in advance, and each sample says which it is in")
def slices_told(case: DataCase) -> str:
    """Names end in a number and are there once; ``slices`` has a column for each, and an empty row is in none."""
    names = tuple(case.data.slices())
    batch = case.batch([*case.some(), -1])
    if not names:
        if "slices" in batch:
            raise Failed("a batch has slices, and slices() names none")
        raise Skipped("it has no slices")
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[a-z][a-z0-9_]*_\d+", name) for name in names):
        raise Failed(f"slices are called {', '.join(names)}; they need different names that end in a number: length_8")
    found = batch.get("slices")
    if found is None or found.dtype != torch.bool or found.shape != (_ROWS + 1, len(names)):
        told = None if found is None else (found.dtype, tuple(found.shape))
        raise Failed(f"slices of {_ROWS + 1} rows is {told}; it must be bool ({_ROWS + 1}, {len(names)})")
    if bool(found[-1].any()):
        raise Failed("an empty row is in a slice")
    if not bool(found[:-1].any()):
        raise Failed(f"none of the samples {case.some()} is in any of the slices")
    return ", ".join(names)


@SUITE.check("an oracle is right wherever there is a target")
def oracle_right(case: DataCase) -> str:
    """It is given no target, and no answer that stands in the input where the data has it ``blanked``."""
    count = min(case.size, 8 * _ROWS)
    batch = case.batch([*np.linspace(0, case.size - 1, count).astype(int).tolist(), -1])
    given = {name: value for name, value in batch.items() if name not in (*_ANSWERS, "blanked")}
    found = case.data.oracle({**given, "ids": batch["blanked"]} if "blanked" in batch else given)
    if found is None:
        raise Skipped("nobody knows the answers")
    asked = batch["targets"] != -100
    if found.shape != asked.shape:
        raise Failed(f"the oracle's answers are {tuple(found.shape)}, targets {tuple(asked.shape)}")
    if wrong := int((found != batch["targets"])[asked].sum()):
        row = int(((found != batch["targets"]) & asked).any(1).nonzero()[0])
        raise Failed(f"the oracle is wrong at {wrong} of {int(asked.sum())} targets, first in row {row}")
    return f"{int(asked.sum())} answers of {count} samples"


@SUITE.check("a written answer is blanked, and nothing else is")
def blanked(case: DataCase) -> None:
    """``blanked`` differs from ``ids`` where a token is the target of the place before, and has one id there."""
    batch = case.batch(case.some())
    if "blanked" not in batch:
        raise Skipped("answers aren't written into the input")
    ids, blank = batch["ids"], batch["blanked"]
    if blank.shape != ids.shape:
        raise Failed(f"blanked is {tuple(blank.shape)}, ids {tuple(ids.shape)}")
    written = F.pad(ids[:, 1:] == batch["targets"][:, :-1], (1, 0)) & F.pad(batch["targets"][:, :-1] != -100, (1, 0))
    written &= batch.get("valid", torch.ones_like(written))
    if bool((blank != ids)[~written].any()):
        raise Failed("blanked differs from ids where no answer is written")
    if (kinds := blank[written].unique()).numel() > 1:
        raise Failed(f"{kinds.numel()} different ids stand for written answers in blanked; it must be one for all")


@SUITE.check("the chance level is that of its samples")
def chance_level(case: DataCase) -> str:
    """A share above 0 and below 1, and in billionths for each sample, 0 for an empty row."""
    batch, level = case.batch([*case.some(), -1]), case.data.chance(case.split)
    if level is None:
        if "chance" in batch:
            raise Failed("a batch has chance, and chance() is None")
        raise Skipped("nobody has worked it out")
    each = batch.get("chance")
    if each is None or each.dtype != torch.int64 or each.shape != (_ROWS + 1,):
        raise Failed(f"chance of {_ROWS + 1} rows is {each}; it must be int64 ({_ROWS + 1},), in billionths")
    if not 0 < level < 1 or int(each[:-1].min()) <= 0 or int(each[:-1].max()) >= 10**9 or int(each[-1]):
        raise Failed(f"chance() is {level}, and in billionths for some samples and an empty row {each.tolist()}")
    return f"{level:.4f}"


@SUITE.check("an empty row has no target")
def empty_rows(case: DataCase) -> None:
    """Sample -1 fills a row up: same shapes, nothing to predict, the rows beside it unchanged."""
    samples = case.some()[:2]
    want, got = case.batch(samples), case.batch([samples[0], -1])
    _check_equal(_unpadded(got, 0), _unpadded(want, 0), "the row beside an empty one")
    for name in got.keys() & {"valid", "source_valid"}:
        if bool(got[name][1].any()):
            raise Failed(f"an empty row has something {name}")
    for name in got.keys() & set(_ANSWERS):
        if bool((got[name][1] != -100).any()):
            raise Failed(f"an empty row has {name}")


@SUITE.check("parts are disjoint")
def disjoint(case: DataCase) -> str:
    """No row of a part is a row of the training part (up to 2,048 rows of each are compared)."""
    if case.split == "train":
        raise Skipped("compared from the other parts")
    train = dataclasses.replace(case, split="train")
    shared = _row_hashes(case) & _row_hashes(train)
    if shared:
        raise Failed(f"{len(shared)} rows of the {case.split} part are in the training part, too")
    return f"{min(case.size, _COMPARED)} rows of the {case.split} part compared"


def _row_hashes(case: DataCase) -> set[bytes]:
    hashes = set()
    chosen = np.unique(np.linspace(0, case.size - 1, min(case.size, _COMPARED)).astype(np.int64))
    for samples in np.array_split(chosen, -(-len(chosen) // 128)):
        batch = case.batch(samples.tolist())
        for row in range(len(samples)):
            content = [value for name, value in sorted(_unpadded(batch, row).items()) if name not in _ANSWERS]
            hashes.add(hashlib.sha256(b"".join(value.contiguous().numpy().tobytes() for value in content)).digest())
    return hashes


@SUITE.check("parts don't depend on the seed")
def fixed_parts(case: DataCase) -> None:
    """Sizes, fingerprint and every evaluation batch are the same for another seed and by another object."""
    other = case.subject.new()
    other.prepare()
    for what, one, two in (
        ("size", case.data.size(case.split), other.size(case.split)),
        ("fingerprint", case.data.fingerprint(), other.fingerprint()),
        ("description", case.data.describe(), other.describe()),
    ):
        if one != two:
            raise Failed(f"its {what} is {one}, and {two} when it is made again")
    if case.split != "train":
        samples = case.some()
        _check_equal(case.batch(samples, seed=1), case.batch(samples, seed=0), "an evaluation batch of another seed")


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: DataCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
