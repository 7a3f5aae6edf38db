"""What `RayPool` does on clusters of several machines, and when they are lost."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lpes_evo.errors import ConfigError, EvaluationError
from lpes_evo.workers import RayPool, make_pool

ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")


@pytest.fixture
def events(monkeypatch):
    # A slow machine takes long to start an actor, and says so.
    monkeypatch.setattr("lpes_evo.workers._ray._TELL_AFTER_SECONDS", float("inf"))
    return []


def test_every_gpu_of_the_cluster_has_one_worker_that_sees_it_alone(ray_cluster):
    def spec(device):
        import os
        import sys

        return device, os.environ["CUDA_VISIBLE_DEVICES"], "torch" in sys.modules

    def see(target, _item):
        import time

        import ray

        time.sleep(0.5)
        return ray.get_runtime_context().get_node_id(), *target

    seen = set()
    with make_pool(spec, ray_address=ray_cluster.address) as pool:
        assert pool.n_workers == 2
        for _ in range(100):
            seen |= set(pool.map(see, range(2)))
            if len(seen) == 2:
                break
        names = [usage.worker for usage in pool.usage()]
    assert {row[0] for row in seen} == {
        node.node_id for node in [ray_cluster.head_node, *ray_cluster.worker_nodes]
    }
    assert {row[1:] for row in seen} == {("cuda:0", "0", False)}
    assert names == [f"worker {number} on cuda:0 of {socket.gethostname()}" for number in range(2)]


def test_a_worker_gets_several_gpus_of_one_machine_and_the_rest_is_told(ray_cluster, add_machine, events):
    with pytest.raises(
        ConfigError,
        match=r"^Expected a machine of the Ray cluster with 2 GPUs for one worker, but .* have 1, 1\.",
    ):
        make_pool(None, ray_address=ray_cluster.address, gpus_per_worker=2)

    def spec(device):
        import os
        import time

        from lpes_evo.workers import tell

        tell("has loaded 40 %")
        time.sleep(12)
        return device, os.environ["CUDA_VISIBLE_DEVICES"]

    machine = add_machine(ray_cluster, n_gpus=2)
    try:
        with make_pool(
            spec, ray_address=ray_cluster.address, gpus_per_worker=2, on_event=events.append
        ) as pool:
            assert pool.n_workers == 1
            assert pool.call(lambda target: target) == ("cuda:0+cuda:1", "0,1")
            assert pool.usage()[0].worker == f"worker 0 on cuda:0+cuda:1 of {socket.gethostname()}"
    finally:
        ray_cluster.remove_node(machine)
    assert events == [
        "2 GPUs of the cluster stay idle, since no machine has 2 of them left",
        "worker 0 on 2 GPUs of the cluster has loaded 40 %",
    ]


@pytest.mark.parametrize("n_gpus", [0, -1, True, 1.5])
def test_gpus_per_worker_are_a_whole_number(n_gpus):
    with pytest.raises(
        ConfigError, match=r"^Expected the GPUs of a worker to be a whole number of at least 1"
    ):
        RayPool("local", None, gpus_per_worker=n_gpus)


def test_workers_on_cpus_have_no_gpus():
    with pytest.raises(
        ConfigError, match=r"^Expected GPUs for workers of 2 GPUs, but got the devices 'cpu:2'"
    ):
        RayPool("local", None, "cpu:2", gpus_per_worker=2)


IMPORT = """
import sys
import lpes_evo
from lpes_evo.workers import RayPool

def see():
    import lpes_evo
    return lpes_evo.__file__

with RayPool(sys.argv[1], None, "cpu:1") as pool:
    print(pool.call(see) == lpes_evo.__file__)
