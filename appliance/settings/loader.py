"""Loader of the settings: /etc/appliance/appliance.toml, then APPLIANCE_* variables.

A variable wins over the file: ``APPLIANCE_LOG_LEVEL=debug``; a table's key is reached with two
underscores: ``APPLIANCE_MEMORY__MARGIN=1GiB``. ``APPLIANCE_SETTINGS`` names another file.

``python -I -m appliance.settings.loader`` prints the settings for the daemons, as one JSON document of plain values, or
what is wrong with them on standard error with status 78 (EX_CONFIG). See `appliance.settings.snapshot`.
"""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Final, Self, get_args, get_origin, get_type_hints

import pydantic
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from appliance.model import paths
from appliance.model.errors import SettingsError
from appliance.model.quantities import size_text
from appliance.model.value_types import Doc, TypeName, WrongValueError, shown
from appliance.settings.tables import ENVIRONMENT_PREFIX, FILE_VARIABLE, Settings
from appliance.system.toml.file import (
    Document,
    Fault,
    FaultyFileError,
    fault_lines,
    parse_document,
    read_document,
)
from appliance.system.toml.tables import model_faults, table_model, validated, wrong

_NESTED: Final = "__"
_CLOSE: Final = 0.75
"""Similarity, as in difflib, from which a variable is taken for a misspelt setting."""
_EX_CONFIG: Final = 78
"""Status as in sysexits.h."""


class _Table(BaseModel):
    """Model of a table of `appliance.settings.tables`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    declared: ClassVar[type]

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        try:
            _declared(self)
        except WrongValueError as error:
            raise wrong(str(error)) from error
        return self


class _File(BaseSettings):
    """Model of the whole file and of the variables."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter=_NESTED,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )
    declared: ClassVar[type] = Settings
    environment: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the interface
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the variables of `environment` first, then the arguments."""
        variables = EnvSettingsSource(settings_cls)
        variables.env_vars = {name.lower(): value for name, value in cls.environment.items()}
        return variables, init_settings

    @field_validator("gateway", check_fields=False)
    @classmethod
    def _check_ports(cls, gateway: Any, info: ValidationInfo) -> Any:
        if gateway.port == info.data.get("status_port"):
            raise wrong("has the port of the status API too (status_port): they need two")
        return gateway


def _model(cls: Any) -> type[BaseModel]:
    """Return the model of a table."""
    model = pydantic.create_model(cls.__name__, __base__=_Table, **_fields(cls))
    model.__doc__ = cls.__doc__
    model.declared = cls
    return model


def _fields(cls: Any) -> dict[str, Any]:
    """Return the fields of the model of a table, as `pydantic.create_model` takes them."""
    found: dict[str, Any] = {}
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        kind: Any
        kind, *marks = get_args(hints[field.name])
        doc = next(mark for mark in marks if isinstance(mark, Doc))
        default: Any = ... if field.default is MISSING else field.default
        if is_dataclass(kind):
            kind = _model(kind)
            default = kind()
        elif get_origin(kind) is tuple:
            default = list(default)
        found[field.name] = _checked(kind, marks), Field(default=default, description=doc.text)
    return found


def _checked(kind: Any, marks: Sequence[Any]) -> Any:
    """Return the type that pydantic checks for a key of the type `kind`."""
    if get_origin(kind) is not tuple:
        return validated(Annotated[(kind, *marks)])
    item: Any = get_args(kind)[0]
    if is_dataclass(item):  # Variables have it as JSON.
        return validated(Annotated[(GenericAlias(list, (_model(item),)), *marks)])
    return Annotated[validated(Annotated[(kind, *marks)]), NoDecode, BeforeValidator(_split)]


def _split(value: Any) -> Any:
    """Split the value of a variable, which lists items with spaces or commas between them."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


def _declared(model: Any) -> Any:
    """Return the table that a model has checked. Raises `WrongValueError` for keys that do not go together."""
    if isinstance(model, BaseModel):
        kind: Any = getattr(model, "declared")  # noqa: B009
        names = type(model).model_fields
        return kind(**{name: _declared(getattr(model, name)) for name in names})
    return tuple(map(_declared, model)) if isinstance(model, list | tuple) else model


