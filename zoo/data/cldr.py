"""Real multilingual text that every machine has: dates and names from the CLDR, https://cldr.unicode.org, by Babel."""

from __future__ import annotations

import datetime
import difflib
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from babel import Locale, UnknownLocaleError
from babel.localedata import locale_identifiers

from zoo.data.permutation import permute
from zoo.data.records import Record, Records
from zoo.errors import UserError

PATTERNS = ("short", "medium", "long", "full")
"""The CLDR's ways to write a date: ``3/4/21``, ``Mar 4, 2021``, ``March 4, 2021``, ``Thursday, March 4, 2021``."""


class DateRecords(Records):
    """Dates as people write them, and their ISO 8601 form: ``de_DE 3. März 2021`` and ``2021-03-03``.

    Every day of the years gives ``per_date`` records, in as many different combinations of locale and pattern, drawn
    by the day's number; equal keys are one day.

    Args:
        locales: identifiers of locales, for example ``de_DE``.
        patterns: some of ``PATTERNS``.
        years: the first and the last.
        per_date: records of a day.
    """

    def __init__(self, locales: Sequence[str], patterns: Sequence[str], years: tuple[int, int], per_date: int) -> None:
        self.patterns, self.years, self.per_date = patterns, years, per_date
        self._locales = dict(zip(locales, _locales(locales, "data.locales"), strict=True))
        _check_dates(patterns, years, per_date, most=len(locales) * len(patterns))
        self._patterns = {
            (locale, pattern): found.date_formats[pattern]
            for locale, found in self._locales.items()
            for pattern in patterns
        }

    def days(self) -> Iterator[datetime.date]:
        """Every day of the years."""
        first, last = (datetime.date(self.years[0], 1, 1), datetime.date(self.years[1], 12, 31))
        return map(datetime.date.fromordinal, range(first.toordinal(), last.toordinal() + 1))

    def walk(self) -> Iterator[Record]:
        """Records day by day."""
        combinations = list(self._patterns)
        days = list(self.days())
        ordinals = np.array([day.toordinal() for day in days])[:, None]
        draws = np.broadcast_to(np.arange(self.per_date), (len(days), self.per_date))
        chosen = permute(draws, len(combinations), (np.broadcast_to(ordinals, draws.shape),))
        for day, numbers in zip(days, chosen.tolist(), strict=True):
            iso = day.isoformat()
            for number in numbers:
                locale, pattern = combinations[number]
                yield Record((self.text(day, locale, pattern), iso), "", iso, f"{iso} in {locale}, {pattern}")

    def text(self, day: datetime.date, locale: str, pattern: str) -> str:
        """The locale's identifier and how it writes a day."""
        return f"{locale} {self._patterns[locale, pattern].apply(day, self._locales[locale])}"

    def ceiling(self, pairs: Iterable[tuple[str, str]]) -> float:
        """Best exact match that can be expected on some pairs of text and ISO date.

        What is computed is the score of an oracle who knows how each locale writes every day of the years, and that
        all days and patterns are equally frequent, but not which days are in which part. It names a most frequent
        reading of the text, one of them at random if there are several. By enumeration of all days in all patterns.
        A model can score higher than that by luck, or by knowing which of the readings were in the train part.
        """
        expected, count = 0.0, 0
        by_locale = defaultdict(list)
        for text, iso in pairs:
            by_locale[text.split(" ", 1)[0]].append((text, iso))
        for locale, found in by_locale.items():
            readings = self._readings(locale)
            expected += sum(_chance(readings[text], iso) for text, iso in found)
            count += len(found)
        return expected / count if count else 1.0

    def _readings(self, locale: str) -> dict[str, list[str]]:
        """ISO dates of every text that a locale gives, once for each pattern."""
        readings = defaultdict(list)
        for day in self.days():
            for pattern in self.patterns:
                readings[self.text(day, locale, pattern)].append(day.isoformat())
        return readings


def _check_dates(patterns: Sequence[str], years: tuple[int, int], per_date: int, most: int) -> None:
    if wrong := [pattern for pattern in patterns if pattern not in PATTERNS]:
        fix = f"choose among {', '.join(PATTERNS)}"
        raise UserError(f"there is no pattern {wrong[0]!r}", where="data.patterns", fix=fix)
    if not patterns or len(set(patterns)) < len(patterns):
        raise UserError(f"patterns are {list(patterns)}", where="data.patterns", fix="name at least one, each once")
    if not 1000 <= years[0] <= years[1] <= 9999:
        raise UserError(
            f"the dates go from {years[0]} to {years[1]}",
            where="data.first_year, data.last_year",
            fix="choose years of four digits, the first one not after the last",
        )
    if not 1 <= per_date <= most:
        raise UserError(
            f"per_date is {per_date}; there are {most} combinations of locale and pattern",
            where="data.per_date",
            fix=f"set it to 1 to {most}",
        )


def _chance(readings: Sequence[str], right: str) -> float:
    counts = Counter(readings)
    most = max(counts.values())
    best = [reading for reading, count in counts.items() if count == most]
    return 1 / len(best) if right in best else 0.0


class NameRecords(Records):
    """Names of languages, scripts, countries, cities, currencies, months and days, labelled with their language.

    A name that several of the languages share, whatever its case, is left out: nobody can tell its language.

    Args:
        languages: codes of languages, for example ``de``.

    Attributes:
        shared: how many names were left out.
    """

    def __init__(self, languages: Sequence[str]) -> None:
        self._locales = dict(zip(languages, _locales(languages, "data.languages"), strict=True))

    @property
    def shared(self) -> int:
        """Number of names, without case, that several of the languages have."""
        return sum(len(owners) > 1 for owners in self._owners.values())

    def walk(self) -> Iterator[Record]:
        """Names in the order of the alphabet."""
        for folded, owners in sorted(self._owners.items()):
            if len(owners) == 1:
                ((language, name),) = owners.items()
                yield Record((name,), language, folded, f"the name {name!r} in {language}")

    @functools.cached_property
    def _owners(self) -> dict[str, dict[str, str]]:
        """By the name without case: the languages that have it, each with its first way to write it."""
        owners: dict[str, dict[str, str]] = defaultdict(dict)
        for language, locale in self._locales.items():
            for name in sorted(_names(locale)):
                owners[name.casefold()].setdefault(language, name)
        return owners


def _names(locale: Locale) -> set[str]:
    tables = [locale.languages, locale.scripts, locale.territories, locale.variants, locale.currencies]
    names = [name for table in tables for name in table.values()]
    names += [zone.get("city") for zone in locale.time_zones.values()]
    for calendar in (locale.months, locale.days, locale.quarters):
        names += [name for use in calendar.values() for name in use["wide"].values()]
    return {name for name in names if isinstance(name, str) and any(map(str.isalpha, name))}


def _locales(codes: Sequence[str], knob: str) -> list[Locale]:
    """The CLDR's locales of some codes.

    Raises:
        UserError: no code, one twice, or one that the CLDR doesn't have.
    """
    if not codes or len(set(codes)) < len(codes):
        twice = ", ".join(code for code, count in Counter(codes).items() if count > 1)
        raise UserError(f"{twice} is twice in the list" if twice else "the list is empty", where=knob)
    found = []
    for code in codes:
        try:
            found.append(Locale.parse(code))
        except (ValueError, UnknownLocaleError):
            near = difflib.get_close_matches(code, locale_identifiers())
            raise UserError(
                f"the CLDR has no {code!r}" + (f"; did you mean {', '.join(near)}?" if near else ""),
                where=knob,
                fix="name a language, de, or a language and a country, de_DE",
            ) from None
    return found
