import os

import pytest

from lpes_evo.errors import ConfigError
from lpes_evo.workers import Device, DevicePool, make_pool, parse_devices


@pytest.fixture(autouse=True)
def four_cores_and_no_gpu(monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._devices._n_cores", lambda: 4)
    monkeypatch.setattr("lpes_evo.workers._devices._n_gpus", lambda: 0)
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def names(text):
    return [device.name for device in parse_devices(text)]


def visible(text):
    return [device.environment["CUDA_VISIBLE_DEVICES"] for device in parse_devices(text)]


def test_auto_is_every_gpu_or_one_cpu(monkeypatch):
    assert names("auto") == ["cpu"]
    monkeypatch.setattr("lpes_evo.workers._devices._n_gpus", lambda: 2)
    assert names("auto") == names("cuda") == ["cuda:0", "cuda:1"]


def test_devices_are_listed_with_commas():
    assert names("cuda:1, cpu:2 ,cpu,cuda:0") == ["cuda:1", "cpu", "cpu", "cpu", "cuda:0"]


def test_a_worker_calls_its_only_gpu_the_first():
    assert [device.local_name for device in parse_devices("cuda:3,cpu")] == ["cuda:0", "cpu"]


def test_workers_see_one_gpu_or_none():
    assert visible("cuda:0,cuda:1,cpu") == ["0", "1", ""]


@pytest.mark.parametrize("entries", [["2", "3"], ["GPU-8f2c", "MIG-77aa"]])
def test_gpus_are_those_of_the_list_of_the_user(monkeypatch, entries):
    # A10
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " , ".join(entries))
    assert visible("cuda:0,cuda:1") == entries
    with pytest.raises(
        ConfigError, match=r"^Expected a GPU among the 2 of CUDA_VISIBLE_DEVICES=.*but got 'cuda:2'"
    ):
        parse_devices("cuda:2")


