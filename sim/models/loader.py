"""Find a model: a name of the catalogue, a ``config.json``, or the folder that holds one."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from os.path import exists  # false, not an error, for a name too long
from pathlib import Path
from typing import Any

from sim.errors import InputError, nearest
from sim.models.architecture import Architecture
from sim.models.huggingface import architecture_from_config

_FIELD = "model"


def catalog_names() -> tuple[str, ...]:
    """Names of the models that ship, ``organisation/model``, sorted."""
    return tuple(sorted(set(_index().values())))


def load_model(name_or_path: str) -> Architecture:
    """The architecture of a catalogue model or of a Hugging Face configuration on disk.

    Args:
        name_or_path: a catalogue name (case-insensitive, the organisation may be left out, aliases are known), a path
            to a ``config.json``, or a folder with one.

    Raises:
        InputError: no such model (with the nearest name), or a configuration that cannot be read.
    """
    if not name_or_path.strip():
        raise InputError(_FIELD, "is empty", "give a catalogue name or a path to a config.json")
    known = _index().get(name_or_path.strip().lower())
    if known is not None:
        return _from_catalog(known)
    path = Path(name_or_path).expanduser()
    if exists(path):
        return _from_path(path)
    if path.suffix == ".json" or name_or_path.startswith((".", "/", "~")):
        raise InputError(_FIELD, f"no file or folder at {name_or_path!r}", "check the path, or use a catalogue name")
    remedy = f"{_suggestion(name_or_path)} A path to its config.json works too."
    raise InputError(_FIELD, f"unknown model {name_or_path!r}", remedy)


def catalog_entry(name: str) -> dict[str, Any]:
    """The shipped document of a catalogue name: ``source``, ``aliases`` and ``config``.

    Raises:
        InputError: no such catalogue model.
    """
    known = _index().get(name.strip().lower())
    if known is None:
        raise InputError(_FIELD, f"unknown model {name!r}", _suggestion(name))
    text = (files("sim.models") / "catalog" / f"{known.replace('/', '--')}.json").read_text("utf-8")
    entry: dict[str, Any] = json.loads(text)
    return entry


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    """Every lower-case name, short name and alias to the full name."""
    catalog = files("sim.models") / "catalog"
    names = [item.name[:-5].replace("--", "/") for item in catalog.iterdir() if "--" in item.name]
    aliases: dict[str, str] = json.loads((catalog / "aliases.json").read_text("utf-8"))
    index = {name.split("/")[1].lower(): name for name in sorted(names)}
    index |= {alias.lower(): name for alias, name in aliases.items()}
    return index | {name.lower(): name for name in names}


def _suggestion(name: str) -> str:
    return nearest(name, _index()) if "/" in name else nearest(name, {key for key in _index() if "/" not in key})


@lru_cache(maxsize=64)
def _from_catalog(name: str) -> Architecture:
    entry = catalog_entry(name)
    return _with_sampling(architecture_from_config(entry["config"], name), entry.get("generation_config", {}))


def _from_path(path: Path) -> Architecture:
    file = path / "config.json" if path.is_dir() else path
    config = _json_object(file)
    architecture = architecture_from_config(config, str(config.get("_name_or_path") or file.parent.name), str(file))
    generation, quantization = file.parent / "generation_config.json", file.parent / "hf_quant_config.json"
    if generation.is_file():
        architecture = _with_sampling(architecture, _json_object(generation))
    return _with_modelopt(architecture, quantization) if quantization.is_file() else architecture


def _json_object(file: Path) -> dict[str, Any]:
    try:
        config: Any = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(
            _FIELD, f"no config.json in folder {str(file.parent)!r}", "point at the folder of the model"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(_FIELD, f"cannot read {str(file)!r}: {error}") from None
    except json.JSONDecodeError as error:
        remedy = "a model is a name of servecast show models, or a config.json of Hugging Face"
        raise InputError(f"{file}:{error.lineno}", f"is not valid JSON: {error.msg}", remedy) from None
    if not isinstance(config, dict):
        raise InputError(_FIELD, f"{str(file)!r} must hold a JSON object, got {type(config).__name__}")
    return config


def _with_sampling(architecture: Architecture, generation: dict[str, Any]) -> Architecture:
    """Engines sample as the model's ``generation_config.json`` says unless a request says otherwise."""
    top_k, top_p = generation.get("top_k") or 0, generation.get("top_p") or 1.0
    return replace(architecture, truncated_sampling=bool(top_k > 0 or top_p < 1.0))


def _with_modelopt(architecture: Architecture, file: Path) -> Architecture:
    """ModelOpt checkpoints say how they are quantised in a file of their own, beside the configuration."""
    if architecture.stored_quantization is not None:
        return architecture
    from sim.models.stored_quantization import modelopt_quantization

    name, unquantized = modelopt_quantization(json.loads(file.read_text("utf-8")), str(file))
    return replace(architecture, stored_quantization=name, stored_unquantized=unquantized)
