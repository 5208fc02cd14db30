"""What ``servecast convert`` does: look at the source, turn it, say what was left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os.path import exists, isfile, samefile
from pathlib import Path
from typing import Any, Final

from hardware_profiles import HardwareProfile, load_hardware
from reports.convert.results import READERS
from reports.convert.serve import is_serve_command, parse_serve, serve_command
from sim.errors import InputError, nearest
from sim.scenario import Scenario
from sim.scenario.document import dump_yaml, load_document

SOURCES: Final = ("serve", "scenario", *READERS, "metrics", "trace")
_COMMANDS: Final = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm", "tensorrt-llm": "tensorrt-llm"}
_RESULT_BYTES: Final = 128 * 2**20
_PLACEHOLDER: Final = {"preset": "azure-2023-conversation", "num_requests": 1000}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command."""

    source: str
    kind: str | None = None
    to: str | None = None
    out: Path | None = None
    hardware: str | None = None
    scenario: Path | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Converted:
    """A document as text, what to tell the user, and whether something was not understood."""

    text: str
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def convert(asked: Asked) -> Converted:
    """Convert what was asked for. Raises `InputError` for a source of no known kind, or one that cannot be read."""
    if asked.hardware is not None:
        load_hardware(asked.hardware)
    kind = asked.kind or _kind_of(asked.source)
    turn: dict[str, Callable[[Asked], Converted]] = {
        "serve": _serve,
        "scenario": _scenario,
        "metrics": _metrics,
        "trace": _trace,
    }
    if asked.out is not None and exists(asked.source) and exists(asked.out) and samefile(asked.source, asked.out):
        raise InputError("--out", f"{asked.out} is the source itself", "name another file")
    if kind in turn:
        return turn[kind](asked)
    if kind not in READERS:
        raise InputError("--from", f"unknown kind '{kind}'", nearest(kind, SOURCES))
    return _cases(READERS[kind][1](_large(Path(asked.source))), asked)


def _kind_of(source: str) -> str:
    """What a source is, by its text or by the content of the file it names."""
    if source == "-" or is_serve_command(source):
        return "serve"
    path = Path(source)
    if not isfile(path):
        raise InputError(
            "SOURCE", f"'{source[:80]}' is neither a file nor a serve command", "quote the whole command line"
        )
    head = path.open("rb").read(65536).decode("utf-8", "replace")
    if path.suffix.lower() in (".yaml", ".yml"):
        return "scenario"
    if path.suffix.lower() in (".sh", ".txt", ".cmd") and is_serve_command(head):
        return "serve"
    if "# TYPE " in head and "vllm:" in head:
        return "metrics"
    if path.suffix.lower() == ".json" and head.lstrip().startswith("{"):
        data = _large(path)
        if "resultType" in json.dumps(data.get("data"))[:200]:
            return "metrics"
        for name, (fits, _) in READERS.items():
            if fits(data):
                return name
        if "workload" in data and "model" in data:
            return "scenario"
    return "trace"


def _serve(asked: Asked) -> Converted:
    if asked.source == "-":
        text = sys.stdin.read(200_000)
    else:
        path = Path(asked.source) if len(asked.source) < 4096 and "\n" not in asked.source else None
        is_file = path is not None and not is_serve_command(asked.source) and path.is_file()
        text = path.read_text("utf-8", "replace") if path is not None and is_file else asked.source
    served = parse_serve(text)
    if asked.hardware is None:
        raise InputError("--hardware", "a command line does not say which GPU", "servecast show hardware lists them")
    document = served.document()
    if (tier := document["engine"].get("kv_offload")) is not None:
        tier["bandwidth_gb_per_s"] = load_hardware(asked.hardware).links.host_bytes_per_s.value / 1e9
    notes = ["the workload is a placeholder: put yours in", *served.cautions]
    if served.engine.preset == "vllm":
        limits = _vllm_limits(document["engine"], load_hardware(asked.hardware))
        document["engine"] |= limits
        notes += [f"vllm serve chooses for this GPU: {key} {value}" for key, value in limits.items()]
    model = document.pop("model")
    whole = {"model": model, "hardware": asked.hardware, **document, "workload": _PLACEHOLDER}
    if served.idle:
        notes.append(f"of no effect on a forecast: {', '.join(served.idle)}")
    text = dump_yaml(whole)
    Scenario.from_dict(whole)
    unknown = [f"not understood and left out: {', '.join(served.unknown)}"] if served.unknown else []
    return Converted(_commented([*unknown, *notes]) + text, notes, unknown)


