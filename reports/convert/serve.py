"""A serve command line to a scenario, and back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reports.convert.flags import CAUTIONS, ENGINES, THEIR_ALL2ALL, Engine, Flag
from reports.convert.values import section, tokens
from sim.errors import InputError, nearest
from sim.scenario import EngineSpec, Scenario
from sim.scenario.speculative import Speculative

MAX_CHARS: Final = 100_000
#: vLLM's key of ``--speculative-config`` to ours.
_SPECULATIVE: Final = {
    "method": "method",
    "num_speculative_tokens": "num_speculative_tokens",
    "model": "draft_model",
    "draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "disable_by_batch_size": "disable_by_batch_size",
}
_EPLB: Final = '{"num_redundant_experts":N}'
_HEADS: Final = ("eagle", "eagle3")
_LIMITS: Final = ("max_num_seqs", "max_num_batched_tokens")  # engines choose them by the GPU: always said
ASSUMED_ACCEPTANCE: Final = 0.7
ASSUMED_ACCEPTANCE_NGRAM: Final = 0.5
ASSUMED_HOST_LINK_GB_PER_S: Final = 32.0  # PCIe 4, where no device is named

#: Our word for an element type, and the engines'.
_WORDS: Final = {("kv_cache_dtype", "bf16"): "bfloat16", ("kv_cache_dtype", "fp16"): "float16",
                 ("quantization", "nf4"): "bitsandbytes"}  # fmt: skip


@dataclass(slots=True)
class Served:
    """What a command line says.

    Attributes:
        engine: whose command it is.
        keys: dotted path in the scenario to value.
        idle: flags that change nothing of a forecast, as written (values of keys hidden).
        unknown: flags that servecast does not know, as written.
        cautions: sentences on flags whose meaning is not quite the key's.
    """

    engine: Engine
    keys: dict[str, Any] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The scenario's sections that the command line decides."""
        found: dict[str, Any] = {"model": self.keys["model"], "layout": {}, "engine": {"preset": self.engine.preset}}
        for path, value in self.keys.items():
            section, _, key = path.partition(".")
            if key:
                found[section][key] = value
        return {key: value for key, value in found.items() if value != {}}


def is_serve_command(text: str) -> bool:
    """Whether a text looks like one of the serve commands."""
    return len(text) <= MAX_CHARS and any(" ".join(start) in " ".join(text.split()) for start in _all_starts())


def _all_starts() -> Iterator[tuple[str, ...]]:
    for engine in ENGINES:
        yield from engine.starts
    yield ("vllm/vllm-openai",)


def parse_serve(text: str) -> Served:
    """Read a command line: line ends, environment and ``docker run`` before it are passed over.

    Raises `InputError` for a command of none of the engines, a model that is missing, a value that is none.
    """
    if len(text) > MAX_CHARS:
        raise InputError("command", f"has {len(text)} characters", f"give one of at most {MAX_CHARS}")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    try:
        words = shlex.split(" ".join(lines))
    except ValueError as error:
        raise InputError("command", f"cannot be read: {error}", "check its quotes") from None
    engine, rest = _engine_of(words)
    served = Served(engine)
    rest = _read_model(rest, served)
    while rest:
        rest = _read_flag(rest, served)
    if "model" not in served.keys:
        raise InputError("command", "names no model", f"give {engine.flags[0].names[0]} MODEL")
    return served


def _engine_of(words: list[str]) -> tuple[Engine, list[str]]:
    for engine in ENGINES:
        for start in engine.starts:
            for at in range(len(words) - len(start) + 1):
                if tuple(words[at : at + len(start)]) == start:
                    return engine, words[at + len(start) :]
    for at, word in enumerate(words):
        if word.startswith("vllm/vllm-openai"):
            return ENGINES[0], words[at + 1 :]
    raise InputError(
        "command",
        f"'{' '.join(words[:3])}' starts none of the engines",
        "known: vllm serve, python -m sglang.launch_server, trtllm-serve",
    )


