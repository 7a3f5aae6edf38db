import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lpes_evo.analysis import AnalysisRequest, prepare, report_drift
from lpes_evo.cli import app
from lpes_evo.config import hash_values
from lpes_evo.errors import ConfigError, JournalError, LpesError, ModelError, ScalesError, StorageError
from lpes_evo.page import write_page
from lpes_evo.runs import load_report
from lpes_evo.scales import load_scales
from lpes_evo.storage import read_journal
from samples import rewrite_journal, without_checksums

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = '<script>alert(\'x\')</script>"><img src=x onerror="alert(1)">{{ 7 * 7 }}&amp;'


class Document(HTMLParser):
    """Every element with its attributes, and all text outside pictures."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"svg", "style"} & set(self.open):
            self.text += data if self.text.endswith(" ") else f" {data}"

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def pictures(self):
        return [figure["id"] for figure in self.all("figure")]


def written(run, output, **options):
    page = write_page(run, output, **options)
    assert page.path == output
    return Document(output)


@pytest.fixture(scope="module")
def whole(searched, tmp_path_factory):
    """A page with everything, and the folder of the drift in it."""
    folder = tmp_path_factory.mktemp("whole")
    run = searched("ga")
    subject = prepare(AnalysisRequest(model="tiny", scales=run, n_examples=2))
    (folder / "drift").mkdir()
    report_drift(subject, folder / "drift", n_draws=3)
    return written(run, folder / "report.html", drift=folder / "drift"), folder / "drift"


ALWAYS = ["curve", "convergence-evaluations", "convergence-tokens", "convergence-seconds", "diversity",
          "control-points"]  # fmt: skip
OF_DRIFT = ["drift-by-layer", "drift-of-arms", "drift-retrieval"]


def test_a_page_shows_the_whole_run(whole, searched):
    page, drift = whole
    summary, scales = load_report(searched("ga") / "report.json"), load_scales(searched("ga"))
    assert page.pictures == ["positions", *ALWAYS, *OF_DRIFT]
    for name, method in summary["methods"].items():
        assert f"{method['accuracy']:.3f} [{method['low']:.2f}, {method['high']:.2f}]" in page.text
        if name != "lpes":
            found = summary["differences"][name]
            assert f"{found['difference']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]" in page.text
        for row in method["positions"]:
            assert f"{row['accuracy']:.3f} [{row['low']:.2f}, {row['high']:.2f}]" in page.text
    assert " ".join(f"{scale:.3f}" for scale in scales.scales) in page.text
    measured = json.loads((drift / "drift.json").read_text())
    for arm in measured["arms"].values():
        median = arm["drift"]["cka"]
        assert f"{median['value']:.2f} [{median['low']:.2f}, {median['high']:.2f}]" in page.text
    assert (
        f"smooth drifts least, by 1 - CKA {'yes' if measured['claim']['cka'] == 'holds' else 'no'}"
        in page.text
    )
    lines = [json.loads(line) for line in (searched("ga") / "journal.jsonl").read_text().splitlines()[1:]]
    n_raced = sum(line["status"] == "raced" for line in lines)
    n_scored = sum(len(line["scores"]) for line in lines)
    share = f"{n_scored:,} of {12 * len(lines):,}, {100 * n_scored / (12 * len(lines)):.0f} %"
    for words in (
        f"evaluations {len(lines)} of at most 12",
        f"of these stopped early by racing {n_raced}",
        f"{sum(line['tokens'] for line in lines):,}",
        f"{sum(line['seconds'] for line in lines):,.1f} s",
        share,
        "vectors of scales measured on held-out examples 5",
    ):
        assert words in page.text
    record = yaml.safe_load((searched("ga") / "config.yaml").read_text())["provenance"]
    for words in (
        record["command"],
        record["weights"],
        record["versions"]["torch"],
        "task.options.n_pairs 16",
    ):
        assert words in page.text
    assert f"lpes-evo report {searched('ga')} --drift {drift}" in page.text


def test_a_page_is_html_for_everyone_and_asks_for_nothing_outside_it(whole):
    page, _ = whole
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert page.source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert [tag for tag, _ in page.elements if re.fullmatch(r"h\d", tag)] == ["h1", *["h2"] * 8]
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.elements}
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src"):
                assert value.startswith("data:image/png;base64,") or value[1:] in ids
                assert value[0] in "#d"
            for target in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert target in ids
            if name in ("aria-labelledby", "aria-describedby"):
                assert set(value.split()) <= set(ids)
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
    assert re.findall(r"https?:", page.source) == []
    assert "@import" not in page.source
    assert len(page.all("figcaption")) == len(page.all("figure")) == len(page.all("svg")) == 10
    assert all(attributes["role"] == "img" for attributes in page.all("svg"))
    assert len(page.all("title")) == 11
    assert page.text.count("Drawn by lpes-evo convergence") == 5
    assert len(re.findall(r"n = \d+", page.text)) >= 10


@pytest.mark.slow
def test_equal_input_gives_equal_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setattr("lpes_evo.page._drift._N_DRAWS", 2)
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    n_heard = []
    write_page(run, first, on_input=lambda done, total: n_heard.append((done, total)))
    # The first page has measured the drift, the second finds it in the run.
    assert n_heard[-1] == (8, 8)
    assert (run / "drift" / "drift.json").is_file()
    assert write_page(run, second).missing == ()
    assert first.read_bytes() == second.read_bytes()
    assert n_heard[-1] == (8, 8)
    assert "and kept in the folder drift of the run" in Document(first).text


@pytest.mark.parametrize("algorithm", ["gradient", "nsga2", "steady-state"])
def test_every_algorithm_has_a_page(searched, tmp_path, algorithm):
    page = written(searched(algorithm), tmp_path / "report.html", drift=None)
    assert page.pictures == ["positions", *ALWAYS]
    lines = [
        json.loads(line) for line in (searched(algorithm) / "journal.jsonl").read_text().splitlines()[1:]
    ]
    n_gradients = sum(line["status"] == "sampled" for line in lines)
    assert f"evaluations {len(lines) - n_gradients} of at most" in page.text
    assert (f"gradients {n_gradients} of at most 4" in page.text) == (algorithm == "gradient")
    assert f"{sum(line['tokens'] for line in lines):,}" in page.text
    fitness = load_scales(searched(algorithm)).fitness
    assert ", ".join(f"{value:.6g}" for value in fitness) + " nats per token" in page.text


def test_what_comes_from_files_is_text_and_nothing_else(run, tmp_path):
    folder = run.rename(tmp_path / "<b onclick='x'>")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["name"] = HOSTILE
    config["task"]["options"] = {HOSTILE: HOSTILE}
    config["provenance"].update(command=HOSTILE, device_name=HOSTILE, weights=HOSTILE)
    config["provenance"]["versions"] = {HOSTILE: HOSTILE}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    rewrite_journal(folder / "journal.jsonl", config=written_hash(folder), weights=HOSTILE)
    summary = load_report(folder / "report.json")
    summary["methods"][HOSTILE] = summary["methods"]["untouched"]
    (folder / "report.json").write_text(json.dumps(summary))
    page = written(folder, tmp_path / "report.html", drift=None)
    assert page.text.count(HOSTILE) > 15
    assert not {"script", "img", "b"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.pictures == ["positions", *ALWAYS]


def test_halves_of_characters_do_no_harm(run, tmp_path):
    summary = load_report(run / "report.json")
    summary["methods"]["\ud800"] = summary["methods"]["untouched"]
    (run / "report.json").write_text(json.dumps(summary))
    assert "\\ud800" in written(run, tmp_path / "report.html", drift=None).text


def test_a_run_that_goes_on_shows_what_is_there(run, tmp_path):
    (run / "report.json").unlink()
    lines = (run / "report.jsonl").read_text().splitlines(keepends=True)
    (run / "report.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    page = write_page(run, tmp_path / "measuring.html")
    resume = f"lpes-evo search --resume {run}"
    assert page.missing == (
        "The measurement on held-out examples is not finished: 2 vectors of scales are measured. "
        f"Go on with: {resume}",
    )
    document = Document(page.path)
    assert document.pictures == ALWAYS
    assert "Scales that were found" in document.text
    assert "Not there yet: drift is measured once the run is finished" in document.text
    assert not (run / "drift").exists()
    (run / "scales.json").unlink()
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    (run / "journal.jsonl").write_text("".join(lines[:6]) + lines[6][:40])
    before = {file: file.read_bytes() for file in run.iterdir()}
    page = write_page(run, tmp_path / "searching.html")
    assert page.missing == (
        f"The search has not ended: 5 of at most 12 evaluations are in the journal. Go on with: {resume}",
    )
    document = Document(page.path)
    assert document.pictures == ALWAYS
    assert "Best scales so far" in document.text
    assert "evaluations 5 of at most 12" in document.text
    assert {file: file.read_bytes() for file in run.iterdir()} == before


def test_a_search_without_a_success_has_a_page_too(run, tmp_path):
    (run / "report.json").unlink()
    (run / "scales.json").unlink()

    def all_failed(records):
        record = records[0] | {"status": "failed", "values": [], "scores": [], "error": "Traceback"}
        return [record | {"key": f"failed 0: {record['key']}"}, record]

    rewrite_journal(run / "journal.jsonl", all_failed)
    page = written(run, tmp_path / "report.html")
    assert page.pictures == []
    for words in ("no evaluation has succeeded", "of these failed 1", "failures that were tried again 1"):
        assert words in page.text


def test_a_search_that_succeeds_late_is_drawn_from_there(run, tmp_path):
    (run / "report.json").unlink()
    (run / "scales.json").unlink()

    def the_fifth_succeeds(records):
        records = [record for record in records if record["status"] == "ok"][:5]
        assert len(records) == 5
        for record in records[:4]:
            record.update(status="failed", values=[], scores=[], error="Traceback", seconds=0.0)
            del record["tokens"]
        return records

    rewrite_journal(run / "journal.jsonl", the_fifth_succeeds)
    page = written(run, tmp_path / "report.html")
    assert page.pictures == ALWAYS
    fifth = list(read_journal(run / "journal.jsonl").records.values())[4]
    assert f"{fifth['values'][0]:.6g} nats per token" in page.text

    # Without their cost there is nothing to draw against it.
    def no_tokens(records):
        for record in records:
            record.pop("tokens", None)

    rewrite_journal(run / "journal.jsonl", no_tokens)
    page = written(run, tmp_path / "report.html")
    assert page.pictures == [name for name in ALWAYS if name != "convergence-tokens"]
    assert "not in the journal" in page.text


def test_the_command_writes_into_the_run_and_says_what_is_missing(run):
    result = CliRunner().invoke(app, ["report", str(run), "--no-drift"])
    assert result.exit_code == 0, result.output
    assert f"Measure it with: lpes-evo report {run}" in result.output.replace("\n", "")
    assert f"Report: {run / 'report.html'}" in result.output
    page = Document(run / "report.html")
    assert f"lpes-evo report {run} --no-drift" in page.text
    assert f"Left out. lpes-evo report {run} measures it" in page.text
    assert f"lpes-evo drift tiny --scales {run} --output FOLDER" in page.text
    error = CliRunner().invoke(app, ["report", str(run), "--no-drift", "--drift", "d"]).exception
    assert isinstance(error, ConfigError)
    assert "but got both" in str(error)


def edit(path, change):
    """Change a file as somebody would who knows of its checksum, so that the checks behind it are tested."""
    values = json.loads(path.read_text())
    values.pop("check", None)
    change(values)
    path.write_text(json.dumps(values))


def no_lines(run):
    header = (run / "journal.jsonl").read_text().splitlines()[0]
    (run / "journal.jsonl").write_text(header + "\n")


def written_hash(folder):
    """Return the hash that the journal would have, had the run been started with the configuration as it is now."""
    values = yaml.safe_load((folder / "config.yaml").read_text())
    del values["provenance"]
    return hash_values(values)


def edited_line(before, after):
    def change(run):
        without_checksums(run / "journal.jsonl")
        replaced("journal.jsonl", before, after)(run)

    return change


def replaced(name, before, after):
    def change(run):
        text = (run / name).read_text()
        assert before in text
        (run / name).write_text(text.replace(before, after, 1))

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda run: (run / "config.yaml").unlink(), JournalError, "Expected a run folder with config.yaml"),
        (lambda run: (run / "journal.jsonl").unlink(), JournalError, "search has begun, but there is no"),
        (no_lines, JournalError, "but it holds 0 evaluations"),
        (replaced("journal.jsonl", '{"key"', '{"kye"'), JournalError, "Expected line 2 of"),
        (replaced("journal.jsonl", '"ok", "values": [-', '"ok", "values": ['), JournalError, "Expected line 2 of"),
        (edited_line('"status": "ok"', '"status": "no"'), JournalError, "status is 'no': input should be 'ok'"),
        (edited_line("[5.0, ", "[900000.0, "), JournalError, "to be over 6 layers"),
        (edited_line("[[0.0, ", "[[1.0, "), JournalError, "to draw curves over 6 layers"),
        (replaced("config.yaml", "seed: 0", "seed: 1"), JournalError, "to belong to this run, but its config is"),
        (replaced("config.yaml", "n_layers: 6", "n_layers: 7"), JournalError, "to be over 7 layers"),
        (replaced("config.yaml", "dtype: float32", "dtype: [1]"), JournalError, r"but dtype is \[1\]"),
        (replaced("config.yaml", "seed: 0", "seed: no"), ConfigError, "configuration key seed"),
        (replaced("scales.json", '"version": 1', '"version": 2'), ScalesError, "version 1, but got"),
        (lambda run: (run / "scales.json").unlink(), ScalesError, "to be those of"),
        (lambda run: edit(run / "report.json", lambda values: values["methods"]["lpes"].update(scales=[1])),
         ScalesError, "to be those of"),
        (lambda run: (run / "report.json").write_text("{"), JournalError, "to be JSON"),
        (lambda run: (run / "report.html").mkdir(), StorageError, "but .* is a folder"),
    ],
)  # fmt: skip
def test_a_damaged_run_gives_one_clear_line_and_no_page(run, change, error, message):
    change(run)
    with pytest.raises(error, match=message) as raised:
        write_page(run, drift=None)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, LpesError)
    assert not (run / "report.html").is_file()


def test_a_page_that_cannot_be_written_is_refused_before_drift_is_measured(run):
    with pytest.raises(StorageError, match="Expected to make the folder"):
        write_page(run, run / "config.yaml" / "report.html")
    assert not (run / "drift").exists()


@pytest.mark.parametrize("name", ["journal.jsonl", "config.yaml", ".lock"])
def test_a_page_replaces_no_file_but_a_page(run, name):
    before = (run / name).read_bytes()
    with pytest.raises(StorageError, match="or an earlier page to replace, but .* is something else"):
        write_page(run, run / name, drift=None)
    assert (run / name).read_bytes() == before
    assert write_page(run, run / "page.html", drift=None) == write_page(run, run / "page.html", drift=None)


def test_a_name_that_no_file_can_have_is_refused_in_one_line(run):
    with pytest.raises(
        StorageError, match=r"Expected a file to write the page to, but the system said of .*too long"
    ):
        write_page(run, run / ("x" * 300), drift=None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda values: values.update(scales=[0.9] * 6), ScalesError, "but it is that of others"),
        (
            lambda values: values.update(format="x"),
            ConfigError,
            "to have format 'lpes-evo/drift', version 1, but got",
        ),
        (
            lambda values: values["arms"]["noise"].pop("layers"),
            ConfigError,
            "the field 'arms.noise.layers', but it is missing",
        ),
        (
            lambda values: values["arms"]["noise"]["drift"]["cka"].update(low="0"),
            ConfigError,
            "drift.cka.low",
        ),
        (lambda values: values["arms"]["noise"]["layers"]["cka"].pop(), ConfigError, "same arms and layers"),
        (lambda values: values["arms"].update({"$x": values["arms"]["noise"]}), ConfigError, "same arms"),
        (lambda values: values["vectors"][0].pop("accuracy"), ConfigError, "same arms and layers"),
        (
            lambda values: values["claim"].update(cka="perhaps"),
            ConfigError,
            "claim.cka is 'perhaps': input should be",
        ),
    ],
)
def test_drift_that_does_not_belong_to_the_run_is_refused(whole, searched, tmp_path, change, error, message):
    values = json.loads((whole[1] / "drift.json").read_text())
    change(values)
    (tmp_path / "drift.json").write_text(json.dumps(values))
    with pytest.raises(error, match=message):
        write_page(searched("ga"), tmp_path / "report.html", drift=tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_drift_that_is_not_there_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"Expected a folder of 'lpes-evo drift' with .*No such file"):
        write_page(run, drift=tmp_path)
    (tmp_path / "drift.json").write_text("[1")
    with pytest.raises(ConfigError, match="to be JSON"):
        write_page(run, drift=tmp_path)
    for file in ("report.json", "scales.json"):
        (run / file).unlink()
    with pytest.raises(ScalesError, match="the search in .* has not ended. Leave out --drift"):
        write_page(run, drift=tmp_path)


def test_a_model_that_is_missing_or_of_another_depth_is_refused(run, tmp_path, monkeypatch, tiny_loaded):
    replaced("config.yaml", "name: tiny", f"name: {tmp_path / 'none.gguf'}")(run)
    rewrite_journal(run / "journal.jsonl", config=written_hash(run))
    with pytest.raises(ModelError, match="none.gguf"):
        write_page(run)
    monkeypatch.setattr("lpes_evo.analysis._request.load_model", lambda *_, **__: tiny_loaded)
    with pytest.raises(ScalesError, match="Expected scales for a model of n_layers = 3, but .* has 6"):
        write_page(run)
    assert not (run / "report.html").exists()
    assert not Path(run / "drift").exists()


def test_the_page_of_a_kept_run_of_an_early_version_is_written(tmp_path):
    kept = Path(__file__).parents[2] / "docs" / "results" / "smollm2-needle"
    page = write_page(kept, tmp_path / "report.html", drift=None)
    assert "written by another version" in page.path.read_text()