@pytest.mark.parametrize("hidden", ["", "-1", "-1,0"])
def test_hidden_gpus_cannot_be_used(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with pytest.raises(
        ConfigError, match=r"^Expected a GPU among the 0 of CUDA_VISIBLE_DEVICES='', but got 'cuda:0'"
    ):
        parse_devices("cuda:0")


@pytest.mark.parametrize(
    ("text", "n_threads"), [("cpu", "4"), ("cpu:2", "2"), ("cpu:3", "1"), ("cpu:9", "1")]
)
def test_workers_share_the_cores_evenly(text, n_threads):
    for device in parse_devices(text):
        assert device.environment["OMP_NUM_THREADS"] == n_threads
        assert device.environment["MKL_NUM_THREADS"] == n_threads


def test_a_limit_of_threads_that_the_user_set_holds_where_it_is_smaller(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "64")
    environment = parse_devices("cpu:2")[0].environment
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == ("1", "2")
    # It holds for a library that has no limit of its own.
    assert environment["OPENBLAS_NUM_THREADS"] == "1"


def test_gpus_joined_by_a_plus_are_one_worker_that_sees_them_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    first, second = parse_devices("cuda:0+cuda:1,cuda:3+cuda:2")
    assert (first.name, second.name) == ("cuda:0+cuda:1", "cuda:3+cuda:2")
    assert first.local_name == second.local_name == "cuda:0+cuda:1"
    assert visible("cuda:0+cuda:1,cuda:3+cuda:2") == ["4,5", "7,6"]
    with pytest.raises(ConfigError, match=r"among the 4 of CUDA_VISIBLE_DEVICES=.*but got 'cuda:4'"):
        parse_devices("cuda:3+cuda:4")


def test_auto_with_a_number_makes_groups_of_all_gpus(monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._devices._n_gpus", lambda: 4)
    assert names("auto:2") == ["cuda:0+cuda:1", "cuda:2+cuda:3"]
    assert names("auto:1") == names("auto")
    assert names("auto:4") == ["cuda:0+cuda:1+cuda:2+cuda:3"]


@pytest.mark.parametrize(
    ("n_gpus", "remedy"), [(5, "Name the groups"), (1, "Name the groups"), (0, "Use --devices cpu")]
)
def test_gpus_that_would_be_left_over_are_refused(monkeypatch, n_gpus, remedy):
    monkeypatch.setattr("lpes_evo.workers._devices._n_gpus", lambda: n_gpus)
    with pytest.raises(
        ConfigError,
        match=rf"^Expected GPUs that make groups of 2 without a remainder, but torch sees {n_gpus}\. {remedy}",
    ):
        parse_devices("auto:2")


def test_a_gpu_stands_in_a_group_once():
    with pytest.raises(
        ConfigError, match=r"^Expected a group to name each GPU once, but got 'cuda:0\+cuda:0'"
    ):
        parse_devices("cuda:0+cuda:0")


def test_one_cpu_can_stand_for_a_group():
    assert [device.local_name for device in parse_devices("cpu+cpu,cpu")] == ["cpu+cpu", "cpu"]


def test_gpus_per_worker_are_for_a_ray_cluster():
    with pytest.raises(ConfigError, match=r"^Expected GPUs per worker with a Ray cluster alone, but got 2"):
        make_pool(lambda device: device, "cpu", gpus_per_worker=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu",
        "cpu:0",
        "cpu:-1",
        "cuda:",
        "cuda:x",
        "cpu,,cpu",
        "cuda:0-3",
        "mps:1",
        "cpu+",
        "cuda:0+cpu",
        "auto:0",
        "auto+auto",
    ],
)
def test_what_is_no_device_is_refused(text):
    with pytest.raises(
        ConfigError, match=r"^Expected devices such as auto, cuda:0,cuda:1, mps, cpu or cpu:2"
    ):
        parse_devices(text)


def test_the_gpu_of_apple_is_a_device_where_torch_can_use_it(monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._devices.mps_fault", lambda: None)
    assert parse_devices("mps:0") == parse_devices("mps")
    (device,) = parse_devices("mps")
    assert (device.name, device.local_name) == ("mps", "mps")
    assert device.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert device.environment["OMP_NUM_THREADS"] == "4"
    assert names("mps,cpu") == ["mps", "cpu"]
    # It is used where it is asked for.
    assert names("auto") == ["cpu"]


def test_the_gpu_of_apple_is_refused_with_the_reason_where_torch_cannot_use_it(monkeypatch):
    monkeypatch.setattr("lpes_evo.workers._devices.mps_fault", lambda: "there is none")
    with pytest.raises(
        ConfigError, match=r"^Expected Apple's GPU for the device mps, but there is none\. Use"
    ):
        parse_devices("cpu,mps")


def test_cuda_without_a_gpu_is_refused():
    with pytest.raises(
        ConfigError, match=r"^Expected a CUDA device, but torch sees none\. Use --devices cpu"
    ):
        parse_devices("cuda")


def test_thousands_of_workers_are_refused():
    with pytest.raises(ConfigError, match=r"^Expected at most 1024 workers on one machine, but got 2000\."):
        parse_devices("cpu:2000")


@pytest.mark.parametrize("entries", [["2", "3"], ["GPU-8f2c", "GPU-91d0"]])
def test_worker_processes_see_one_gpu_of_the_list_before_torch_is_loaded(monkeypatch, entries):
    # A10
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(entries))

    def spec(device):
        import os
        import sys

        return device, dict(os.environ), "torch" in sys.modules

    def see(target, _item):
        import time

        time.sleep(0.3)
        return target

    before = dict(os.environ)
    seen = {}
    with DevicePool("cuda:0,cuda:1", spec) as pool:
        for _ in range(100):
            for device, environment, torch_is_loaded in pool.map(see, range(2)):
                seen[environment["CUDA_VISIBLE_DEVICES"]] = (
                    device,
                    environment["OMP_NUM_THREADS"],
                    torch_is_loaded,
                )
            if len(seen) == 2:
                break
    assert seen == dict.fromkeys(entries, ("cuda:0", "2", False))
    assert dict(os.environ) == before


def test_a_pool_takes_devices_as_they_are():
    with DevicePool(
        [Device("accelerator 7", "xpu:7", {"WORKER_MARK": "here"})], lambda device: device
    ) as pool:
        assert pool.call(lambda target: (target, __import__("os").environ["WORKER_MARK"])) == (
            "xpu:7",
            "here",
        )
        assert pool.usage()[0].worker == "worker 0 on accelerator 7"
