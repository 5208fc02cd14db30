"""Read the kernel tables of the PyPI package ``aiconfigurator-core`` into the tidy table of `fit_points`.

The package is NVIDIA's (Apache-2.0). It is not a dependency: its tables are read from where the user installed or
unpacked it. Column meanings and traps: latency is in milliseconds; ``step`` of the decode table is the context already
in the cache; message sizes count elements; small fp8_block products of the vLLM tables are launch time, so other
frameworks' rows are used for that family.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from calibration.importer_tables import COLUMNS, SYSTEMS, Table
from calibration.importer_tidy import TIDY
from sim.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas as pd

VERSION: Final = "0.12.0"
_PACKAGE: Final = "aiconfigurator-core"
_ADVICE: Final = f"pip install --no-deps {_PACKAGE}=={VERSION}, or unpack its wheel and name the folder"


def system_names() -> tuple[str, ...]:
    """Profiles that the tables cover."""
    return tuple(sorted(SYSTEMS))


def import_points(profile: str, folder: str | Path | None = None) -> pd.DataFrame:
    """All usable kernel times of one device.

    Args:
        profile: name of the hardware profile (``h100-sxm``).
        folder: where the wheel was unpacked; None = the installed package.

    Raises:
        InputError: a device without tables, no package, a package of another version, a missing table, or a table whose
            columns are not those of the known version.
    """
    import pandas as pd

    if profile not in SYSTEMS:
        raise InputError("hardware", f"no published tables for {profile!r}", nearest(profile, SYSTEMS))
    root = _data_folder(folder)
    frames = [_tidy(root / SYSTEMS[profile].folder, table) for table in SYSTEMS[profile].tables]
    return pd.concat([frame for frame in frames if len(frame)], ignore_index=True)


def _tidy(system: Path, table: Table) -> pd.DataFrame:
    import pandas as pd

    path = system / table.path
    try:
        rows = pd.read_parquet(path)
    except FileNotFoundError:
        raise InputError(str(path), "table is missing", f"{_PACKAGE} {VERSION} has it: {_ADVICE}") from None
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read as Parquet ({error})", _ADVICE) from None
    known = COLUMNS[table.kind]
    unknown, missing = sorted(set(rows.columns) - known.all), sorted(known.needed - set(rows.columns))
    if unknown or missing:
        told = [f"unknown columns {', '.join(unknown)}"] if unknown else []
        told += [f"missing columns {', '.join(missing)}"] if missing else []
        raise InputError(str(path), "; ".join(told), f"only {_PACKAGE} {VERSION} is understood: {_ADVICE}")
    tidy = TIDY[table.kind](rows, table)
    tidy["source"] = f"{_PACKAGE} {VERSION} (Apache-2.0, NVIDIA), {system.name}/{table.path}"
    return tidy


def _data_folder(folder: str | Path | None) -> Path:
    """The package's folder of tables, once its version is known to be the right one."""
    if folder is None:
        try:
            found = metadata.version(_PACKAGE)
        except metadata.PackageNotFoundError:
            raise InputError(_PACKAGE, "is not installed", _ADVICE) from None
        spec = find_spec("aiconfigurator_core")
        if spec is None or spec.origin is None:
            raise InputError(_PACKAGE, "is installed, but cannot be found", _ADVICE)
        root = Path(spec.origin).parent
    else:
        root = Path(folder).expanduser()
        root = root if root.name == "aiconfigurator_core" else root / "aiconfigurator_core"
        found = _version_beside(root)
    if found != VERSION:
        raise InputError(_PACKAGE, f"version {found!r} is not understood", f"only {VERSION} is: {_ADVICE}")
    data = root / "systems" / "data"
    if not data.is_dir():
        raise InputError(str(data), "no such folder", _ADVICE)
    return data


def _version_beside(root: Path) -> str:
    """Version from the ``dist-info`` folder beside an unpacked package."""
    for info in sorted(root.parent.glob("aiconfigurator_core-*.dist-info")):
        return info.name.removeprefix("aiconfigurator_core-").removesuffix(".dist-info")
    return "unknown (no dist-info folder beside it)"
