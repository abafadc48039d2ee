"""The encoder-decoder: what its two sides share, what a nested key changes, and generation as reading."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parity import small_recipe
from zoo.builder import build_model
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.errors import UserError
from zoo.training.weights import load_weights, read_weights, save_weights
from zoo_builtin.architecture.encoder_decoder import EncoderDecoder
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.tokens import Tokens
from zoo_builtin.feed_forward.mlp import MLP
from zoo_builtin.head.language_model import LanguageModel
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.position.sinusoidal import Sinusoidal
from zoo_builtin.residual.pre import Pre

SIZES: dict[str, Any] = {"vocab_size": 31, "layers": 2, "dim": 16, "heads": 2}


def built(**settings: Any) -> Any:
    return build_model(small_recipe("encoder_decoder", **{**SIZES, **settings}))


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


VARIANTS: dict[str, dict[str, Any]] = {
    "vaswani": {"embedding": {"name": "tokens", "scale": True}},
    "t5": {
        "position": "t5",
        "norm": "rms_norm",
        "residual": "pre",
        "attention": {"name": "multi_head", "bias": False, "scale": 1.0},
    },
    "bart": {"max_length": 16, "position": {"name": "learned", "offset": 2}, "embedding_norm": True},
    "rotary and a window": {
        "position": "rotary",
        "residual": "pre",
        "attention": {"name": "sliding_window", "window": 3},
        "decoder": {"cross_attention": {"name": "grouped_query", "kv_heads": 1}},
    },
}


def translator(variant: str) -> Any:
    """In float64, with weights so large that everything matters."""
    model = built(**VARIANTS[variant]).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.3)
    return model


SOURCE = torch.tensor([[5, 6, 7, 8, 9], [4, 3, 0, 0, 0]])
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
TARGET = torch.tensor([[1, 2, 3, 4]] * 2)
CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-11}
"""Some hundred roundings of 1e-16 of values around 10."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_ignores_the_sources_padding_and_generates_as_it_reads(variant: str) -> None:
    model = translator(variant)
    whole = model(TARGET, source_BS=SOURCE, source_valid_BS=VALID).hidden
    alone = model(TARGET[1:], source_BS=SOURCE[1:, :2]).hidden
    torch.testing.assert_close(whole[1:], alone, **CLOSE)
    assert (whole[0] - whole[1]).abs().max() > 1e-3

    cache = Cache()
    first = model(TARGET[:, :2], source_BS=SOURCE, source_valid_BS=VALID, cache=cache).hidden
    cache.reorder(torch.tensor([1, 0, 1]))
    step = model(TARGET[[1, 0, 1], 2:3], cache=cache).hidden
    cache.reorder(torch.tensor([2, 1]))
    last = model(TARGET[[1, 0], 3:], cache=cache).hidden
    torch.testing.assert_close(first, whole[:, :2], **CLOSE)
    torch.testing.assert_close(step, whole[[1, 0, 1], 2:3], **CLOSE)
    torch.testing.assert_close(last, whole[[1, 0], 3:], **CLOSE)


@pytest.mark.article("cross-attention, section 8")
@pytest.mark.parametrize("variant", VARIANTS)
def test_targets_see_no_later_targets_and_all_of_the_source(variant: str) -> None:
    model = translator(variant)
    before = model(TARGET, source_BS=SOURCE).hidden
    later = TARGET.clone()
    later[:, 2:] = 9
    after = model(later, source_BS=SOURCE).hidden
    assert torch.equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] - after[:, 2:]).abs().max() > 1e-3
    other = SOURCE.clone()
    other[:, -1] = 11
    assert (model(TARGET, source_BS=other).hidden - before).abs().amin((0, 1)).max() > 0  # every position of both


def test_padded_targets_on_the_left_are_those_alone() -> None:
    model = translator("bart")
    padded = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 4]])
    valid = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    got = model(padded, mask=Mask(causal=True, valid_BS=valid), source_BS=SOURCE, source_valid_BS=VALID).hidden
    alone = model(padded[:1, 2:], source_BS=SOURCE[:1]).hidden
    torch.testing.assert_close(got[:1, 2:], alone, **CLOSE)


def test_the_encoder_runs_once_and_its_keys_are_made_once() -> None:
    model, cache, runs = translator("vaswani"), Cache(), []
    model.encoder.register_forward_hook(lambda *_: runs.append("encoder"))
    model.decoder.blocks[0].cross_attention.key.register_forward_hook(lambda *_: runs.append("key"))
    for step in range(4):
        given = {"source_BS": SOURCE} if not step else {}
        model(TARGET[:, step : step + 1], cache=cache, **given)
    assert runs == ["encoder", "key"]


def test_without_a_source_it_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="an encoder-decoder needs a source: source_BS"):
        built()(TARGET)


# What is shared, and what a nested key changes


def test_both_sides_and_the_head_share_one_table() -> None:
    model = built()
    model.head(model(TARGET, source_BS=SOURCE).hidden).sum().backward()
    assert [name for name, _ in model.named_parameters() if "tokens" in name] == ["embedding.tokens.weight"]
    assert model.head.weight is model.embedding.table
    gradient = model.embedding.table.grad
    assert gradient[5].abs().sum() > 0  # of the source alone
    assert gradient[1].abs().sum() > 0  # of the target
    assert gradient[30].abs().sum() > 0  # of the head alone