"""


def test_actors_import_the_installed_package_and_not_one_in_the_working_directory(ray_cluster, tmp_path):
    (tmp_path / "work" / "lpes_evo").mkdir(parents=True)
    (tmp_path / "work" / "lpes_evo" / "__init__.py").write_text("raise ImportError('the wrong package')")
    script = tmp_path / "script.py"
    script.write_text(IMPORT)
    result = subprocess.run(
        [sys.executable, script, ray_cluster.address], capture_output=True, text=True, cwd=tmp_path / "work"
    )
    assert result.stderr == ""
    assert result.stdout == "True\n"


def test_actors_that_cannot_be_created_tell_the_reason(ray_cluster, events, monkeypatch):
    def fail(_self, _strangers):
        raise ModuleNotFoundError("No module named 'lpes_evo'")

    monkeypatch.setattr("lpes_evo.workers._ray_host.Host.__init__", fail)
    with pytest.raises(
        EvaluationError,
        match=r"all were given up; the last: worker 0 on a CPU of the cluster is gone: it could not be created: "
        r"ModuleNotFoundError: No module named 'lpes_evo'\. Mend the cause",
    ):
        RayPool(ray_cluster.address, None, "cpu:1", on_event=events.append)


def test_workers_without_a_gpu_see_none_and_share_the_cores(ray_cluster, monkeypatch):
    for limit in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(limit, raising=False)

    def spec(device):
        import os

        return device, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MKL_NUM_THREADS"]

    with RayPool(ray_cluster.address, spec, "cpu") as pool:
        assert pool.n_workers == 2
        assert pool.call(lambda target: target) == ("cpu", "", "4")


def test_nothing_is_lost_with_a_machine_that_is_lost(ray_cluster, add_machine, events, tries):
    note = tries.add

    def evaluate(_target, item):
        import time

        import ray

        note()
        time.sleep(0.2)
        return item * item, ray.get_runtime_context().get_node_id()

    def lose():
        while len(tries.processes()) < 6:
            time.sleep(0.05)
        ray_cluster.remove_node(lost, allow_graceful=False)

    lost = next(iter(ray_cluster.worker_nodes))
    with RayPool(ray_cluster.address, lambda _device: None, on_event=events.append) as pool:
        remover = threading.Thread(target=lose)
        remover.start()
        try:
            tickets = [pool.submit(evaluate, item, label=f"candidate {item}") for item in range(30)]
            done = {completion.ticket: completion for completion in (pool.wait() for _ in tickets)}
        finally:
            remover.join()
        assert [done[ticket].value[0] for ticket in tickets] == [item * item for item in range(30)]
        # Only what was on its way is done again. A busy machine may take more than one actor for lost.
        assert sum(completion.attempts for completion in done.values()) <= len(tickets) + len(events)
        assert any(
            re.match(r"worker [01] on cuda:0 of .* is gone: The actor .*; another is started in its", event)
            for event in events
        )
        # A new machine takes the place of the lost one.
        add_machine(ray_cluster)
        for _ in range(300):
            if len({node for _, node in pool.map(evaluate, range(2))}) == 2:
                break
        else:
            pytest.fail("the new machine was not used")
        # Until the cluster has missed the heartbeats of the lost machine, it gives it the actors of later pools.
        while any(node["Alive"] for node in ray.nodes() if node["NodeID"] == lost.node_id):
            time.sleep(0.1)


def test_a_killed_actor_is_replaced_and_its_work_done_again(ray_cluster, events, tries):
    note = tries.add

    def evaluate(_target, item):
        import os
        import signal

        if item == 3 and note() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with RayPool(ray_cluster.address, lambda _device: None, "cpu:2", on_event=events.append) as pool:
        assert pool.map(evaluate, range(8)) == list(range(8))
    # The kill costs one try; a busy machine may take the other actor for lost, too.
    assert 2 <= len(tries.processes()) <= 3
    assert any(
        re.match(r"worker [01] on cpu of .* is gone: .* while it worked on individual 3, try 1 of 3; ", event)
        for event in events
    )


def test_a_stopped_actor_is_hung(ray_cluster, events, tries):
    note = tries.add

    def evaluate(_target, item):
        import os
        import signal

        if item == 1 and note() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return item

    pool = RayPool(
        ray_cluster.address, lambda _device: None, "cpu:2", silence_limit=3.0, on_event=events.append
    )
    with pool:
        assert pool.map(evaluate, range(3)) == [0, 1, 2]
    assert any(
        "gave no sign of life for 3 s while it worked on individual 1, try 1 of 3" in line for line in events
    )


def test_work_beyond_its_limit_is_hung(ray_cluster, events, tries):
    note = tries.add

    def evaluate(_target, item):
        import time

        if item == 1 and note() == 0:
            time.sleep(600)
        return item

    pool = RayPool(ray_cluster.address, lambda _device: None, "cpu:2", work_limit=1.5, on_event=events.append)
    with pool:
        assert pool.map(evaluate, range(3)) == [0, 1, 2]
    assert any(
        "was at work for more than 1.5 s, the limit of a step, while it worked on individual 1" in line
        for line in events
    )


def test_workers_without_a_place_wait_and_the_others_go_on(ray_cluster, monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._ray._TELL_AFTER_SECONDS", 0.5)
    events = []
    # Both GPUs are asked for by each of two pools.
    with RayPool(ray_cluster.address, lambda _device: 1) as first:
        while not all(slot.is_ready for slot in first._slots):
            first.call(lambda target: target)
        with pytest.raises(
            EvaluationError,
            match=r"^Expected the Ray cluster to have room for a worker, but for 2 s it had none",
        ):
            RayPool(ray_cluster.address, lambda _device: 2, patience=2.0, on_event=events.append)
        assert events == [
            f"worker {number} on a GPU of the cluster has waited 0.5 s for its place, and goes on waiting"
            for number in range(2)
        ]
        assert first.map(lambda target, item: target * item, range(4)) == [0, 1, 2, 3]


def test_a_connection_of_the_caller_stays_open(ray_cluster):
    ray.init(address=ray_cluster.address, log_to_driver=False)
    try:
        with RayPool("auto", None, "cpu") as pool:
            assert pool.map(abs, [-1]) == [1]
        assert ray.is_initialized()
        with pytest.raises(
            ConfigError, match=r"^Expected the Ray cluster .* that this process is connected to"
        ):
            RayPool("127.0.0.1:1", None, "cpu")
    finally:
        ray.shutdown()


def test_pools_share_a_connection_and_the_last_one_closes_it(ray_cluster):
    handler = signal.getsignal(signal.SIGTERM)
    with RayPool(ray_cluster.address, lambda _device: 1, "cpu:1") as first:
        with RayPool(ray_cluster.address, lambda _device: 2, "cpu:1") as second:
            assert second.call(lambda target: target) == 2
        assert first.call(lambda target: target) == 1
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_more_actors_than_cpus_are_refused(ray_cluster):
    with pytest.raises(
        ConfigError, match=r"^Expected at most as many actors as the Ray cluster has CPUs, which is 8"
    ):
        RayPool(ray_cluster.address, None, "cpu:9")
    assert not ray.is_initialized()


@pytest.mark.parametrize("devices", ["cuda:0", "cpu:0", "cpu:2000", "gpu", ""])
def test_devices_that_ray_cannot_choose_are_refused(devices):
    with pytest.raises(
        ConfigError, match=r"^Expected the devices of a Ray cluster to be auto, cuda, cpu, or cpu:N"
    ):
        RayPool("local", None, devices)


def test_an_address_where_nothing_answers_is_refused():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"^Expected a Ray cluster at .*, but nothing answers there"):
            RayPool(address)


def test_an_address_where_something_else_answers_is_refused():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer():
            channel, _ = server.accept()
            with channel:
                channel.recv(1000)
                channel.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(
            ConfigError, match=r"^Expected a Ray cluster at .*, but what answers there is something"
        ):
            RayPool(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_a_cluster_that_lets_nobody_in_is_refused_with_a_word_on_tokens(monkeypatch):
    def fail(**_options):
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr("lpes_evo.workers._ray_session._probe", lambda _address: None)
    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(
        ConfigError, match=r"Failed to connect to Ray cluster\. If .*, set RAY_AUTH_MODE=token\.$"
    ):
        RayPool("10.0.0.1:6379")


@pytest.mark.parametrize("address", ["", "cluster", "ray://host:10001", "host:99999", "host:port"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(
        ConfigError, match=r"^Expected the address of a Ray cluster: local, auto or host:port"
    ):
        RayPool(address)


def test_without_ray_the_error_says_how_to_install_it(tmp_path):
    (tmp_path / "ray.py").write_text("raise ImportError('No module named ray')")
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lpes_evo.workers import RayPool\ntry:\n    RayPool('local')\nexcept ValueError as error:\n"
            "    print(error)",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert result.stdout.endswith("Run in the clone: pip install '.[ray]'\n")
    assert result.stderr == ""


LOCAL = """
import os, sys, time
from lpes_evo.workers import RayPool