def _read_model(rest: list[str], served: Served) -> list[str]:
    """A first word that is no flag is the model."""
    if rest and not rest[0].startswith("-"):
        served.keys["model"] = rest[0]
        return rest[1:]
    return rest


def _read_flag(rest: list[str], served: Served) -> list[str]:
    """Read one flag and its value; the words after it."""
    word, rest = rest[0], rest[1:]
    if not word.startswith("-"):
        served.unknown.append(word)
        return rest
    name, joined, value = word.partition("=")
    given = [value] if joined else []
    flag, off = _flag_named(name, served.engine)
    if flag is None:
        follows = not joined and bool(rest) and not rest[0].startswith("-")
        idle = served.engine.idle.get(_spelt(name, served.engine))
        takes = rest[:1] if not joined and (idle if idle is not None else follows) else []
        if isinstance(idle, tuple) and "".join(given or takes) not in idle:
            idle = None
        shown = " ".join([name, *(["..."] if "key" in name and (given or takes) else given or takes)])
        (served.unknown if idle is None else served.idle).append(shown)
        return rest[len(takes) :]
    stands_alone = flag.kind in ("on", "off", "both")
    if not stands_alone and not given:
        if not rest:
            raise InputError(name, "has no value", "give one after it")
        given, rest = [rest[0]], rest[1:]
    if flag.kind == "all2all" and given[0] not in THEIR_ALL2ALL:
        served.unknown.append(f"{name} {given[0]}")
        return rest
    served.keys[flag.key] = _value(flag, name, given[0] if given else "true", off)
    if (caution := CAUTIONS.get((served.engine.preset, flag.key))) is not None:
        served.cautions.append(f"{name}: {caution}")
    return rest


def _spelt(name: str, engine: Engine) -> str:
    """Hyphens and underscores are one; TensorRT-LLM writes underscores."""
    body = name.lstrip("-")
    dashes = name[: len(name) - len(body)]
    return dashes + (body.replace("-", "_") if engine.preset == "tensorrt-llm" else body.replace("_", "-"))


def _flag_named(name: str, engine: Engine) -> tuple[Flag | None, bool]:
    spelt = _spelt(name, engine)
    for flag in engine.flags:
        if spelt in flag.names:
            return flag, False
        if flag.kind == "both" and spelt in [f"--no-{twin.removeprefix('--')}" for twin in flag.names]:
            return flag, True
    return None, False


def _value(flag: Flag, name: str, text: str, off: bool) -> Any:
    if flag.kind in ("on", "off", "both"):
        if text.lower() not in ("true", "false"):
            raise InputError(name, f"'{text}' is neither true nor false", "leave the value out")
        return (text.lower() == "true") != (off or flag.kind == "off")
    if flag.kind in ("text", "all2all"):
        key = flag.key.rpartition(".")[2]
        return next((ours for (where, ours), theirs in _WORDS.items() if (where, theirs) == (key, text)), text)
    if flag.kind == "speculative":
        return _speculative(name, text)
    if flag.kind == "eplb":
        return section(name, text, _EPLB.replace("N", "32")).get("num_redundant_experts", 0)
    try:
        if flag.kind == "float":
            return float(text)
        if flag.kind == "offload":
            return {"memory_gib": float(text), "bandwidth_gb_per_s": ASSUMED_HOST_LINK_GB_PER_S}
        number = tokens(text) if flag.kind == "tokens" else int(text)
    except ValueError:
        raise InputError(name, f"'{text}' is not a number", "give a number") from None
    return number > 1 if flag.kind == "degree" else number


def _speculative(name: str, text: str) -> dict[str, Any]:
    given = section(name, text, '{"method": "eagle", "num_speculative_tokens": 3}')
    found = {ours: given[theirs] for theirs, ours in _SPECULATIVE.items() if theirs in given}
    found = {"method": "draft_model" if "draft_model" in found else "ngram"} | found
    if found["method"] in _HEADS:
        found.pop("draft_model", None)
        found["head_layers"] = 1
    rate = ASSUMED_ACCEPTANCE if found["method"] in ("draft_model", *_HEADS, "mtp") else ASSUMED_ACCEPTANCE_NGRAM
    return found | {"acceptance_rate": rate}


