"""What every kind of module owes: configuration, gradients, precision, saving, initial values.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.config import knobs
from zoo.initialization import initialize
from zoo.testing.module_case import DIM, ModuleCase
from zoo.testing.module_costs import counts_on_meta
from zoo.testing.module_graphs import compiles, compiles_to_kernels, exports
from zoo.testing.module_processes import pickles, two_processes
from zoo.testing.numbers import agree, finite, noise, within_rounding
from zoo.testing.suite import Check, Failed, Skipped


def documented_config(case: Any) -> None:
    """Recipes, tables and ``zoo new`` read only the Config: each field needs a type, a default and a docstring."""
    for name in _untyped(case.component.Config):
        raise Failed(f"Config.{name} has no type, which makes it no knob; write {name}: TYPE = DEFAULT")
    for field in dataclasses.fields(case.component.Config):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Failed(f"Config.{field.name} has no default")
        if not field.kw_only:
            raise Failed(f"Config.{field.name} can be given by place; write @dataclass(kw_only=True)")
    for knob in knobs(case.component.Config):
        if not knob.text:
            raise Failed(f"Config.{knob.name} has no docstring under it")


def _untyped(config: type) -> Iterator[str]:
    """Names of what would be a field of a Config, or another default of a base's, had it an annotation."""
    for owner in config.__mro__[:-1]:
        typed = vars(owner).get("__annotations__", {})
        for name, value in vars(owner).items():
            is_data = not (name.startswith("_") or callable(value) or hasattr(value, "__get__"))
            if is_data and name not in typed:
                yield name


def same_again(case: ModuleCase) -> None:
    """Evaluation is a function: dropout is off, nothing is left behind by an earlier call."""
    module, x_BTD = case.make(), case.input()
    first = case.run(module, x_BTD)
    case.run(module, case.input(salt=1))
    agree(case.run(module, x_BTD), first, "a second pass over the same input", tolerance=0.0)
    agree(case.run(case.make(), x_BTD), first, "a second module with the same values", tolerance=0.0)


def leaves_alone(case: ModuleCase) -> None:
    """A training pass changes neither its input nor a parameter; only an optimizer may."""
    module, x_BTD = case.make(training=True), case.input()
    before = {"the input": x_BTD.clone(), **{name: p.detach().clone() for name, p in module.named_parameters()}}
    case.run(module, x_BTD)
    for name, value in {"the input": x_BTD, **dict(module.named_parameters())}.items():
        agree(value, before[name], f"{name} after a pass", tolerance=0.0)


def dropout_only_in_training(case: ModuleCase) -> None:
    """With a dropout of 0.5 evaluation gives what it gives without."""
    if "dropout" not in case.parent:
        raise Skipped("its parent tells it no dropout")
    x_BTD = case.input()
    want = case.run(case.make(dropout=0.0), x_BTD)
    agree(case.run(case.make(dropout=0.5), x_BTD), want, "evaluation with dropout 0.5 against dropout 0", tolerance=0.0)


def finite_gradients(case: ModuleCase) -> None:
    """After one backward pass every parameter and the input have a gradient, and all numbers in it are finite."""
    module, x_BTD = case.make(training=True), case.input().requires_grad_()
    out = case.run(module, x_BTD)
    (out * noise(*out.shape, seed=case.seed + 1)).sum().backward()
    for name, gradient in [("the input", x_BTD.grad), *((n, p.grad) for n, p in trainable(module))]:
        if gradient is None:
            raise Failed(f"{name} has no gradient; a parameter that nothing uses stops data-parallel training")
        finite(gradient, f"gradient of {name}")


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters that are trained."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def right_gradients(case: ModuleCase) -> None:
    """The backward pass is the derivative of the forward pass: finite differences in float64, one tensor at a time."""
    module, x_BTD = case.make(), case.input(batch=1).requires_grad_()
    weights = noise(*case.run(module, x_BTD).shape, seed=case.seed + 1)
    tensors = [("the input", x_BTD), *trainable(module)]
    gradients = torch.autograd.grad(
        (case.run(module, x_BTD) * weights).sum(), [tensor for _, tensor in tensors], allow_unused=True
    )
    for index, ((name, tensor), gradient) in enumerate(zip(tensors, gradients, strict=True)):
        direction = noise(*tensor.shape, seed=case.seed + 10 + index)
        want = _slope(lambda: float((case.run(module, x_BTD).detach() * weights).sum()), tensor, direction)
        got = 0.0 if gradient is None else float((gradient * direction).sum())
        if abs(got - want) > 1e-5 * max(1.0, abs(want)):
            raise Failed(
                f"gradient of {name} along a random direction is {got:.6g}, finite differences give {want:.6g}"
            )