folder = sys.argv[1]

def spec(_device):
    open(os.path.join(folder, str(os.getpid())), "w").close()

with RayPool("local", spec, "cpu:2") as pool:
    while len(os.listdir(folder)) < 2:
        pool.call(lambda _target: None)
    for _ in range(2):
        pool.submit(lambda _target: time.sleep(600))
    print("ready", flush=True)
    pool.wait()
"""


def start_local(folder):
    """Start a program with a local cluster.

    Ray gives up where its helpers have no ports after 15 s (github.com/ray-project/ray/issues/65983); no option of a
    local cluster changes that, so that such a machine cannot run these tests.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", LOCAL, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder.parent,
        start_new_session=True,
    )
    try:
        line = process.stdout.readline()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if line == "ready\n":
        return process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    logs = Path(ray._common.utils.get_default_ray_temp_dir()).glob(f"session_*_{process.pid}/logs/raylet.out")
    if any("Timed out waiting for file" in log.read_text() for log in logs):
        pytest.skip("this machine is too busy for Ray, which gives its helpers 15 s to start")
    pytest.fail(errors)


@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_actor_of_a_local_cluster_outlives_its_program(tmp_path, gone, number):
    folder = tmp_path / "pids"
    folder.mkdir()
    process = start_local(folder)
    try:
        actors = [int(name) for name in os.listdir(folder)]
        assert len(actors) == 2
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(60)
        assert gone(actors, seconds=15)
    finally:
        process.kill()
        process.communicate()
