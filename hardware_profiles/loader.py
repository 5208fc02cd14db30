"""Find and read hardware profiles and engine overheads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from hardware_profiles.kernels import Kernels
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from hardware_profiles.scale import scaled_kernels
from sim.errors import InputError, nearest

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def hardware_names() -> list[str]:
    """Names of the profiles that ship, sorted; each is accepted by `load_hardware`."""
    return sorted(_stem(entry) for entry in _yaml_files("profiles"))


def engine_names() -> list[str]:
    """Engines whose host overheads ship, sorted."""
    return sorted(_stem(entry) for entry in _yaml_files("engines"))


def load_hardware(name_or_path: str | Path) -> HardwareProfile:
    """The profile called ``name_or_path`` (a name, an alias, or a path to a YAML file).

    Raises:
        InputError: unknown name (with the nearest one), unreadable file, or a document that the schema refuses.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith((".yaml", ".yml")) or "/" in text:
        path = Path(text).expanduser()
        return _with_kernels(HardwareProfile.parse(_document(path, text), text))
    name = text.strip().lower().replace("_", "-").replace(" ", "-")
    if name in hardware_names():
        return _shipped(name)
    aliases = _aliases()
    if name in aliases:
        return _shipped(aliases[name])
    raise InputError(
        "hardware",
        f"unknown profile {text!r}",
        nearest(name, [*hardware_names(), *aliases]) + " A path to a profile's YAML works too.",
    )


def load_engine_overheads(engine: str, hardware: HardwareProfile | None = None) -> EngineOverheads:
    """Host constants of ``engine``: the profile's own where it has them, else those that ship.

    Raises:
        InputError: no constants for that engine.
    """
    if hardware is not None and engine in hardware.engines:
        return hardware.engines[engine]
    if engine not in engine_names():
        raise InputError("engine.preset", f"no host overheads for {engine!r}", nearest(engine, engine_names()))
    return _shipped_engine(engine)


@lru_cache
def _shipped(name: str) -> HardwareProfile:
    where = f"hardware_profiles/{name}.yaml"
    return _with_kernels(HardwareProfile.parse(_document(_folder("profiles") / f"{name}.yaml", where), where))


def _with_kernels(profile: HardwareProfile) -> HardwareProfile:
    """The profile with the scaled kernels of the device it names, where it has none."""
    if profile.kernels_from is None or profile.kernels != Kernels():
        return profile
    return profile.model_copy(update={"kernels": scaled_kernels(profile, load_hardware(profile.kernels_from.profile))})


@lru_cache
def _shipped_engine(name: str) -> EngineOverheads:
    where = f"hardware_profiles/engines/{name}.yaml"
    return EngineOverheads.parse(_document(_folder("engines") / f"{name}.yaml", where), where)


@lru_cache
def _aliases() -> dict[str, str]:
    """Alias to name. Read by parsing only the head of each file, since fitted sections are long."""
    found: dict[str, str] = {}
    for entry in _yaml_files("profiles"):
        line = next((row for row in entry.read_text("utf-8").splitlines() if row.startswith("aliases:")), "aliases: []")
        for alias in yaml.load(line, Loader=_Loader)["aliases"]:
            found[str(alias).lower()] = _stem(entry)
    return found


def _document(path: Traversable, where: str) -> Any:
    try:
        return yaml.load(path.read_text("utf-8"), Loader=_Loader)
    except OSError as error:
        raise InputError(where, f"cannot be read ({error.strerror or error})", "name a readable profile") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(where, f"is not YAML ({str(error).splitlines()[0]})", "see docs/cost-model.md") from None


def _folder(kind: str) -> Traversable:
    root = files("hardware_profiles")
    return root if kind == "profiles" else root / kind


def _yaml_files(kind: str) -> Iterator[Traversable]:
    return (entry for entry in _folder(kind).iterdir() if entry.name.endswith(".yaml"))


def _stem(entry: Traversable) -> str:
    return entry.name.removesuffix(".yaml")