@pytest.mark.parametrize("how", ["meta", "deepcopy", "dtype", "file"])
def test_the_tie_outlives_what_breaks_ties(how: str, tmp_path: Path) -> None:
    """Bugs W2 and W3: a second name of the table doesn't exist, so nothing can part the two."""
    model = built()
    if how == "meta":
        model = build_model(small_recipe("encoder_decoder", **SIZES), device="meta").to_empty(device="cpu")
        model.initialize(1337)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), built().parameters(), strict=True))
    elif how == "deepcopy":
        model = copy.deepcopy(model)
    elif how == "dtype":
        model = model.to(torch.bfloat16)
    else:
        file = tmp_path / "model.safetensors"
        save_weights(file, model.state_dict(), {"step": "1"})
        state, _ = read_weights(file)
        assert state.keys() == {name for name, _ in model.named_parameters()}
        model = built()
        model.initialize(8)
        load_weights(model, state, str(file))
    assert model.head.weight is model.embedding.table
    assert parameters(model) == parameters(built())


def test_flat_keys_set_both_sides_and_nested_keys_one() -> None:
    layer = 4 * (16 * 16 + 16)  # an attention
    both = built(attention={"name": "grouped_query", "kv_heads": 1})
    assert parameters(built()) - parameters(both) == 6 * 2 * (16 * 8 + 8)  # keys and values of 2 x 3 attentions
    cross = built(decoder={"cross_attention": {"name": "grouped_query", "kv_heads": 1}})
    assert parameters(built()) - parameters(cross) == 2 * 2 * (16 * 8 + 8)
    encoder = built(encoder={"attention": {"name": "grouped_query", "kv_heads": 1}})
    assert parameters(built().encoder) - parameters(encoder.encoder) == 2 * 2 * (16 * 8 + 8)
    assert parameters(built().decoder) == parameters(encoder.decoder)
    block = layer + 2 * 16 * 64 + 64 + 16 + 4 * 16
    assert parameters(built(layers=5).encoder) == 5 * block
    deep = built(encoder={"layers": 3}, decoder={"layers": 1})
    assert (parameters(deep.encoder), parameters(deep.decoder)) == (3 * block, block + layer + 2 * 16)
    assert len(list(deep.block_modules())) == 4


def test_a_scheme_of_one_side_is_not_the_others() -> None:
    model = built(position="t5", decoder={"position": "rotary"})
    assert [type(stack.positions[0]).__name__ for stack in (model.encoder, model.decoder)] == [
        "RelativeBuckets",
        "Rotary",
    ]
    both = built(position="t5")
    schemes = [both.encoder.positions[0], both.decoder.positions[0]]
    assert [scheme.causal for scheme in schemes] == [False, True]
    assert schemes[0].table.weight is not schemes[1].table.weight


def test_bounds_of_both_sides() -> None:
    model = built(max_length=9, encoder={"position": "learned"})
    assert (model.max_length, model.max_source) == (None, 9)
    model = built(max_length=9, decoder={"position": "learned"})
    assert (model.max_length, model.max_source) == (9, None)


def test_notes_tell_the_encoders_maps_from_the_decoders() -> None:
    model, notes = translator("vaswani"), Notes(maps=True)
    model(TARGET, source_BS=SOURCE, source_valid_BS=VALID, notes=notes)
    for layer in range(2):
        encoder = notes.part("encoder").maps(layer)
        own, cross = notes.maps(layer), notes.maps(layer, "cross")
        assert [tuple(weights.shape) for weights in (encoder, own, cross)] == [(2, 2, 5, 5), (2, 2, 4, 4), (2, 2, 4, 5)]
        assert not own.triu(1).any()
        assert not cross[1, :, :, 2:].any()
        assert encoder[0].triu(1).any()


def test_it_is_built_by_hand_without_a_registry() -> None:
    model = EncoderDecoder(
        EncoderDecoder.Config(vocab_size=31, layers=2, dim=16, heads=2),
        embedding=Tokens.part(),
        attention=MultiHead.part(),
        position=Sinusoidal.part(),
        feed_forward=MLP.part(),
        norm=LayerNorm.part(),
        residual=Pre.part(),
        head=LanguageModel.part(),
    )
    model.initialize(0)
    assert model(TARGET, source_BS=SOURCE).hidden.shape == (2, 4, 16)
    assert isinstance(model.encoder.final_norm, LayerNorm)


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "sliding_window"}, "needs an attention that offers 'cross'; sliding_window offers"),
        (
            {"decoder": {"cross_attention": "sliding_window"}},
            r"(?s)needs an attention that offers 'cross'.*choose one of: .*grouped_query.*multi_head",
        ),
        ({"encoder": {"layer": 3}}, r"architecture\.encoder\.layer is no key.*did you mean 'layers'"),
        ({"encoder": {"cross_attention": "multi_head"}}, r"architecture\.encoder\.cross_attention is no key"),
        ({"decoder": {"layers": 0}}, "a stack needs at least one layer, got 0"),
        ({"encoder": {"position": "learned"}}, r"learned positions need a length; set architecture\.max_length"),
        (
            {"decoder": {"cross_attention": ["multi_head"] * 3}},
            r"architecture\.decoder\.cross_attention lists 3 parts for 2 layers",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        built(**settings)


# One step of training reaches everything (bugs L11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient(variant: str) -> None:
    model = built(**VARIANTS[variant])
    hidden: Tensor = model(TARGET, source_BS=SOURCE, source_valid_BS=VALID).hidden
    nn.functional.cross_entropy(model.head(hidden).flatten(0, 1), TARGET.roll(-1, 1).flatten()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
