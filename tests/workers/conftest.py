"""What the tests of pools share: tries that are counted across processes, a cluster, and watched processes."""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lpes_evo.workers import DevicePool, LocalPool, Pool, RayPool


@dataclass(frozen=True)
class Tries:
    """Counts tries in a file, whichever process makes them.

    Attributes:
        add: Notes a try of this process and returns how many there were before. Workers cannot import the modules of
            the tests, so work takes this function alone with it.
        processes: Returns the process of each try.
    """

    add: Callable[[], int]
    processes: Callable[[], list[int]]


@pytest.fixture
def tries(tmp_path: Path) -> Tries:
    """A counter of tries."""
    path = str(tmp_path / "tries")

    def add() -> int:
        with open(path, "a+") as file:
            file.seek(0)
            n_before = len(file.readlines())
            file.write(f"{os.getpid()}\n")
        return n_before

    def processes() -> list[int]:
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return [int(line) for line in file]

    return Tries(add, processes)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for the cluster."""
    for item in items:
        if "ray_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)


def machine_of_ray(n_gpus: int = 1) -> dict[str, int]:
    """Describe a machine of four CPUs and some GPUs that it pretends to have.

    Ray gives its helpers 15 s to choose ports by themselves, which is too little on a busy machine
    (github.com/ray-project/ray/issues/65983).
    """
    helpers = (
        "metrics_agent_port",
        "metrics_export_port",
        "dashboard_agent_listen_port",
        "runtime_env_agent_port",
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in helpers]
        for one in sockets:
            one.bind(("", 0))
        ports = [one.getsockname()[1] for one in sockets]
    return {"num_cpus": 4, "num_gpus": n_gpus, **dict(zip(helpers, ports, strict=True))}


def hand_on_the_port(services: Any, patch: pytest.MonkeyPatch) -> None:
    """Hand to the raylet the one port that Ray knows, but lets it wait for."""
    start = services.start_ray_process

    def start_ray_process(command: list[str], process_type: str, **options: Any) -> Any:
        if process_type == "raylet":
            port = re.search(r"--listen-port=(\d+)", " ".join(command))
            command = [*command, f"--dashboard_agent_listen_port={port[1]}"]
        return start(command, process_type, **options)

    patch.setattr(services, "start_ray_process", start_ray_process)


@pytest.fixture(scope="session")
def add_machine() -> Callable[..., Any]:
    """Adds a machine to a cluster."""
    return lambda cluster, n_gpus=1: cluster.add_node(**machine_of_ray(n_gpus))


@pytest.fixture(scope="session")
def ray_cluster(add_machine: Callable[..., Any]) -> Iterator[Any]:
    """A cluster of two machines, which this process is no part of yet."""
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    from ray._private import services
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # A busy machine starts processes more slowly than Ray expects.
        patch.setenv("RAY_agent_register_timeout_ms", "300000")
        patch.setenv("RAY_worker_register_timeout_seconds", "300")
        # Every actor has an environment of its own, so that it cannot use a process that waits for any.
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        hand_on_the_port(services, patch)
        cluster = Cluster(
            initialize_head=True, head_node_args=machine_of_ray() | {"include_dashboard": False}
        )
        add_machine(cluster)
        yield cluster
        cluster.shutdown()


MakePool = Callable[..., Pool]


@pytest.fixture(scope="module", params=["local", "processes", pytest.param("ray", marks=pytest.mark.ray)])
def make_pool(request: pytest.FixtureRequest) -> Iterator[MakePool]:
    """Makes pools of each kind, of two workers where there are workers."""
    if request.param == "local":
        yield LocalPool
    elif request.param == "processes":
        yield partial(DevicePool, "cpu:2")
    else:
        cluster = request.getfixturevalue("ray_cluster")
        import ray

        # Pools leave this connection open, which saves each its own.
        ray.init(address=cluster.address, log_to_driver=False)
        yield partial(RayPool, cluster.address, devices="cpu:2")
        ray.shutdown()


@pytest.fixture
def gone() -> Callable[..., bool]:
    """Tells whether processes end within some seconds; a process that waits to be reaped has ended."""

    def gone(pids: list[int], seconds: float = 15.0) -> bool:
        deadline = time.monotonic() + seconds
        while any(_is_running(pid) for pid in pids):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    return gone


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