def serve_command(scenario: Scenario, preset: str) -> tuple[str, list[str]]:
    """The command line of one engine of the scenario, and the keys given that the engine has no flag for.

    Raises `InputError` for an engine without a serve command.
    """
    engines = {engine.preset: engine for engine in ENGINES}
    if preset not in engines:
        raise InputError("engine.preset", f"'{preset}' has no serve command", nearest(preset, engines))
    engine = engines[preset]
    start = {"vllm": ["vllm", "serve"], "sglang": ["python", "-m", "sglang.launch_server"],
             "tensorrt-llm": ["trtllm-serve"]}[preset]  # fmt: skip
    words = [*start, *(["--model-path"] if preset == "sglang" else []), scenario.model]
    given = dict(_given(scenario))
    unsaid: list[str] = []
    for flag in engine.flags:
        if flag.key in given and _can_be_written(flag, given[flag.key]):
            value = given.pop(flag.key)
            words += _written(flag, value, scenario)
            if flag.kind == "speculative":
                unsaid += [f"{flag.key}.{key}" for key in _unsaid(value)]
            if flag.kind == "offload" and value["bandwidth_gb_per_s"] != ASSUMED_HOST_LINK_GB_PER_S:
                unsaid.append(f"{flag.key}.bandwidth_gb_per_s")
    return shlex.join(words), sorted([*given, *unsaid])


def _given(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Keys of layout and engine that differ from what the preset would set, and the limits that engines choose."""
    engine = scenario.engine.model_dump(mode="json")
    defaults = EngineSpec.parse({"preset": scenario.engine.preset}).model_dump(mode="json")
    if engine["block_size"] != defaults["block_size"]:
        follows = EngineSpec.parse({"preset": scenario.engine.preset, "block_size": engine["block_size"]})
        defaults["kv_allocation"] = follows.kv_allocation
    for key, value in engine.items():
        if key != "preset" and (key in _LIMITS or value != defaults.get(key)):
            yield f"engine.{key}", value
    layout = scenario.layout
    for key, field_info in type(layout).model_fields.items():
        value = getattr(layout, key)
        if key != "replicas" and value != field_info.default:
            yield f"layout.{key}", value


def _can_be_written(flag: Flag, value: Any) -> bool:
    """Not element types that differ between keys and values, tiers beyond the host's memory, or ours alone."""
    if flag.kind == "offload":
        return isinstance(value, dict)
    if flag.kind == "all2all":
        return value in THEIR_ALL2ALL
    return not (flag.kind == "text" and isinstance(value, dict))


def _written(flag: Flag, value: Any, scenario: Scenario) -> list[str]:
    name = flag.names[0]
    if flag.kind == "both":
        return [name if value else f"--no-{name.removeprefix('--')}"]
    if flag.kind in ("on", "off"):
        return [name] if value == (flag.kind == "on") else []
    if flag.kind == "degree":
        layout = scenario.layout
        return [name, str(layout.tensor_parallel_size * layout.data_parallel_size)] if value else []
    if flag.kind == "speculative":
        return [name, json.dumps(_their_speculative(value), separators=(",", ":"))]
    if flag.kind == "offload":
        return [name, f"{value['memory_gib']:g}"]
    if flag.kind == "eplb":
        return [name, _EPLB.replace("N", str(value))]
    return [name, _WORDS.get((flag.key.rpartition(".")[2], value), str(value))]


def _unsaid(value: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a speculation that its configuration does not say, and that are not what `_speculative` assumes."""
    assumed = _speculative("", json.dumps(_their_speculative(value)))
    for key, field_info in Speculative.model_fields.items():
        if value[key] is not None and value[key] != assumed.get(key, field_info.default):
            yield key


def _their_speculative(value: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's keys; an acceptance rate is measured there, not set."""
    return {theirs: value[ours] for theirs, ours in _SPECULATIVE.items() if value.get(ours) is not None}
