"""Folders of image files: a folder a class, or train, val and test folders of class folders.

Files are told apart by their SHA-256, which is remembered while their sizes and times stay the same. Where all
decoded images fit the budget they are kept in one mapped file, made once, and equal pixels in different files are
found. Beyond it each batch is decoded anew, and only files that are equal byte for byte are known to be equal.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from zoo.contracts.data import Split
from zoo.data.image_files import VERSION, DamagedImageError, Form, check_header, decode
from zoo.data.image_sets import ImageSet
from zoo.data.token_cache import TokenCache, Tokens, open_or_build
from zoo.errors import UserError

OnDamage = Literal["error", "skip"]

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
"""Endings of the files that are read."""

logger = logging.getLogger(__name__)

_PART_FOLDERS: dict[str, Split | None] = {
    "train": None,
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
_DIGEST = 32
_GROUP = 64  # images that are decoded before they are written


class _File(NamedTuple):
    path: Path
    label: int
    given: Split | None
    digest: bytes = b""


class ImageFolder(ImageSet):
    """The images of a folder.

    Args:
        root: the folder.
        form: size and channels.
        errors: what to do about damaged files: stop, or leave them out and say how many.
        check: decode every file once, even if the images are not kept.
        budget: bytes that decoded images may take.
        cache: where they and the files' hashes are kept.

    Raises:
        UserError: no such folder, no class in it, an image outside of the classes, a damaged file.
    """

    def __init__(self, root: Path, form: Form, *, errors: OnDamage, check: bool, budget: float, cache: Path) -> None:
        self.root, self.form, self.errors, self.cache = root, form, errors, cache
        self.classes, files = _find(root)
        self._files = self._identify(files, check)
        self._kept: TokenCache | None = None
        self._slots = np.zeros(0, dtype=np.int64)
        self._skipped: set[int] = set()
        self.keys = [file.digest for file in self._files]
        digests = sorted(set(self.keys))
        self.decoded = len(digests) * math.prod(form.shape) <= budget
        if self.decoded:
            self._keep(digests)
        self.labels = np.array([file.label for file in self._files], dtype=np.int64)
        self.given = [file.given for file in self._files]

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images, from what is kept or from their files.

        Raises:
            UserError: a damaged file, unless they are to be skipped, or one that has changed.
        """
        if self._kept is not None:
            return _pixels(self._kept, self.form)[self._slots[rows]], np.ones(len(rows), dtype=bool)
        pixels = np.zeros((len(rows), *self.form.shape), dtype=np.uint8)
        readable = np.ones(len(rows), dtype=bool)
        for at, row in enumerate(rows):
            try:
                pixels[at] = self._decode(self._files[row])
            except DamagedImageError as error:
                readable[at] = False
                self._refuse({int(row): str(error)}, self._files)
                if row not in self._skipped:
                    self._skipped.add(int(row))
                    logger.warning("skipping damaged image %d: %s", len(self._skipped), self._files[row].path)
        return pixels, readable

    def _decode(self, file: _File) -> np.ndarray:
        data = _bytes(file.path)
        if hashlib.sha256(data).digest() != file.digest:
            raise UserError(
                "an image file changed while it was in use",
                where=str(file.path),
                fix="start again when nothing writes to it any more",
            )
        return decode(data, self.form)

    def _identify(self, files: list[_File], check: bool) -> list[_File]:
        """Files with their hashes, in an order that doesn't depend on their names; without damaged ones."""
        examine = functools.partial(decode, form=self.form) if check else check_header
        damaged: dict[str, str] = {}

        def hash_all() -> Iterator[np.ndarray]:
            for at, (digest, reason) in enumerate(_in_threads(lambda file: _examine(file.path, examine), files)):
                if reason:
                    damaged[str(at)] = reason
                yield np.frombuffer(digest, dtype=np.uint8)

        identity = {
            "files": _stamp(self.root, files),
            "form": dataclasses.asdict(self.form) if check else None,
            "decoder": VERSION,
        }
        # ``damaged`` fills up while the digests are written, and is written after them.
        remembered = open_or_build(
            self.cache / "images",
            identity,
            lambda: Tokens(vocab_size=256, parts={"digests": hash_all()}, notes=damaged),
        )
        reasons = {int(at): reason for at, reason in remembered.notes.items()}
        self._note_damage(reasons, files)
        digests = remembered.parts["digests"].reshape(-1, _DIGEST)
        sound = [
            file._replace(digest=digest.tobytes())
            for at, (file, digest) in enumerate(zip(files, digests, strict=True))
            if at not in reasons
        ]
        return sorted(sound, key=lambda file: (file.digest, file.label, str(file.path)))

    def _keep(self, digests: list[bytes]) -> None:
        """Decode one file of each digest, or find that done; leave out what can't be decoded."""
        one_of_each = list({file.digest: file for file in reversed(self._files)}.values())
        one_of_each.sort(key=lambda file: file.digest)
        self._kept = open_or_build(
            self.cache / "images", self._identity(digests), lambda: self._decode_all(one_of_each)
        )
        damaged = {int(at): reason for at, reason in self._kept.notes.items()}
        self._note_damage(damaged, one_of_each)
        bad = {digests[at] for at in damaged}
        self._files = [file for file in self._files if file.digest not in bad]
        slots = {digest: at for at, digest in enumerate(digests)}
        self._slots = np.array([slots[file.digest] for file in self._files], dtype=np.int64)
        self.keys = self._keys_by_pixels(self._kept.parts["digests"].reshape(-1, _DIGEST))

    def _identity(self, digests: list[bytes]) -> dict[str, Any]:
        content = hashlib.sha256(b"".join(digests)).hexdigest()
        return {"images": content, "form": dataclasses.asdict(self.form), "decoder": VERSION}

    def _decode_all(self, files: list[_File]) -> Tokens:
        damaged: dict[str, str] = {}
        digests: list[np.ndarray] = []

        def attempt(file: _File) -> tuple[np.ndarray, str]:
            try:
                return self._decode(file), ""
            except DamagedImageError as error:
                return np.zeros(self.form.shape, dtype=np.uint8), str(error)

        def pixels() -> Iterator[np.ndarray]:
            for at, (image, reason) in enumerate(_in_threads(attempt, files)):
                if reason:
                    damaged[str(at)] = reason
                    self._refuse({at: reason}, files)
                digests.append(np.frombuffer(hashlib.sha256(image.data).digest(), dtype=np.uint8))
                yield image.ravel()

        # Parts are written one after the other, so all digests are there when theirs is.
        return Tokens(vocab_size=256, parts={"pixels": pixels(), "digests": digests}, notes=damaged)

    def _keys_by_pixels(self, digests: np.ndarray) -> list[bytes]:
        """For each file the smallest hash of a file with the same pixels: what is equal is dealt out as one."""
        pixels = [digests[slot].tobytes() for slot in self._slots]
        smallest: dict[bytes, bytes] = {}
        for file, digest in zip(self._files, pixels, strict=True):  # in the order of the files' hashes
            smallest.setdefault(digest, file.digest)
        return [smallest[digest] for digest in pixels]

    def _note_damage(self, damaged: dict[int, str], files: list[_File]) -> None:
        self._refuse(damaged, files)
        if damaged:
            first = files[min(damaged)].path
            logger.warning("%d damaged image files are skipped, the first is %s", len(damaged), first)

    def _refuse(self, damaged: dict[int, str], files: list[_File]) -> None:
        if damaged and self.errors == "error":
            first = min(damaged)
            more = f" ({len(damaged)} files are)" if len(damaged) > 1 else ""
            raise UserError(
                f"a damaged image file{more}: {damaged[first]}",
                where=str(files[first].path),
                fix="replace or remove it, or set data.errors: skip",
            )