@torch.no_grad()
def _slope(function: Callable[[], float], tensor: Tensor, direction: Tensor, step: float = 1e-6) -> float:
    """Central difference of a function while a tensor moves along a direction."""
    original = tensor.clone()
    values = []
    for sign in (1, -1):
        tensor.copy_(original + sign * step * direction)
        values.append(function())
    tensor.copy_(original)
    return (values[0] - values[1]) / (2 * step)


def keeps_precision(case: ModuleCase) -> None:
    """float32 in, float32 out, and close to float64; float64 is computed as float64 all the way."""
    module, x_BTD = case.make(), case.input()
    want = case.run(module, x_BTD)
    if want.dtype != torch.float64:
        raise Failed(f"float64 input gives {want.dtype}")
    got = case.run(case.make().float(), x_BTD.float())
    if got.dtype != torch.float32:
        raise Failed(f"float32 input gives {got.dtype}")
    within_rounding(got, want, torch.float32, "float32 against float64", roundings=64)


def half_precision(case: ModuleCase) -> None:
    """A bfloat16 module gives bfloat16, finite and within a few roundings of float64 with the same weights."""
    module, x_BTD = case.make().bfloat16(), case.input(dtype=torch.bfloat16)
    want = case.run(_with_values_of(case, module), x_BTD.double())
    got = case.run(module, x_BTD)
    if got.dtype != torch.bfloat16:
        raise Failed(f"bfloat16 input gives {got.dtype}")
    within_rounding(got, want, torch.bfloat16, "bfloat16 against float64")
    finite(case.run(case.make().half(), x_BTD.half()), "float16")


def autocast(case: ModuleCase) -> None:
    """Under bfloat16 autocast a float32 module stays within a few roundings of float64; its gradients are finite."""
    module, x_BTD = case.make().float(), case.input(dtype=torch.float32).requires_grad_()
    want = case.run(_with_values_of(case, module), x_BTD.detach().double())
    with torch.autocast("cpu", torch.bfloat16):
        got = case.run(module, x_BTD)
    within_rounding(got.detach(), want.detach(), torch.bfloat16, "bfloat16 autocast against float64")
    got.float().sum().backward()
    for name, parameter in trainable(module):
        if parameter.grad is not None:
            finite(parameter.grad, f"gradient of {name} under autocast")


def _with_values_of(case: ModuleCase, module: nn.Module) -> nn.Module:
    """The same module in float64, made anew: its tables are as precise as they can be, its parameters as given."""
    exact = case.make()
    values = dict(module.named_parameters())
    with torch.no_grad():
        for name, parameter in exact.named_parameters():
            parameter.copy_(values[name])
    return exact


def saves_and_loads(case: ModuleCase) -> None:
    """The state dict holds all that was learned, once; loaded into another module it gives the same function."""
    module, other = case.make(), case.make(seed=case.seed + 1)
    x_BTD = case.input()
    want = case.run(module, x_BTD)
    state = module.state_dict()
    check_storable(module, state)
    other.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    agree(case.run(other, x_BTD), want, "a module with the state dict loaded", tolerance=0.0)