SETTINGS_FILE: Final = pydantic.create_model("Settings", __base__=_File, **_fields(Settings))
"""Model of the file, for the loader, the reference and the JSON Schema."""
SETTINGS_FILE.__doc__ = Settings.__doc__


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Load the settings of this box.

    Args:
        path: Of the file; None: ``APPLIANCE_SETTINGS``, else the default. A missing default file
            means defaults, a missing file that was named is an error.
        env: The environment; None: this process's.

    Raises:
        SettingsError: one line for everything that is wrong.
    """
    env = os.environ if env is None else env
    named = path or (Path(env[FILE_VARIABLE]) if env.get(FILE_VARIABLE) else None)
    file = named or Path(paths.SETTINGS_FILE)
    try:
        document = (
            parse_document(b"") if named is None and not file.exists() else read_document(file)
        )
    except FaultyFileError as error:
        raise SettingsError(fault_lines(str(file), error.faults)) from error
    strangers = dict(_unknown_variables(env))
    lines = list(strangers.values())
    try:
        reader = pydantic.create_model("Settings", __base__=SETTINGS_FILE)
        reader.environment = env
        loaded = reader(**document.table)
    except ValidationError as error:
        lines += _lines(error, file, document, env, strangers)
        raise SettingsError("\n".join(lines)) from error
    except SourceError as error:
        lines += [f"{ENVIRONMENT_PREFIX}*: {error}"]
        raise SettingsError("\n".join(lines)) from error
    if lines:
        raise SettingsError("\n".join(lines))
    return Settings(**{name: _declared(value) for name, value in loaded})


def _lines(
    error: ValidationError,
    file: Path,
    document: Document,
    env: Mapping[str, str],
    reported: Collection[str],
) -> Iterator[str]:
    """Yield faults of variables, then those of the file in the order of its lines."""
    given = {name.upper(): value for name, value in env.items()}
    in_file = []
    for fault in model_faults(error, SETTINGS_FILE, document.table):
        keys = [str(part) for part in fault.where if isinstance(part, str)]
        variable = ENVIRONMENT_PREFIX + _NESTED.join(keys).upper()
        if variable not in given:
            in_file.append(Fault(line=document.line(fault.where), text=fault.text))
        elif variable not in reported:
            # The sentence may quote the file's value, which the variable has replaced.
            yield f"{variable}={shown(given[variable])}: {fault.text.partition(', not ')[0]}"
    if in_file:
        yield fault_lines(str(file), in_file)


def _unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield faults of unknown variables whose names resemble a setting.

    Others with our prefix may belong to a script that runs the appliance, or to its tests.
    """
    known = [
        v.removeprefix(ENVIRONMENT_PREFIX) for v in (*_variables(SETTINGS_FILE), FILE_VARIABLE)
    ]
    for name in sorted(env):
        word = name.removeprefix(ENVIRONMENT_PREFIX)
        if word == name or word in known:
            continue
        if close := get_close_matches(word[:128], known, n=1, cutoff=_CLOSE):
            yield name, f'{name}: no such setting; did you mean "{ENVIRONMENT_PREFIX}{close[0]}"?'


def _variables(model: type[BaseModel], prefix: str = ENVIRONMENT_PREFIX) -> Iterator[str]:
    """Yield the variable of every setting."""
    for name, field in model.model_fields.items():
        yield prefix + name.upper()  # a table as a whole, in JSON
        if inner := table_model(field.annotation):
            yield from _variables(inner, prefix + name.upper() + _NESTED)


def as_table(table: Any) -> Mapping[str, Any]:
    """Return the settings, or a table of them, as plain values for `appliance config show`."""
    hints = get_type_hints(type(table), include_extras=True)
    return {f.name: _plain(getattr(table, f.name), hints[f.name]) for f in fields(table)}


def _plain(value: Any, hint: Any) -> Any:
    if is_dataclass(value):
        return as_table(value)
    if isinstance(value, tuple):
        return [_plain(one, None) for one in value]
    if isinstance(value, int) and _is_size(hint):
        return size_text(value)
    return str(value) if isinstance(value, str | Path) else value


def _is_size(hint: Any) -> bool:
    parts = get_args(hint)
    return TypeName("size") in parts or any(map(_is_size, parts))


def printed(settings: Settings) -> str:
    """Return the document for the daemons."""
    return json.dumps(asdict(settings), default=str)


def main() -> int:
    """Print the settings of this box; return the exit status."""
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _EX_CONFIG
    sys.stdout.write(printed(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
