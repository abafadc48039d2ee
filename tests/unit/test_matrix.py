"""The matrix of combinations: how cells come out, that pairs are covered, that the shipped one is whole."""

from __future__ import annotations

import itertools
import json
import random
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.cli import main
from zoo.errors import UserError
from zoo.matrix.cells import Laboratory
from zoo.matrix.covering import covering, pairs_of
from zoo.matrix.jobs import all_jobs
from zoo.matrix.results import UNKNOWN, Cell, Matrix, Outcome, read, shipped
from zoo.matrix.run import Axes
from zoo.registry import Registry

LOOKS_AHEAD = textwrap.dedent(
    '''
    """Attention that forgets its mask, and says that it is causal."""

    from zoo.contracts.attention import HeadedAttention

    __all__ = ["Unmasked"]


    class Unmasked(HeadedAttention):
        """A fault."""

        def attend(self, q, k, v, call):
            call.masked = True
            return call.scores(q, k).softmax(-1).to(v.dtype) @ v
    '''
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    file = tmp_path_factory.mktemp("plugins") / "unmasked.py"
    file.write_text(LOOKS_AHEAD)
    registry = Registry.discover([file])
    registry.load_plugins()
    return registry


@pytest.fixture(scope="module")
def laboratory(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(registry, all_jobs(registry), tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        (Cell("multi_head", "rotary", "gpt2/causal_lm"), Outcome("tested")),
        (Cell("multi_head", "rotary_2d", "gpt2/patch_lm"), Outcome("tested")),
        (Cell("multi_head", "learned", "vit/masked_patches"), Outcome("tested")),
        (Cell("grouped_query", "none", "bert/text_classification"), Outcome("tested")),
        (Cell("multi_head", "t5", "encoder_decoder/seq2seq"), Outcome("tested")),
        (Cell("multi_head", "t5", "encoder_decoder/text_classification"), Outcome("tested")),
        (
            Cell("sliding_window", "rotary", "encoder_decoder/seq2seq"),
            Outcome("tested", "as decoder.attention, encoder.attention"),
        ),
    ],
)
def test_a_combination_is_tested(laboratory: Laboratory, cell: Cell, outcome: Outcome) -> None:
    assert laboratory.cell(cell) == outcome


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("multi_head", "learned_2d", "gpt2/causal_lm"), "needs an embedding that offers 'grid'"),
        (Cell("multi_head", "none", "bert/causal_lm"), "needs a model that offers 'causal'"),
        (Cell("multi_head", "none", "encoder_decoder/causal_lm"), "reads a source beside its input"),
        (Cell("multi_head", "none", "gpt2/masked_lm"), "needs a model that offers 'bidirectional'"),
    ],
)
def test_a_combination_is_refused_and_says_why(laboratory: Laboratory, cell: Cell, words: str) -> None:
    outcome = laboratory.cell(cell)
    assert outcome.status == "unsupported"
    assert words in outcome.reason


def test_a_part_that_looks_ahead_fails_in_a_causal_model_only(laboratory: Laboratory) -> None:
    outcome = laboratory.cell(Cell("unmasked", "none", "gpt2/causal_lm"))
    assert outcome.status == "failed"
    assert outcome.reason.startswith("no look-ahead through all layers: ")
    assert laboratory.cell(Cell("unmasked", "none", "vit/image_classification")).status == "tested"


def test_a_row_trains(laboratory: Laboratory) -> None:
    parts = {"attention": "multi_head", "position": "rotary", "job": "bert/masked_lm"}
    parts |= {"norm": "rms_norm", "feed_forward": "swiglu", "residual": "pre"}
    assert laboratory.row(parts) == Outcome("tested")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=5), st.integers(0, 2**16))
def test_every_pair_that_an_allowed_row_has_is_covered(sizes: list[int], seed: int) -> None:
    factors = [[f"{index}{value}" for value in range(size)] for index, size in enumerate(sizes)]
    rows = list(itertools.product(*factors))
    chance = random.Random(seed)
    allowed = {row for row in rows if chance.random() < 0.7}
    seeds = list(dict.fromkeys(row[:2] for row in rows))
    chosen = covering(factors, seeds, allowed.__contains__)
    assert set(chosen) <= allowed
    wanted = {pair for row in allowed for pair in pairs_of(row)}
    assert {pair for row in chosen for pair in pairs_of(row)} == wanted


def test_a_covering_array_is_far_smaller_than_all_rows() -> None:
    factors = [[str(value) for value in range(5)] for _ in range(6)]
    rows = covering(factors, list(itertools.product(*factors[:2])), lambda row: True)
    assert len(rows) <= 60  # 25 is the least that six factors of five values can need, all rows are 15,625