def check_storable(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Each tensor once, none a scalar, no buffer that would be rounded."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise Failed(f"{name} in the state dict is {type(tensor).__name__}; safetensors holds tensors only")
        if name in parameters and tensor.ndim == 0:
            raise Failed(f"parameter {name} is a scalar, which FSDP2 refuses; give it the shape (1,)")
        if name not in parameters and tensor.is_floating_point():
            raise Failed(f"buffer {name} would be saved, rounded to the model's precision; make it persistent=False")
    places = [tensor.data_ptr() for tensor in state.values() if tensor.numel()]
    if len(places) > len(set(places)):
        raise Failed("two names of the state dict are one tensor, which safetensors refuses; keep one of them")


def copies_after_use(case: ModuleCase) -> None:
    """A module that has been used can be copied and used again: no graph, no table of the last call is left in it."""
    module, x_BTD = case.make(training=True), case.input().requires_grad_()
    case.run(module, x_BTD).sum().backward()
    twin = copy.deepcopy(module)
    case.run(module, x_BTD).sum().backward()
    agree(case.run(twin.eval(), x_BTD), case.run(module.eval(), x_BTD), "a copy after use", tolerance=0.0)


def seeded_initialization(case: ModuleCase) -> None:
    """Every parameter is filled, and the same seed gives the same values whatever other generators do meanwhile."""
    first, again = (dict(_initialized(case).named_parameters()) for _ in range(2))
    for name, value in first.items():
        finite(value.detach(), f"initial {name}")
        agree(again[name], value, f"{name} initialized twice with one seed", tolerance=0.0)


def _initialized(case: ModuleCase) -> nn.Module:
    module = case.build(case.variant.knobs).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    try:
        initialize(module, case.seed, std=0.02, branch_std=0.01)
    except TypeError as error:
        raise Failed(str(error)) from error
    return module


def works_on_meta(case: ModuleCase) -> None:
    """On the meta device it has shapes and no values, so that ``zoo info`` can count a model of any size."""
    want = case.run(case.make(), case.input())
    with torch.device("meta"):
        module = case.build(case.variant.knobs)
    if any(parameter.device.type != "meta" for parameter in module.parameters()):
        raise Failed("a parameter is made on a device of its own choice")
    got = case.run(module.eval(), case.input(dtype=torch.float32).to("meta"))
    if got.shape != want.shape:
        raise Failed(f"shape {tuple(got.shape)} on the meta device, {tuple(want.shape)} elsewhere")


def materializes(case: ModuleCase) -> None:
    """Made on the meta device and filled later it equals one made in place: no table is lost on the way."""
    with torch.device("meta"):
        module = case.build(case.variant.knobs)
    module, twin = module.to_empty(device="cpu"), case.build(case.variant.knobs)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.fill_(torch.nan if tensor.is_floating_point() else 2**20)
    for made in (module, twin):
        initialize(made, case.seed, std=0.3, branch_std=0.3)
    x_BTD = case.input(dtype=torch.float32)
    want = case.run(twin.eval(), x_BTD)
    try:
        agree(case.run(module.eval(), x_BTD), want, "made on the meta device and filled", tolerance=0.0)
    except (Failed, IndexError) as error:
        tables = [name for name, _ in module.named_buffers()]
        told = f"; nothing fills {', '.join(tables)}: make tables where they are used" if tables else ""
        raise Failed(f"{error}{told}") from error


def starts_at_its_size(case: ModuleCase) -> str:
    """With initial values, at two widths, outputs are no larger than inputs, and a branch ends with a marked layer."""
    sizes = []
    for width in (DIM, 4 * DIM):
        try:
            module = case.build(case.variant.knobs, dim=width)
        except ValueError:
            continue
        initialize(module, case.seed, std=0.02 * (768 / width) ** 0.5, branch_std=0.01 * (768 / width) ** 0.5)
        x_BTD = noise(2, case.tokens, width, seed=case.seed, dtype=torch.float32)
        _check_marked(case, module.eval(), x_BTD)
        sizes.append(float(case.run(module, x_BTD).detach().square().mean().sqrt()))
        if not sizes[-1] < _LARGEST_START:
            raise Failed(
                f"with initial values outputs have a root mean square of {sizes[-1]:.3g} at width {width}, inputs of 1"
            )
    if len(sizes) == 2 and sizes[1] > max(0.5, 1.6 * sizes[0]):
        raise Failed(
            f"with initial values outputs grow with the width: a root mean square of {sizes[0]:.3g} at {DIM}, of "
            f"{sizes[1]:.3g} at {4 * DIM}; begin with deviations that fall with its root"
        )
    return f"outputs begin with a root mean square of {' and '.join(f'{size:.2g}' for size in sizes)}"


_LARGEST_START = 2.0


def _check_marked(case: ModuleCase, module: nn.Module, x_BTD: Tensor) -> None:
    """A linear layer whose output is the module's own is told of: deep models start these smaller."""
    made: dict[str, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda *call, name=name: made.update({name: call[2]}))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and not getattr(layer, "is_branch_output", False)
    ]
    out_BTD = case.run(module, x_BTD)
    for hook in hooks:
        hook.remove()
    for name, value in made.items():
        if value is out_BTD:
            raise Failed(f"{name} makes the output and isn't marked; write branch_output(nn.Linear(...))")