def _find(root: Path) -> tuple[list[str], list[_File]]:
    """Names of the classes, and the image files."""
    if not root.is_dir():
        raise UserError(f"no folder {root}{_near(root)}", where="data.root", fix="name a folder of class folders")
    parts = _part_folders(root)
    found = [(given, name, path) for folder, given in parts.items() for name, path in _walk(folder)]
    classes = sorted({name for _, name, _ in found})
    trained = {name for given, name, _ in found if given is None}
    if missing := [name for name in classes if name not in trained]:
        raise UserError(
            f"class {missing[0]!r} has images for validation or the test, and none for training",
            where=str(root),
            fix="give the class folders of train, val and test the same names",
        )
    index = {name: at for at, name in enumerate(classes)}
    return classes, [_File(path, index[name], given) for given, name, path in found]


def _part_folders(root: Path) -> dict[Path, Split | None]:
    """The folders that hold class folders: train, val and test where there are no others, else the root itself."""
    names = [folder.name for folder in _folders(root)]
    if "train" in names and set(names) <= _PART_FOLDERS.keys() and _folders(root / "train"):
        return {root / name: _PART_FOLDERS[name] for name in names}
    return {root: None}


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Class and path of each image below the class folders of a folder."""
    if stray := [path for path in _files(folder, "*") if path.suffix.lower() in SUFFIXES]:
        fix = "move it into the folder of its class"
        raise UserError(f"an image that is in no class folder of {folder}", where=str(min(stray)), fix=fix)
    if not (classes := _folders(folder)):
        raise UserError(f"no class folder in {folder}", where="data.root", fix="put the images of a class in a folder")
    for inner in classes:
        files = _files(inner, "**/*")
        images = [path for path in files if path.suffix.lower() in SUFFIXES]
        if not images:
            fix = f"remove the folder, or put files into it that end in {', '.join(sorted(SUFFIXES))}"
            raise UserError(f"no image in the class folder {inner}", where="data.root", fix=fix)
        if len(images) < len(files):
            logger.info("%d files in %s don't end like images, and are not read", len(files) - len(images), inner)
        for path in images:
            yield inner.name, path


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path, pattern: str) -> list[Path]:
    """Files that are neither hidden nor in a hidden folder."""
    inside = (path.relative_to(folder) for path in folder.glob(pattern) if path.is_file())
    return sorted(folder / path for path in inside if not any(part.startswith(".") for part in path.parts))


def _near(path: Path) -> str:
    siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _stamp(root: Path, files: list[_File]) -> str:
    """Hash of names, sizes and times: what changes when a file is written."""
    facts = []
    for file in files:
        status = file.path.stat()
        place = str(file.path.relative_to(root))
        facts.append((place, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return hashlib.sha256(json.dumps([str(root.resolve()), facts]).encode()).hexdigest()


def _examine(path: Path, examine: Any) -> tuple[bytes, str]:
    """SHA-256 of a file, and what is wrong with it."""
    data = _bytes(path)
    try:
        examine(data)
    except DamagedImageError as error:
        return hashlib.sha256(data).digest(), str(error)
    return hashlib.sha256(data).digest(), ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"can't read an image file: {error.strerror}", where=str(path)) from error


def _in_threads(function: Any, files: list[_File]) -> Iterator[Any]:
    """Results in order; Pillow decodes outside of Python's lock. A few are made ahead, never all."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for begin in range(0, len(files), _GROUP):
            yield from pool.map(function, files[begin : begin + _GROUP])


def _pixels(kept: TokenCache, form: Form) -> np.ndarray:
    return kept.parts["pixels"].reshape(-1, *form.shape)