def _vllm_limits(engine: Mapping[str, Any], hardware: HardwareProfile) -> dict[str, int]:
    """What ``vllm serve`` sets where neither flag is given: more on GPUs of 70 GiB, A100 excepted (0.9 and later).

    vLLM, `EngineArgs.get_batch_defaults` in ``vllm/engine/arg_utils.py``, as an API server.
    """
    large = hardware.memory_visible_bytes >= 70 * 2**30 and "a100" not in hardware.name
    tokens = engine.get("max_num_batched_tokens", 8192 if large else 2048)
    found = {"max_num_seqs": min(1024 if large else 256, tokens), "max_num_batched_tokens": tokens}
    return {key: value for key, value in found.items() if key not in engine}


def _scenario(asked: Asked) -> Converted:
    scenario = Scenario.from_file(Path(asked.source))
    preset = _COMMANDS.get(asked.to or scenario.engine.preset)
    if preset is None:
        raise InputError("--to", f"'{asked.to or scenario.engine.preset}' has no serve command",
                         nearest(asked.to or "", _COMMANDS))  # fmt: skip
    command, left = serve_command(scenario, preset)
    notes = []
    if scenario.layout.replicas > 1:
        notes.append(f"one of {scenario.layout.replicas} replicas behind a {scenario.cluster.router} router")
    unknown = [f"no flag of {preset}: {', '.join(left)}"] if left else []
    return Converted(command + "\n", notes, unknown)


def _cases(cases: Iterable[dict[str, Any]], asked: Asked) -> Converted:
    base: dict[str, Any] = {}
    if asked.scenario is not None:
        base = dict(load_document(asked.scenario))
    whole, notes = [], []
    for case in cases:
        found = case["scenario"]
        scenario = {**base, "workload": found["workload"]}
        if "model" not in scenario and found["model"]:
            scenario = {"model": found["model"], **scenario}
        if asked.hardware is not None:
            scenario["hardware"] = asked.hardware
        missing = [key for key in ("model", "hardware") if key not in scenario]
        if missing:
            raise InputError(f"--{'scenario' if missing == ['model'] else 'hardware'}",
                             f"the result does not say the {missing[0]}",
                             "give the deployment as --scenario FILE, or the GPU as --hardware NAME")  # fmt: skip
        order = ["name", "model", "hardware", *scenario]
        case["scenario"] = {key: scenario[key] for key in dict.fromkeys(order) if key in scenario}
        whole.append(case)
        notes.append(f"{case['name']}: {case['notes']}" if case["notes"] else case["name"])
    if asked.scenario is None:
        notes.append("the engine's settings are defaults: give the deployment as --scenario FILE")
    return Converted(dump_yaml({"cases": whole} if len(whole) > 1 else whole[0]), notes)


def _metrics(asked: Asked) -> Converted:
    from reports.convert.prometheus import read_query, read_text
    from reports.convert.scrape import workload_of

    path = Path(asked.source)
    if path.suffix.lower() == ".json":
        found = workload_of(read_query(_large(path)), asked.seconds)
    else:
        found = workload_of(read_text(_text(path)), asked.seconds)
    return Converted(_commented(found.notes) + dump_yaml({"workload": found.workload}), list(found.notes))


def _trace(asked: Asked) -> Converted:
    from reports.convert.traces import convert_trace

    if asked.out is None:
        raise InputError("--out", "a trace is written to a file", "name it, for example requests.csv.gz")
    rows, notes = convert_trace(Path(asked.source), asked.out, asked.to or "servecast")
    return Converted("", [f"{rows:,} requests written to {asked.out}", *notes])


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _RESULT_BYTES:
            raise InputError(str(path), f"has more than {_RESULT_BYTES >> 20} MiB", "give a smaller file")
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def _large(path: Path) -> dict[str, Any]:
    """A JSON object of a benchmark tool, which may hold every token's time."""
    try:
        data = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(str(path), "is nested too deeply") from None
    if not isinstance(data, dict):
        raise InputError(str(path), f"must hold keys and values, got a {type(data).__name__}")
    return data


def _commented(lines: Iterable[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
