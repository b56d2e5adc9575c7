"""Turns frozen dataclasses into JSON and back, with a schema name and version on the outside.

One small reflective codec serves every noun, so a noun is only its fields. Decoding is strict: an unknown
key, a missing one or a value of the wrong type is an error that names its path.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from nfold.errors import NfoldError

T = TypeVar("T")

SCHEMA_VERSION = 1
"""Of all nouns; a document without a schema is of the first version."""


class CodecError(NfoldError, ValueError):
    """A document is not the noun that it claims to be."""


def encode(noun: Any) -> dict[str, Any]:
    """Return the JSON object of a noun, its schema name and version first."""
    return {"schema": _schema(type(noun)), **_encode(noun)}


def decode(kind: type[T], document: dict[str, Any]) -> T:
    """Return the noun that a JSON object describes.

    Raises:
        CodecError: the schema is another or a newer one, or a field is missing, unknown or of the wrong type.
    """
    fields = dict(document)
    schema = fields.pop("schema", _schema(kind, 1))
    _check_schema(kind, schema)
    return typing.cast("T", _decode(kind, fields, kind.__name__))


def dumps(noun: Any, *, indent: int | None = None) -> str:
    """Return a noun as JSON text."""
    return json.dumps(encode(noun), indent=indent, allow_nan=False)


def loads(kind: type[T], text: str) -> T:
    """Return the noun that JSON text describes.

    Raises:
        CodecError: the text is not JSON, or not this noun.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise CodecError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CodecError(f"expected an object of schema {_schema(kind)!r}, got {type(document).__name__}")
    return decode(kind, document)


def save(noun: Any, path: Path) -> None:
    """Write a noun to a file, whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(dumps(noun, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def load(kind: type[T], path: Path) -> T:
    """Read a noun from a file.

    Raises:
        CodecError: there is no such file, or it does not hold this noun.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CodecError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CodecError(f"{path}: not text: {error}") from error
    try:
        return loads(kind, text)
    except CodecError as error:
        raise CodecError(f"{path}: {error}") from error


def check_version(what: str, version: int) -> None:
    """Refuse what a newer nfold has written.

    Raises:
        CodecError: with both versions and what to do.
    """
    if version > SCHEMA_VERSION:
        raise CodecError(
            f"{what} is of version {version}, and this nfold reads versions up to {SCHEMA_VERSION}: a newer nfold has "
            "written it. Install that one (pip install --upgrade nfold), or begin a new run with this one."
        )


def _check_schema(kind: type, schema: object) -> None:
    name, _, version = schema.rpartition("/") if isinstance(schema, str) else ("", "", "")
    if name != _schema(kind).rpartition("/")[0] or not (version.isdecimal() and int(version) > 0):
        raise CodecError(f"expected a document of schema {_schema(kind)!r}, got {schema!r}")
    check_version(f"this {name}", int(version))


def _schema(kind: type, version: int = SCHEMA_VERSION) -> str:
    return f"nfold.{kind.__name__}/{version}"


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_key(field): _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise CodecError(f"{value} has no JSON form")
    return value


def _key(field: dataclasses.Field[Any]) -> str:
    """A field may carry another name in JSON (`class` is no Python identifier)."""
    return typing.cast("str", field.metadata.get("json", field.name))


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value, path)
    if origin is Literal:
        return value if value in arguments else _fail(path, f"one of {', '.join(map(repr, arguments))}", value)
    if dataclasses.is_dataclass(hint):
        return _decode_fields(typing.cast("type", hint), value, path)
    if origin is tuple:
        return _decode_tuple(arguments, value, path)
    if origin is dict:
        return _decode_dict(arguments, value, path)
    return _decode_scalar(hint, value, path)


def _decode_union(arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    first_error: CodecError | None = None
    for argument in arguments:
        if argument is type(None):
            continue
        try:
            return _decode(argument, value, path)
        except CodecError as error:
            first_error = first_error or error
    raise first_error or CodecError(f"{path}: nothing accepts {value!r}")


def _decode_fields(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        _fail(path, "an object", value)
    hints, rest, arguments = _hints(kind), dict(value), {}
    for field in dataclasses.fields(kind):
        key = _key(field)
        if key in rest:
            arguments[field.name] = _decode(hints[field.name], rest.pop(key), f"{path}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CodecError(f"{path}: the field {key!r} is missing")
    if rest:
        raise CodecError(f"{path}: unknown field {sorted(rest)[0]!r}")
    return kind(**arguments)


def _decode_tuple(arguments: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        _fail(path, "a list", value)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if len(arguments) != len(value):
        _fail(path, f"a list of {len(arguments)}", value)
    return tuple(
        _decode(hint, item, f"{path}[{index}]") for index, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _decode_dict(arguments: tuple[Any, ...], value: Any, path: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        _fail(path, "an object", value)
    return {
        _decode_key(arguments[0], key, path): _decode(arguments[1], item, f"{path}.{key}")
        for key, item in value.items()
    }


def _decode_key(key_type: type, key: str, path: str) -> Any:
    """JSON's keys are text, whatever they were."""
    try:
        return key_type(key)
    except ValueError:
        _fail(path, f"keys of type {key_type.__name__}", key)


def _decode_scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _decode_float(value, path)
    if isinstance(value, bool) and hint is not bool:
        _fail(path, hint.__name__, value)
    if not isinstance(value, hint):
        _fail(path, hint.__name__, value)
    return value


def _decode_float(value: float, path: str) -> float:
    """Python's JSON reader takes NaN and Infinity, which JSON does not have."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else _fail(path, "a finite number", value)


def _fail(path: str, expected: str, value: Any) -> typing.NoReturn:
    raise CodecError(f"{path}: expected {expected}, got {value!r}")