MATRIX = Matrix(
    {"attention/a": "1", "attention/b": "2", "position/p": "3", "architecture/x": "4", "task/t": "5", "norm/n": "6"},
    {Cell("a", "p", "x/t"): Outcome("tested"), Cell("b", "p", "x/t"): Outcome("unsupported", "it says so")},
    {("a", "p", "x/t", "n", "f", "r"): Outcome("tested")},
)


def test_a_matrix_is_read_as_it_was_written(tmp_path: Path) -> None:
    MATRIX.write(tmp_path / "matrix.json")
    assert read(tmp_path / "matrix.json") == MATRIX
    assert [file.name for file in tmp_path.iterdir()] == ["matrix.json"]


def test_what_was_run_with_another_file_is_unknown_again() -> None:
    kept = MATRIX.without_changed({**MATRIX.sources, "attention/b": "9", "norm/n": "8"})
    assert kept.of(Cell("b", "p", "x/t")) == UNKNOWN
    assert kept.of(Cell("a", "p", "x/t")) == Outcome("tested")
    assert not kept.rows


def test_a_file_that_is_no_matrix_is_a_message(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    file.write_text("{}")
    with pytest.raises(UserError, match=r"matrix.json can't be read as a matrix"):
        read(file)


def test_what_nobody_has_run_is_shown_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["matrix", "rotary", "--plugin", str(_written(tmp_path))]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("unmasked")]
    assert lines
    assert all(line[2] == "unknown" for line in lines)
    assert main(["matrix", "--json", "--plugin", str(tmp_path / "unmasked.py")]) == 0
    document = json.loads(capsys.readouterr().out)
    cells = [cell for cell in document["cells"] if cell["attention"] == "unmasked"]
    assert {cell["status"] for cell in cells} == {"unknown"}
    assert len({cell["job"] for cell in cells}) == 32


def _written(folder: Path) -> Path:
    file = folder / "unmasked.py"
    file.write_text(LOOKS_AHEAD)
    return file


def test_mistakes_are_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "multihead"]) == 2
    assert "did you mean 'multi_head'" in capsys.readouterr().err
    assert main(["matrix", "--workers", "2"]) == 2
    assert main(["matrix", "--run", str(tmp_path / "no" / "matrix.json")]) == 2
    assert not list(tmp_path.iterdir())


# What is shipped


@pytest.fixture(scope="module")
def own() -> Registry:
    registry = Registry.discover(environment={})
    registry.load_plugins()
    return registry


def builtin_cells(registry: Registry) -> list[Cell]:
    axes = Axes(registry)
    outside = {
        part.name for parts in axes.components.values() for part in parts if not part.module.startswith("zoo_builtin.")
    }
    return [cell for cell in axes.cells() if not outside & {*cell[:2], *cell.job.split("/")}]


def test_the_shipped_matrix_knows_every_combination_of_built_in_parts(own: Registry) -> None:
    still_true = shipped(own).without_changed(Axes(own).sources())
    totals = still_true.totals(builtin_cells(own))
    assert set(totals) == {"tested", "unsupported"}, "run: zoo matrix --run plugins/zoo_builtin/matrix.json"


def test_trained_rows_cover_every_pair_of_built_in_parts(own: Registry) -> None:
    matrix, axes = shipped(own), Axes(own)
    assert {outcome.status for outcome in matrix.rows.values()} <= {"tested", "unsupported"}
    placed = {pair for row in matrix.rows for pair in pairs_of(row)}
    for index, kind in enumerate(matrix.factors):
        names = [job.name for job in axes.jobs if job.refusal is None] if kind == "job" else axes.names(kind)
        for name in set(names):
            mine = {pair[2:] for pair in placed if pair[:2] == (index, name)} | {
                pair[:2] for pair in placed if pair[2:] == (index, name)
            }
            assert {factor for factor, _ in mine} == set(range(6)) - {index}, (kind, name)


@pytest.mark.slow
def test_a_sample_of_the_shipped_matrix_comes_out_again(own: Registry, tmp_path: Path) -> None:
    matrix, laboratory = shipped(own), Laboratory(own, all_jobs(own), tmp_path)
    for cell in random.Random(0).sample(builtin_cells(own), 40):
        assert laboratory.cell(cell) == matrix.of(cell), cell


def test_the_command_shows_counts_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix"]) == 0
    assert "multi_head" in capsys.readouterr().out
    assert main(["matrix", "rotary"]) == 0
    assert "offers" in capsys.readouterr().out
    assert main(["matrix", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["totals"].keys() == {"tested", "unsupported"}
