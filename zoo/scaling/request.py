"""What is asked for with ``zoo plan``: an amount of compute, a device, and a rule that shares compute out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.scaling.devices import DEVICES, UTILISATION, Device
from zoo.scaling.ladder import Counted
from zoo.scaling.law import PUBLISHED, TOKENS_PER_PARAMETER, Allocation, Law, by_ratio, law_from


class Rule(NamedTuple):
    """How compute is shared out between size and data."""

    said: str
    """In words."""
    ratio: float | None = None
    """Tokens per parameter."""
    law: Law | None = None
    """In place of a ratio."""
    counted: Counted = "all"
    """Which parameters the law means."""
    fitted: Mapping[str, list[float]] | None = None
    """Least and largest size and amount of data that the law was fitted to."""

    def allocate(self, flops: float) -> Allocation:
        """N and D."""
        if self.law is not None:
            return self.law.allocate(flops)
        assert self.ratio is not None
        return by_ratio(flops, self.ratio)


class Machine(NamedTuple):
    """What it is planned for."""

    name: str
    """As it is asked for."""
    device: Device
    """Its rate and memory; the memory is 0 where it isn't known."""


def read_rule(ratio: float | None = None, fit: str | None = None) -> Rule:
    """The rule that a command line asks for.

    Raises:
        UserError: both, a ratio that is none, or a fit that isn't there or is none.
    """
    if ratio is not None and fit is not None:
        raise UserError("a ratio and a fit exclude each other", where="--ratio, --fit", fix="keep one of the two")
    if fit is None:
        ratio = TOKENS_PER_PARAMETER if ratio is None else ratio
        return Rule(f"{positive(ratio, '--ratio'):g} tokens per parameter", ratio=ratio)
    if fit in PUBLISHED:
        return Rule(f"the law of {fit}", law=PUBLISHED[fit])
    return _read_fit(Path(fit))


def _read_fit(path: Path) -> Rule:
    file = path / "scaling.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"there is no fit {str(path)!r}{did_you_mean(str(path), PUBLISHED)}",
            where="--fit",
            fix=f"give a scaling.json that zoo scale wrote, its folder, or one of {', '.join(PUBLISHED)}",
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"the fit is no JSON: {error}", where=str(file), fix="give a scaling.json") from error
    values = found if isinstance(found, dict) else {}
    law = law_from(values.get("law"), str(file))
    counted: Counted = "without-embeddings" if values.get("counted") == "without-embeddings" else "all"
    return Rule(f"the law in {file}", law=law, counted=counted, fitted=values.get("range"))


def read_machine(device: str | None, peak: float | None) -> Machine | None:
    """The device that a command line asks for; ``None`` where it names none.

    Raises:
        UserError: both a name and a rate, an unknown name, or a rate that is none.
    """
    if device is not None and peak is not None:
        raise UserError("a device and a peak exclude each other", where="--device, --peak", fix="keep one of the two")
    if device is not None:
        if device not in DEVICES:
            raise UserError(
                f"device {device!r} isn't in the table{did_you_mean(device, DEVICES)}",
                where="--device",
                fix=f"choose one of {', '.join(DEVICES)}, or give its rate: --peak 300e12",
            )
        return Machine(device, DEVICES[device])
    if peak is None:
        return None
    return Machine("yours", Device(f"a device of {positive(peak, '--peak'):.3g} FLOPs a second", peak, 0))


def positive(value: float, flag: str) -> float:
    """A number of the command line that must be above 0.

    Raises:
        UserError: it isn't.
    """
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{flag} is {value:g}", where=flag, fix="give a finite number above 0")
    return value


def budget(
    flops: float | None, gpu_hours: float | None, machine: Machine | None, utilisation: float = UTILISATION
) -> float:
    """The FLOPs that a command line asks for.

    Raises:
        UserError: none, or two ways of saying it, or hours of nothing.
    """
    if not 0 < utilisation <= 1:
        raise UserError(
            f"the utilisation is {utilisation:g}", where="--utilisation", fix="give a share of the peak, such as 0.4"
        )
    if (flops is None) == (gpu_hours is None):
        what = "neither FLOPs nor hours are given" if flops is None else "FLOPs and hours exclude each other"
        raise UserError(
            what, where="--flops, --gpu-hours", fix="give one: --flops 1e18, or --gpu-hours 24 --device a100"
        )
    if flops is not None:
        return positive(flops, "--flops")
    assert gpu_hours is not None
    if machine is None:
        raise UserError(
            "hours of which device?", where="--gpu-hours", fix=f"add --device {'|'.join(DEVICES)}, or --peak 300e12"
        )
    return positive(gpu_hours, "--gpu-hours") * 3600 * machine.device.peak * utilisation
