"""Dates of the CLDR: written as people write them, and how well they can be read at all."""

import datetime

import pytest

from zoo.data.cldr import DateRecords


def test_dates_are_as_people_write_them():
    records = DateRecords(["de_DE", "en_GB", "en_US", "ja_JP"], ["short", "full"], (2021, 2021), 8)
    day = datetime.date(2021, 3, 4)
    written = {record.texts for record in records.walk() if record.key == "2021-03-04"}
    assert written == {
        ("de_DE 04.03.21", "2021-03-04"),
        ("de_DE Donnerstag, 4. März 2021", "2021-03-04"),
        ("en_GB 04/03/2021", "2021-03-04"),
        ("en_GB Thursday, 4 March 2021", "2021-03-04"),
        ("en_US 3/4/21", "2021-03-04"),
        ("en_US Thursday, March 4, 2021", "2021-03-04"),
        ("ja_JP 2021/03/04", "2021-03-04"),
        ("ja_JP 2021年3月4日木曜日", "2021-03-04"),
    }
    assert records.text(day, "en_US", "short") == "en_US 3/4/21"


def test_a_date_has_different_combinations():
    records = DateRecords(["en_US", "de_DE", "ja_JP"], ["medium", "full"], (2020, 2020), 5)
    places = [record.place for record in records.walk()]
    assert len(places) == len(set(places)) == 5 * 366


def test_the_ceiling_counts_ambiguous_years():
    """By hand: of 102 years, two digits leave 1999 or 2099, and 2000 or 2100, open, but for 29 February 2000."""
    records = DateRecords(["en_US"], ["short"], (1999, 2100), 1)
    pairs = [record.texts for record in records.walk()]
    assert len(pairs) == 37_255
    assert records.ceiling(pairs) == pytest.approx((37_255 - 4 * 365 / 2) / 37_255, abs=1e-12)
    assert records.ceiling([("en_US 2/29/00", "2000-02-29")]) == 1.0
    assert records.ceiling([("en_US 1/2/99", "1999-01-02"), ("en_US 1/2/98", "2098-01-02")]) == 0.75


def test_the_ceiling_is_one_where_years_are_whole_or_fewer_than_a_hundred():
    for patterns, years in ((["full"], (1999, 2100)), (["short", "medium"], (1995, 2009))):
        records = DateRecords(["en_US"], patterns, years, 1)
        assert records.ceiling([record.texts for record in records.walk()][::50]) == 1.0


def test_the_ceiling_prefers_the_more_frequent_reading(monkeypatch):
    """Day before month in one pattern, month before day in two: 3/4 is rather the fourth of March."""
    records = DateRecords(["en_US"], ["short", "medium", "long"], (2021, 2021), 3)
    written = {"short": "%d/%m", "medium": "%m/%d", "long": "%m/%d"}
    monkeypatch.setattr(records, "text", lambda day, locale, pattern: f"{locale} {day.strftime(written[pattern])}")
    assert records.ceiling([("en_US 03/04", "2021-03-04")]) == 1.0
    assert records.ceiling([("en_US 03/04", "2021-04-03")]) == 0.0
    assert records.ceiling([("en_US 25/12", "2021-12-25")]) == 1.0
