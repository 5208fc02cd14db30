"""Base of every document servecast reads: strict, frozen, and clear about what is wrong."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from sim.errors import InputError, nearest


class StrictModel(BaseModel):
    """A pydantic model that refuses unknown keys, NaN and infinities, and silent conversions of text to numbers."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=False, ser_json_inf_nan="null"
    )

    @classmethod
    def parse(cls, data: Any, where: str = "") -> Self:
        """Validate ``data``; raise `InputError` naming the first bad field, its value and a remedy."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _input_error(cls, error, where) from None


def _input_error(model: type[BaseModel], error: ValidationError, where: str) -> InputError:
    """Turn pydantic's first complaint into one `InputError`."""
    errors = error.errors(include_url=False)
    section = errors[0]["loc"][:-1]
    beside = [each for each in errors if each["loc"][:-1] == section]
    # A misspelt key is missing and unknown at once: the latter says more.
    unknown = [each for each in beside if each["type"] == "extra_forbidden"]
    first = unknown[0] if unknown and errors[0]["type"] == "missing" else errors[0]
    cause = first.get("ctx", {}).get("error")
    path = [str(part) for part in first["loc"]]
    inner = [cause.field] if isinstance(cause, InputError) and cause.field else []
    field = ".".join(([where] if where else []) + path + inner) or model.__name__
    if isinstance(cause, InputError):
        return InputError(field, cause.problem, cause.remedy)
    if first["type"] == "extra_forbidden":
        return InputError(field, "unknown key", nearest(path[-1], _known_keys(model, path[:-1])))
    if first["type"] == "missing":
        others = [str(each["loc"][-1]) for each in beside[1:] if each["type"] == "missing"]
        return InputError(field, "required, but missing", f"missing too: {', '.join(others)}" if others else "")
    value = first["input"]
    shown = "null" if value is None else repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    if first["type"] in ("model_type", "dict_type"):
        return InputError(field, f"must hold keys and values, got {shown}", "leave it out, or give its keys")
    return InputError(field, f"{first['msg'][0].lower()}{first['msg'][1:]}, got {shown}")


def _known_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys allowed at ``path`` below ``model`` (best effort through optional and union types)."""
    candidates: list[type[BaseModel]] = [model]
    for part in path:
        inner: list[type[BaseModel]] = []
        for candidate in candidates:
            if part in candidate.model_fields:
                inner += _models_in(candidate.model_fields[part].annotation)
        candidates = inner or candidates
    return sorted({key for candidate in candidates for key in candidate.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _models_in(argument)]
