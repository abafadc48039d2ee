"""The law of losses: the best size for some compute, and the page that says why published constants disagree."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import UserError
from zoo.scaling.law import PUBLISHED, Law, by_ratio, law_from

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
CHINCHILLA = 5.76e23
"""FLOPs of Gopher and of Chinchilla."""


def table() -> dict[str, list[str]]:
    """Cells of the page's table of published constants, by the name of the row."""
    text = PAGE.read_text(encoding="utf-8")
    inside = re.findall(r"<!-- published -->\n(.+?)\n<!-- /published -->", text, re.DOTALL)
    assert len(inside) == 1
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in inside[0].splitlines()[2:]]
    return {name: cells for name, *cells in rows}


def test_hoffmanns_constants_give_32_billion_parameters() -> None:
    best = PUBLISHED["hoffmann-2022"].allocate(CHINCHILLA)
    assert best.parameters == pytest.approx(3.219e10, rel=5e-4)
    assert best.tokens == pytest.approx(2.982e12, rel=5e-4)
    assert 6 * best.parameters * best.tokens == pytest.approx(CHINCHILLA, rel=1e-12)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("flops", [1e15, CHINCHILLA])
def test_no_other_size_has_a_lower_loss_for_the_same_compute(name: str, flops: float) -> None:
    law = PUBLISHED[name]
    best = law.allocate(flops)
    sizes = best.parameters * np.array([0.5, 0.99, 1.01, 2])
    losses = law.loss(sizes, flops / 6 / sizes)
    assert (losses > law.loss(*best)).all()
    # by the derivative, which is 0 at the optimum: a A / N^a = b B / D^b
    size, data = law.a * law.A / best.parameters**law.a, law.b * law.B / best.tokens**law.b
    assert size == pytest.approx(data, rel=1e-12)


def test_the_loss_is_the_sum_of_three_terms() -> None:
    assert Law(E=1, A=8, B=27, a=1 / 2, b=1 / 3).loss(4.0, 27.0) == pytest.approx(1 + 8 / 2 + 27 / 3)


def test_a_ratio_is_kept() -> None:
    found = by_ratio(CHINCHILLA, 20)
    assert found.ratio == pytest.approx(20) and 6 * found.parameters * found.tokens == pytest.approx(CHINCHILLA)


# The page


def test_the_page_has_every_published_law_and_the_rule() -> None:
    assert [*table()] == [*PUBLISHED, "20 tokens per parameter"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_pages_numbers_follow_from_the_constants(name: str) -> None:
    cells = table()[name]
    law = PUBLISHED[name]
    for cell, value in zip(cells, law.plain().values(), strict=False):
        assert cell == f"{value:.4g}"
    best = law.allocate(CHINCHILLA)
    assert cells[5:] == [f"{best.parameters:.3e}", f"{best.tokens:.3e}", f"{best.ratio:.1f}"]


def test_the_pages_sentences_follow_from_the_constants() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    rule = by_ratio(CHINCHILLA, 20)
    assert table()["20 tokens per parameter"][5:] == [f"{rule.parameters:.3e}", f"{rule.tokens:.3e}", "20.0"]
    printed, refit = PUBLISHED["hoffmann-2022"], PUBLISHED["besiroglu-2024"]
    grows, falls = (law.size_exponent - (1 - law.size_exponent) for law in (refit, printed))
    assert f"grows with C^{-falls:.3f} by the printed constants and falls with C^-{grows:.3f}" in text
    worse = refit.loss(*printed.allocate(CHINCHILLA)) - refit.loss(*refit.allocate(CHINCHILLA))
    assert f"worse by {worse:.4f} nats" in text
    sizes = [PUBLISHED[name].allocate(CHINCHILLA).parameters for name in ("hoffmann-2022-unrounded", "hoffmann-2022")]
    assert f"from {sizes[0] / 1e9:.0f} billion" in text and f"to {sizes[1] / 1e9:.0f} billion" in text
    assert printed.allocate(CHINCHILLA).parameters < refit.allocate(CHINCHILLA).parameters / 2


# Laws from files


def test_a_law_is_read_back() -> None:
    law = PUBLISHED["besiroglu-2024"]
    assert law_from(law.plain(), "scaling.json") == law


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"a": 0}, "a is 0"), ({"E": -1}, "E is -1"), ({"B": "2"}, "B is '2'"), ({"A": float("nan")}, "A is nan")],
)
def test_what_is_no_law_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        law_from({**PUBLISHED["hoffmann-2022"].plain(), **changed}, "scaling.json")
    with pytest.raises(UserError, match="E is None"):
        law_from("nothing", "scaling.json")
