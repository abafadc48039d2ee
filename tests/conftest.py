"""What holds for every test: one thread, fixed seeds, a cache of the session's own, and no network."""

from __future__ import annotations

import ipaddress
import os
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

# Set before torch is imported, and inherited by child processes: the tests' tensors are too small for more
# threads to pay, and two ranks with two threads each would fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session", autouse=True)
def session_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Token caches and trained tokenizers go into one folder for the session; no plugin comes from outside."""
    folder = tmp_path_factory.mktemp("zoo_cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_CACHE", str(folder))
        patch.delenv("ZOO_PLUGINS", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Sockets of this process reach no other machine."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded(self: socket.socket, address: Any) -> None:
        _refuse_outside(self, address)
        connect(self, address)

    def guarded_ex(self: socket.socket, address: Any) -> int:
        _refuse_outside(self, address)
        return connect_ex(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket.socket, "connect_ex", guarded_ex)
        yield


def _refuse_outside(connection: socket.socket, address: Any) -> None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = address[0]
    if host == "localhost":
        return
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which would have to be asked for
        inside = False
    if not inside:
        raise RuntimeError(f"a test tried to reach {host}; tests use no network")


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Every test starts from the same random state; torch's only if something has imported it."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
