"""MNIST-1D: ten hand-drawn strokes, padded, scaled, shifted, sheared and made noisy; 5,000 signals of 40 points.

Greydanus and Kobak, "Scaling down deep learning with MNIST-1D" (2020), arXiv 2011.14439, section 3; the order of
random draws is that of the authors' package ``mnist1d`` 0.0.2, so that seed 42 gives the same 5,000 signals, in the
same order, up to the rounding of float64. The first 4,000 are for training, the last 1,000 for the test.

A signal of class k is made so, each u uniform in [0, 1):

    pad        the 12 points of stroke k, then 36 + floor(25 u) zeros
    dilate     resampled to 72 points, so that the stroke is wide where few zeros follow
    scale      times 1 + 0.4 (u - 0.5)
    translate  rolled by 0 to 47 points
    noise      the zeros become 0.25 * normal, smoothed by a Gaussian of deviation 2; everywhere + 0.02 * normal
    shear      minus 0.75 (u - 0.5) times a line from -0.5 to 0.5
    resample   to 40 points

All signals together are then brought to mean 0 and deviation 1, and shuffled.
"""

from __future__ import annotations

import numpy as np

TRAIN = 4000
"""Signals of the published training part, which come first."""

CLASSES = 10

_PER_CLASS = 500
_LONG, _SHORT = 72, 40
_LEAST_PADDING, _PADDINGS = 36, 25
_SHIFTS = 48

_STROKES = np.array(
    [
        [5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5],
        [5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5],
        [5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5],
        [5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5],
        [5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5],
        [5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5],
        [5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5],
        [5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5],
    ]
)


def make_mnist1d(seed: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """All signals with their digits.

    Returns:
        signals: (5000, 40) float64.
        digits: (5000,) int64.
    """
    generator = np.random.RandomState(seed)  # the legacy stream, which NumPy promises never to change
    signals = np.stack([_signal(stroke, generator) for stroke in _strokes() for _ in range(_PER_CLASS)])
    order = generator.permutation(len(signals))
    return ((signals - signals.mean()) / signals.std())[order], order // _PER_CLASS


def _strokes() -> np.ndarray:
    """(10, 12) float64: mean 0 and deviation 1 each, moved to begin at 0, then a sixth of that."""
    whitened = (_STROKES - _STROKES.mean(1, keepdims=True)) / _STROKES.std(1, keepdims=True)
    return (whitened - whitened[:, :1]) / 6


def _signal(stroke: np.ndarray, generator: np.random.RandomState) -> np.ndarray:
    padding = _LEAST_PADDING + int(generator.rand() * _PADDINGS)
    # The tiny offset tells a stroke's own zeros from padding, which alone gets the smooth noise.
    signal = _resample(np.concatenate([stroke + 1e-8, np.zeros(padding)]), _LONG)
    signal *= 1 + 0.4 * (generator.rand() - 0.5)
    signal = np.roll(signal, generator.choice(_SHIFTS))
    smooth = _smooth(0.25 * generator.randn(_LONG))
    signal = np.where(signal != 0, signal, smooth) + 0.02 * generator.randn(_LONG)
    signal -= 0.75 * (generator.rand() - 0.5) * np.linspace(-0.5, 0.5, _LONG)
    return _resample(signal, _SHORT)


def _resample(signal: np.ndarray, length: int) -> np.ndarray:
    return np.interp(np.linspace(0, 1, length), np.linspace(0, 1, len(signal)), signal)


def _smooth(noise: np.ndarray) -> np.ndarray:
    """A Gaussian filter of deviation 2, cut off at 8 points, the signal mirrored at its ends."""
    kernel = np.exp(-0.5 * (np.arange(-8, 9) / 2) ** 2)
    return np.convolve(np.pad(noise, 8, mode="symmetric"), kernel / kernel.sum(), mode="valid")
