"""One document that says everything a run needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from sim.errors import InputError
from sim.layout import Layout
from sim.scenario.cluster import ClusterSpec
from sim.scenario.document import dump_yaml, load_document
from sim.scenario.engine import EngineSpec, Section
from sim.scenario.knobs import Name, Place
from sim.scenario.overrides import apply_overrides
from sim.scenario.paths import anchor_paths, digest_paths
from sim.scenario.slo import SloSpec
from workloads.spec import WorkloadSpec


class Scenario(Section):
    """Model, hardware, layout, engine, cluster, workload, promise and seed of one run.

    Attributes:
        name: what the run is called; the file's stem where the document does not say.
        model: a catalogue name, or the absolute path of a Hugging Face ``config.json`` or its folder.
        hardware: a profile name, or the absolute path of a profile.
    """

    name: Name = "scenario"
    model: Place
    hardware: Place
    layout: Layout = Field(default_factory=lambda: Layout.parse({}))
    engine: EngineSpec = Field(default_factory=lambda: EngineSpec.parse({}))
    cluster: ClusterSpec = ClusterSpec()
    workload: WorkloadSpec
    slo: SloSpec = SloSpec()
    seed: int = Field(0, ge=0, lt=2**63)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read YAML or JSON; relative paths in it start at its folder. Raises `InputError` naming the file."""
        file = Path(path).expanduser()
        document = load_document(file)
        if "variants" in document:
            remedy = f"servecast memory {file} shows it"
            raise InputError(str(file), "compares memory budgets and is no scenario", remedy)
        try:
            return cls.from_dict({"name": file.stem, **document}, file.parent)
        except InputError as error:
            raise InputError(f"{file}: {error.field}", error.problem, error.remedy) from None

    @classmethod
    def from_dict(cls, data: dict[str, Any], base_dir: str | Path | None = None) -> Self:
        """Validate ``data``; relative paths in it start at ``base_dir`` (None: the working directory)."""
        given = anchor_paths(data, Path(base_dir or "."))
        scenario = cls.parse(given)
        scenario.__dict__["given"] = given
        return scenario

    @cached_property
    def given(self) -> dict[str, Any]:
        """The document as it was given (paths made absolute), without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)

    def with_overrides(self, overrides: Iterable[str], base_dir: str | Path | None = None) -> Self:
        """A scenario with each ``key.path=value`` set (values are YAML), validated anew.

        A changed preset changes every key that was not given beside it. Relative paths start at ``base_dir`` (None: the
        working directory).
        """
        return self.from_dict(apply_overrides(self.given, overrides), base_dir)

    def model_copy(self, **kwargs: Any) -> Self:
        """As pydantic's; what was given is then what the copy holds."""
        copied = super().model_copy(**kwargs)
        copied.__dict__.pop("given", None)
        return copied

    def resolved(self) -> Self:
        """The same scenario with every default written down as if it had been given."""
        return self.parse(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """The scenario with every default filled in; reading it back gives an equal scenario."""
        return dump_yaml(self.model_dump(mode="json"))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import html

        return f"<pre>{html.escape(self.to_yaml())}</pre>"

    @property
    def scenario_hash(self) -> str:
        """16 hex digits over every resolved value and the contents of the files it names.

        Independent of key order, of how a value is spelled and of where the files lie. Raises `InputError` where one of
        them cannot be read.
        """
        canonical = json.dumps(_plain(digest_paths(self.model_dump(mode="json"))), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """One spelling a number: 4.0 and 4 are the same."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
