"""Next-token prediction: values worked out by hand, one shift, and batches without a target."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.contracts.architecture import Output
from zoo.errors import RunFailed
from zoo.nn.loss import summed_cross_entropy
from zoo_builtin.architecture.gpt2 import GPT2
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.learned import Learned
from zoo_builtin.residual.pre import Pre
from zoo_builtin.task.causal_lm import CausalLM
from zoo_builtin.tokenizer.byte import Byte


class Data:
    """A data set that is only asked for its tokenizer."""

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer = tokenizer

    def tokenizer(self) -> Any:
        return self._tokenizer


class Fixed(nn.Module):
    """A model whose scores are a table of its input."""

    def __init__(self, table_VV: Tensor, auxiliary: Tensor | None = None) -> None:
        super().__init__()
        self.table, self.auxiliary = nn.Parameter(table_VV), auxiliary
        self.head = SimpleNamespace(weight=torch.eye(table_VV.shape[1]), bias=None, states=lambda hidden: hidden)

    def forward(self, ids_BT: Tensor, mask: Any = None) -> Output:
        self.mask = mask
        return Output(self.table[ids_BT], self.auxiliary)


def task(tokenizer: Any = None) -> CausalLM:
    return CausalLM(CausalLM.Config(), data=Data(tokenizer))  # type: ignore[arg-type]


def gpt2(vocabulary: int = 17) -> GPT2:
    model = GPT2(
        GPT2.Config(vocab_size=vocabulary, max_length=8, layers=2, dim=16, heads=2),
        attention=MultiHead.part(),
        position=Learned.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        embedding=Tokens.part(),
        head=LanguageModel.part(),
    )
    model.initialize(1)
    return model


def batch(ids: list[list[int]], targets: list[list[int]], **more: list[list[int]]) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in {"ids": ids, "targets": targets, **more}.items()}


def test_the_loss_is_the_sum_over_targets_in_nats() -> None:
    table = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # after 0: 1/4, 3/4; after 1: 1/2, 1/2
    loss = task().loss(Fixed(table), batch([[0, 0, 1], [1, 0, 0]], [[1, 0, 1], [0, -100, -100]]))
    assert loss.total.item() == pytest.approx(math.log(4 / 3) + math.log(4) + 2 * math.log(2))
    assert {name: value.item() for name, value in loss.sums.items()} == pytest.approx(
        {"loss": loss.total.item(), "targets": 4, "correct": 2}
    )


def test_sums_keep_no_graph() -> None:
    ids = torch.tensor([[0, 1, 2]])
    loss = task(Byte(Byte.Config())).loss(Fixed(torch.eye(3)), {"ids": ids, "targets": ids})  # type: ignore[arg-type]
    assert loss.total.requires_grad
    assert {name: value.requires_grad for name, value in loss.sums.items()} == dict.fromkeys(
        ("loss", "targets", "correct", "bytes"), False
    )


def test_counting_needs_no_model() -> None:
    assert task().count(batch([[1, 2], [3, 4]], [[2, -100], [-100, -100]])) == 1


def test_auxiliary_losses_join_the_gradient_and_not_the_metric() -> None:
    loss = task().loss(Fixed(torch.zeros(2, 2), torch.tensor(5.0)), batch([[0]], [[1]]))
    assert loss.total.item() == pytest.approx(5 + math.log(2))
    assert loss.sums["loss"].item() == pytest.approx(math.log(2))


def test_a_model_that_echoes_its_input_has_a_high_loss() -> None:
    ids = [[3, 4, 5, 6, 7]]
    echo, successor = 50 * torch.eye(9), 50 * torch.eye(9).roll(1, dims=1)
    shifted = batch([ids[0][:-1]], [ids[0][1:]])
    assert task().loss(Fixed(echo), shifted).total.item() == pytest.approx(4 * 50)
    assert task().loss(Fixed(successor), shifted).total.item() == pytest.approx(0, abs=1e-6)


def test_bytes_of_the_targets_are_counted_by_the_tokenizer() -> None:
    byte = Byte(Byte.Config())
    end = byte.end_of_text
    model = Fixed(torch.zeros(byte.vocab_size, byte.vocab_size))
    loss = task(byte).loss(model, batch([[65, 66, 67, end]], [[66, end, -100, 68]]))
    assert loss.sums["bytes"].item() == 2  # the end of text has none, and -100 is nothing
    metrics = task(byte).summary({"loss": 6.0, "targets": 3.0, "bytes": 2.0, "correct": 1.0})
    assert metrics == pytest.approx({"loss": 2.0, "nats_per_byte": 3.0, "perplexity": math.e**2, "accuracy": 1 / 3})
    assert next(iter(metrics)) == next(iter(CausalLM.metrics)) == "loss"


def test_documents_and_padding_become_the_mask() -> None:
    model = Fixed(torch.zeros(2, 2))
    task().loss(model, batch([[0, 1]], [[1, 0]]))
    assert model.mask is None
    task().loss(model, {**batch([[0, 1]], [[1, 0]], documents=[[0, 1]]), "valid": torch.tensor([[True, False]])})
    assert model.mask.causal
    assert model.mask.documents_BS.tolist() == [[0, 1]]
    assert model.mask.valid_BS.tolist() == [[True, False]]


def test_packed_documents_have_the_loss_of_each_by_itself() -> None:
    model = gpt2().eval()
    packed = batch([[5, 6, 7, 8, 9]], [[6, 7, -100, 9, 1]], documents=[[0, 0, 0, 1, 1]])
    apart = [batch([[5, 6, 7]], [[6, 7, -100]]), batch([[8, 9]], [[9, 1]])]
    alone = sum(task().loss(model, rows).total.item() for rows in apart)
    assert task().loss(model, packed).total.item() == pytest.approx(alone, rel=1e-6)


def test_a_batch_without_a_target_gives_0_and_a_gradient_of_0_to_every_parameter() -> None:
    model = gpt2()
    loss = task().loss(model, batch([[1, 2, 3]], [[-100, -100, -100]]))
    loss.total.backward()
    assert loss.total.item() == 0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_a_micro_batch_without_a_target_adds_nothing() -> None:
    model = gpt2()
    full, empty = batch([[1, 2, 3]], [[2, 3, 4]]), batch([[4, 5, 6]], [[-100, -100, -100]])
    task().loss(model, full).total.backward()
    alone = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    task().loss(model, empty).total.backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(alone, model.parameters(), strict=True))  # type: ignore[arg-type]


def test_measuring_no_target_at_all_is_an_error() -> None:
    with pytest.raises(RunFailed, match="no target in all of the data"):
        task().summary({"loss": 0.0, "targets": 0.0, "correct": 0.0})


def test_a_huge_loss_has_an_infinite_perplexity() -> None:
    assert task().summary({"loss": 800.0, "targets": 1.0, "correct": 0.0})["perplexity"] == math.inf


@given(rows=st.integers(1, 30), chunk=st.integers(1, 400), seed=st.integers(0, 5))
def test_chunks_change_neither_loss_nor_gradient(rows: int, chunk: int, seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, 6, generator=numbers, dtype=torch.float64)
    weight = torch.randn(11, 6, generator=numbers, dtype=torch.float64)
    bias = torch.randn(11, generator=numbers, dtype=torch.float64)
    targets = torch.randint(-1, 11, (rows,), generator=numbers)
    targets[targets < 0] = -100
    results = []
    for largest in (chunk, 10**9):
        leaves = [value.clone().requires_grad_() for value in (hidden, weight, bias)]
        loss, correct = summed_cross_entropy(*leaves, targets, largest_chunk=largest)
        loss.backward()
        results.append([loss.detach(), correct.double(), *(leaf.grad for leaf in leaves)])
    for mine, whole in zip(*results, strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-12, atol=1e-12)


def test_the_loss_is_the_bits_of_torchs_own_in_float32() -> None:
    numbers = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(50, 8, generator=numbers), torch.randn(40, 8, generator=numbers)
    targets = torch.randint(40, (50,), generator=numbers)
    mine, _ = summed_cross_entropy(hidden, weight, None, targets)
    assert torch.equal(mine, F.linear_cross_entropy(hidden, weight, targets, reduction="sum"))


@pytest.mark.parametrize("how", ["autocast", "bfloat16"])
def test_in_bfloat16_the_softmax_and_the_sum_are_float32(how: str) -> None:
    numbers = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(4096, 16, generator=numbers), torch.randn(64, 16, generator=numbers)
    targets = torch.randint(64, (4096,), generator=numbers)
    hidden, weight = hidden.bfloat16(), weight.bfloat16()
    exact, _ = summed_cross_entropy(hidden.double(), weight.double(), None, targets)
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        wide = torch.float32 if how == "autocast" else torch.bfloat16
        loss, _ = summed_cross_entropy(hidden.to(wide), weight.to(wide), None, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(
        exact.item(), rel=1e-3
    )  # the scores alone are rounded; a bfloat16 sum is 1 % off