def harmless(case: ModuleCase) -> None:
    """Tokens of zeros, equal tokens and large ones (in float32) give finite outputs and gradients."""
    for what, dtype in (("zeros", torch.float64), ("equal tokens", torch.float64), ("tokens times 100", torch.float32)):
        module, noise_BTD = case.make(dtype=dtype), case.input(dtype=dtype)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name.endswith("bias"):  # so that zeros stay zeros
                    parameter.zero_()
        given = {"zeros": 0 * noise_BTD, "equal tokens": noise_BTD[:, :1].expand_as(noise_BTD)}
        x_BTD = given.get(what, 100 * noise_BTD).detach().requires_grad_()
        out_BTD = case.run(module, x_BTD)
        finite(out_BTD, f"output for {what}")
        tensors = [x_BTD, *(parameter for _, parameter in trainable(module))]
        for gradient in torch.autograd.grad(out_BTD.sum(), tensors, materialize_grads=True):
            finite(gradient, f"a gradient for {what}")


_FULL: Any = {"knobs": False, "schemes": False, "full": True}

MODULE_CHECKS = [
    Check("every knob has a type, a default and a docstring", documented_config, schemes=False, tokens=(1,)),
    Check("evaluation is deterministic", same_again, tokens=(5,)),
    Check("a pass leaves input and parameters alone", leaves_alone, schemes=False, tokens=(5,)),
    Check("dropout acts in training only", dropout_only_in_training, tokens=(5,)),
    Check("every parameter gets a finite gradient", finite_gradients),
    Check("gradients equal finite differences in float64", right_gradients, tokens=(3,)),
    Check("float32 and float64 are kept", keeps_precision, tokens=(5,)),
    Check("bfloat16 within its rounding", half_precision, tokens=(5,)),
    Check("bfloat16 autocast within its rounding", autocast, tokens=(5,)),
    Check("state dict round trip", saves_and_loads, tokens=(5,)),
    Check("copies after use", copies_after_use, tokens=(5,)),
    Check("initial values follow from the seed", seeded_initialization, schemes=False, tokens=(1,)),
    Check("runs on the meta device", works_on_meta, tokens=(5,)),
    Check("made on the meta device and filled = made in place", materializes, schemes=False, tokens=(5,)),
    Check("counts on the meta device = a run", counts_on_meta, schemes=False, tokens=(16,)),
    Check("compiles (aot_eager) to the same function", compiles, tokens=(5,), knobs=False, schemes=False),
    Check("compiles (inductor) to the same function", compiles_to_kernels, tokens=(5,), **_FULL),
    Check("exports to the same function", exports, tokens=(11,), **_FULL),
    Check("pickles to a spawned process", pickles, tokens=(5,), **_FULL),
    Check("one process = two processes", two_processes, tokens=(5,), **_FULL),
]
"""Checks that every module kind includes."""

BRANCH_CHECKS = [
    Check("starts at its size", starts_at_its_size, schemes=False, tokens=(5,)),
    Check("zeros, equal tokens and large ones are harmless", harmless, tokens=(5,)),
]
"""Further ones, for what stands in a branch of a block."""
