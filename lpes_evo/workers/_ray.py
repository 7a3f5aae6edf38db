"""RayPool: a pool on a Ray cluster, with one actor per GPU or group of GPUs.

Lost actors are replaced by the pool, and not by Ray's ``max_restarts`` and ``max_task_retries``. These were tried: the
program hears nothing of the tries before the last one, and so cannot report the loss of an actor or count its tries.
Actors also give signs of life to the pool, since Ray does not notice an actor that is stopped.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from lpes_evo.accelerators import devices_of
from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers import _ray_host, _ray_session
from lpes_evo.workers._devices import MOST_WORKERS, thread_limits
from lpes_evo.workers._message import Message
from lpes_evo.workers._pack import pack
from lpes_evo.workers._slots import Slot, SlotPool

_BEATS_PER_LIMIT = 6
_MOST_BEAT_SECONDS = 5.0
_TELL_AFTER_SECONDS = 30.0


class RayPool(SlotPool):
    """A pool with one actor per GPU, or group of GPUs, of a Ray cluster; a lost actor is replaced.

    A lost actor, alone or with its machine, is replaced wherever the cluster has room. While there is no room, its
    place waits, and the other actors continue. On a cluster without GPUs each actor takes one CPU.

    The package must be installed on every machine of the cluster. Paths and models that the spec names must exist
    there.

    Args:
        address: ``local`` for a cluster on this machine that ends with the pool, ``auto`` for the cluster that runs on
            this machine, or ``host:port``. A process that is connected to a cluster stays connected to it.
        spec: Makes the target in each worker from the name of its device, ``cpu``, ``cuda:0`` or a group such as
            ``cuda:0+cuda:1``. The spec is sent to the worker. ``None`` for functions that need no target.
        devices: ``cuda`` for all GPUs of the cluster, ``cpu`` for one actor per machine, ``cpu:N`` for N actors
            without a GPU, ``auto`` for the GPUs or, without GPUs, one actor per machine.
        gpus_per_worker: GPUs of each actor, all of one machine. GPUs of a machine that are left over are told, and stay
            idle.
        work_limit: Seconds after which work that is still alive counts as hung, from one step to the next, see
            `lpes_evo.workers.mark_step`. ``None`` follows the work itself: 20 times the longest piece seen so far but
            at least two minutes, and an hour until three are seen.
        silence_limit: Seconds without a sign of life after which a busy worker counts as hung, at least 3; ten times
            as many for a worker that makes its target.
        patience: Seconds without any worker that has a place in the cluster, after which the pool gives up.
        on_event: Called with one line about each lost, waiting or replaced worker.

    Raises:
        ConfigError: Ray is not installed, there is no such cluster, it has no such devices, no machine has as many GPUs
            as a worker is to have, or the spec cannot be sent to a worker.
        LpesError: The target cannot be made. The class is that of the error of the spec, or else `EvaluationError`.
        EvaluationError: The workers die before they are ready, or the cluster has no room for any worker.
    """

    def __init__(
        self,
        address: str,
        spec: Callable[[str], Any] | None = None,
        devices: str = "auto",
        *,
        gpus_per_worker: int | None = None,
        work_limit: float | None = None,
        silence_limit: float = 60.0,
        patience: float = 300.0,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        # Everything that can be checked without a cluster is checked first.
        n_cpu_actors = _n_cpu_actors(devices)
        _check_gpus_per_worker(gpus_per_worker, devices)
        self._spec = pack(spec, "the spec of the pool")
        self._ray = _ray_session.import_ray()
        self._must_disconnect = _ray_session.connect(address, n_cpu_actors)

        try:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self._device, n_workers, n_threads = _shares(nodes, devices, n_cpu_actors, gpus_per_worker)
            n_gpus = 0 if self._device == "cpu" else len(devices_of(self._device))
            super().__init__(
                [_place_name(n_gpus)] * n_workers,
                work_limit=work_limit,
                silence_limit=silence_limit,
                on_event=on_event,
            )
        except BaseException:
            self._disconnect()
            raise

        self._patience = patience
        self._beat_seconds = min(_MOST_BEAT_SECONDS, silence_limit / _BEATS_PER_LIMIT)
        variables = thread_limits(n_threads)
        if not n_gpus:
            # Ray spreads the actors over machines, and hides the GPUs that an actor did not ask for.
            options = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
            variables["CUDA_VISIBLE_DEVICES"] = ""
        else:
            options = {"num_cpus": 0, "num_gpus": n_gpus}
            n_left = sum(int(node.get("GPU", 0)) for node in nodes) - n_gpus * n_workers
            if n_left:
                self.on_event(
                    f"{n_left} GPUs of the cluster stay idle, since no machine has {n_gpus} of them left"
                )

        self._strangers = _strangers()
        self._ray.cloudpickle.register_pickle_by_value(_ray_host)
        self._actor_class = self._ray.remote(max_restarts=0, concurrency_groups={"beat": 1}, **options)(
            _ray_host.Host
        ).options(runtime_env={"env_vars": variables})
        self._placed_at = time.monotonic()
        self._start_all()

    def _end(self) -> None:
        super()._end()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._must_disconnect:
            self._must_disconnect = False
            _ray_session.disconnect()

    def _start(self, slot: Slot) -> "_RayWorker":  # noqa: ARG002  (Ray chooses the place)
        actor = self._actor_class.remote(self._strangers)
        return _RayWorker(self._ray, actor, actor.make.remote(self._spec, self._device), self._beat_seconds)

    def _listen(self, timeout: float) -> Iterator[tuple["_RayWorker", Message]]:
        self._look_for_places()
        workers = [slot.worker for slot in self._slots if isinstance(slot.worker, _RayWorker)]
        said = {reference: worker for worker in workers for reference in worker.references()}
        if not said:
            time.sleep(timeout)
            return
        ready, _ = self._ray.wait(list(said), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = self._ray.wait(list(said), num_returns=len(said), timeout=0)
        for reference in ready:
            yield said[reference], said[reference].receive(reference)

    def _look_for_places(self) -> None:
        """Report workers that wait for a place in the cluster, and give up if all of them wait too long."""
        now = time.monotonic()
        workers = [(slot, slot.worker) for slot in self._slots if isinstance(slot.worker, _RayWorker)]
        if any(worker.is_placed for _, worker in workers):
            self._placed_at = now

        if now - self._placed_at > self._patience:
            raise EvaluationError(
                f"Expected the Ray cluster to have room for a worker, but for {self._patience:g} s it had none for "
                f"any of {self.n_workers}. End what else uses it, or add a machine."
            )

        for slot, worker in workers:
            if worker.is_waiting_long(now):
                self.on_event(
                    f"{slot.name} has waited {_TELL_AFTER_SECONDS:g} s for its place, and goes on waiting"
                )


class _RayWorker:
    """An actor, and the references to its pending answers."""

    def __init__(self, ray: Any, actor: Any, target: Any, beat_seconds: float) -> None:
        self.is_placed = False
        self._ray = ray
        self._actor = actor
        self._answer = target
        self._beat_seconds = beat_seconds
        self._told_at = time.monotonic() + _TELL_AFTER_SECONDS
        self._n_steps = 0
        self._ask_for_beat()

    def references(self) -> list[Any]:
        """Return the pending references, which are also ready when the actor is lost."""
        return [self._beat] if self._answer is None else [self._answer, self._beat]

    def is_waiting_long(self, now: float) -> bool:
        """Return whether the actor has waited long for a place in the cluster; true only once."""
        if self.is_placed or now < self._told_at:
            return False
        self._told_at = float("inf")
        return True

    def is_alive(self) -> bool:
        ready, _ = self._ray.wait([self._beat], timeout=0)
        return not ready or self.receive(self._beat).kind in ("alive", "advanced", "told")

    def send(self, request: bytes) -> None:
        self._answer = self._actor.work.remote(request)

    def receive(self, reference: Any) -> Message:
        """Return the message of a reference that is ready."""
        try:
            data = self._ray.get(reference)
        except (self._ray.exceptions.RayError, RuntimeError) as error:
            return Message("gone", text=f"is gone: {_reason(error)}")
        self.is_placed = True
        if reference == self._beat:
            self._ask_for_beat()
            n_steps, news = data
            has_advanced, self._n_steps = n_steps != self._n_steps, n_steps
            if news:
                return Message("told", text=news)
            return Message("advanced" if has_advanced else "alive")
        self._answer = None
        return Message.decode(data)

    def kill(self) -> None:
        # If the cluster itself is lost, there is nothing to end.
        with suppress(self._ray.exceptions.RayError, RuntimeError):
            self._ray.kill(self._actor, no_restart=True)

    def bury(self) -> None:
        """Do nothing, since Ray gives the next actor a place when this one is gone."""

    def _ask_for_beat(self) -> None:
        beat = self._actor.beat.options(concurrency_group="beat")
        self._beat = beat.remote(self._beat_seconds if self.is_placed else 0.0)


def _n_cpu_actors(devices: str) -> int | None:
    """Return N of ``cpu:N``, and ``None`` for the other names of devices."""
    if devices in ("auto", "cuda", "cpu"):
        return None
    match = re.fullmatch(r"cpu:([1-9]\d{0,4})", devices)
    if match is None or int(match[1]) > MOST_WORKERS:
        raise ConfigError(
            f"Expected the devices of a Ray cluster to be auto, cuda, cpu, or cpu:N for N at most {MOST_WORKERS}, but "
            f"got {devices!r:.80}. Ray itself chooses the GPUs; --gpus-per-worker gives a worker several."
        )
    return int(match[1])


def _check_gpus_per_worker(gpus_per_worker: int | None, devices: str) -> None:
    """Refuse a number of GPUs of a worker that is none, or that stands beside workers without a GPU.

    Raises:
        ConfigError: It is one.
    """
    if gpus_per_worker is None:
        return
    if isinstance(gpus_per_worker, bool) or not isinstance(gpus_per_worker, int) or gpus_per_worker < 1:
        raise ConfigError(
            f"Expected the GPUs of a worker to be a whole number of at least 1, but got {gpus_per_worker!r:.80}."
        )
    if devices.startswith("cpu"):
        raise ConfigError(
            f"Expected GPUs for workers of {gpus_per_worker} GPUs, but got the devices {devices!r}. Leave one of them "
            "out."
        )


def _place_name(n_gpus: int) -> str:
    """Return what messages call the place of a worker before it is known."""
    return ("a CPU", "a GPU", f"{n_gpus} GPUs")[min(n_gpus, 2)] + " of the cluster"


def _shares(
    nodes: list[dict[str, float]], devices: str, n_cpu_actors: int | None, gpus_per_worker: int | None = None
) -> tuple[str, int, int]:
    """Return the name of the device within an actor, the number of actors, and the number of threads of each."""
    size = gpus_per_worker or 1
    all_gpus = [(int(node.get("GPU", 0)), int(node.get("CPU", 0))) for node in nodes]
    gpus = [(n // size, cpus) for n, cpus in all_gpus if n >= size]
    n_cpus = sum(int(node.get("CPU", 0)) for node in nodes)

    if gpus and devices in ("auto", "cuda"):
        group = "+".join(f"cuda:{place}" for place in range(size))
        return group, sum(n for n, _ in gpus), max(1, min(cpus // n for n, cpus in gpus))

    if gpus_per_worker is not None:
        raise ConfigError(
            f"Expected a machine of the Ray cluster with {size} GPUs for one worker, but its machines have "
            f"{', '.join(str(n) for n, _ in all_gpus)}. Take fewer GPUs per worker."
        )

    if devices == "cuda":
        raise ConfigError(
            f"Expected a GPU in the Ray cluster, but its {len(nodes)} machines have none. Use --devices cpu:N."
        )

    n_workers = n_cpu_actors if n_cpu_actors is not None else max(1, len(nodes))
    if n_workers > n_cpus:
        raise ConfigError(
            f"Expected at most as many actors as the Ray cluster has CPUs, which is {n_cpus}, but got {n_workers}."
        )

    return "cpu", n_workers, max(1, n_cpus // n_workers)


def _strangers() -> list[str]:
    """Return the folders that actors of Ray import from first, but this process does not.

    The only such folder is the working directory. In a clone of this project its folder `lpes_evo` would hide the
    installed package.
    """
    here = os.path.abspath(os.curdir)
    return [] if here in map(os.path.abspath, sys.path) else [here]


def _reason(error: Exception) -> str:
    """Return Ray's reason for the loss of an actor, as one line without the identifiers of the cluster."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and "error raised in its creation task" in lines[0]:
        return f"it could not be created: {lines[-1]:.280}"
    telling = [line for line in lines if line.startswith(("The actor is dead", "The actor died because"))]
    text, _, _ = " ".join(telling or lines[:1]).partition(" Some common causes")
    return text[:300] or type(error).__name__
