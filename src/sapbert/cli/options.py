"""Command-line options made from settings dataclasses, so that each setting is declared once.

A command declares a parameter whose type is a settings dataclass. `with_options` replaces it by one option
per field and passes the settings to the command. The field's name, type, default and docstring become the
option; `sapbert.options.Option` adds flags, ranges and the like. Python discards the docstrings of fields, so
they are read from the source of the class.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from sapbert.options import Option

Settings = TypeVar("Settings")
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ExplicitOptions(Generic[Settings]):
    """The options of a settings dataclass that the user typed, without defaults.

    A command takes `ExplicitOptions[TrainSettings]` instead of `TrainSettings` if a typed value and a default
    differ in effect: a recipe overrides defaults, typed options override the recipe.
    """

    values: Mapping[str, Any]
    """Field name → value."""


def with_options(
    groups: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Replace parameters of a command that are settings dataclasses by one option per field.

    `groups` maps the first field of a group to the title that --help prints above the group. Fields named in
    `without` keep their default and are not offered.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        expanded = {
            name: _Expansion(name, parameter.annotation, frozenset(without))
            for name, parameter in signature.parameters.items()
            if is_dataclass(get_origin(parameter.annotation) or parameter.annotation)
        }

        def with_settings(context: typer.Context, **arguments: Any) -> None:
            settings = {name: parameter.build(context, arguments) for name, parameter in expanded.items()}
            command(**{name: arguments.get(name) for name in signature.parameters} | settings)

        keyword_only = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", keyword_only, annotation=typer.Context)]
        for name, parameter in signature.parameters.items():
            options = expanded[name].options(groups or {}) if name in expanded else [parameter]
            parameters += [option.replace(kind=keyword_only) for option in options]
        with_settings.__name__, with_settings.__doc__ = command.__name__, command.__doc__
        with_settings.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # for typer
        return with_settings

    return decorate


@dataclass(frozen=True, slots=True)
class _Expansion:
    """A parameter of a command that becomes one option per field."""

    name: str
    annotation: Any
    """A settings dataclass, or `ExplicitOptions` of one."""
    without: frozenset[str]

    @property
    def settings(self) -> type[Any]:
        kind: type[Any] = get_args(self.annotation)[0] if self.only_typed else self.annotation
        return kind

    @property
    def only_typed(self) -> bool:
        return get_origin(self.annotation) is ExplicitOptions

    def build(self, context: typer.Context, arguments: Mapping[str, Any]) -> Any:
        """Make the settings from the command line."""
        values: dict[str, Any] = {}
        for field, hint in self._fields():
            source = context.get_parameter_source(self._key(field))
            if self.only_typed and (source is None or source.name != "COMMANDLINE"):
                continue
            value, container = arguments[self._key(field)], _container(hint)
            values[field.name] = value if container is None else container(value)
        return ExplicitOptions(values) if self.only_typed else self.settings(**values)

    def options(self, groups: Mapping[str, str]) -> Iterator[inspect.Parameter]:
        """Yield the options, as parameters that typer understands."""
        docs, group = _docs(self.settings), None
        for field, hint in self._fields():
            group = groups.get(field.name, group)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if isinstance(declared := _metadata(hint), OptionInfo):
                hint = Annotated[get_args(hint)[0], _declared_option(declared, field, hint, group)]
            else:
                hint, default = _typer_option(field, hint, default, docs[field.name], group)
            yield inspect.Parameter(
                self._key(field),
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=hint,
            )

    def _fields(self) -> Iterator[tuple[Field[Any], Any]]:
        """Yield the fields that become options, with their types: those of the class, then its base's."""
        hints = get_type_hints(self.settings, include_extras=True)
        of_class = self.settings.__annotations__
        for field in sorted(fields(self.settings), key=lambda field: field.name not in of_class):
            metadata = _metadata(hints[field.name])
            hidden = isinstance(metadata, Option) and metadata.hidden
            if not hidden and field.name not in self.without:
                yield field, hints[field.name]

    def _key(self, field: Field[Any]) -> str:
        """Name an option so that two settings of one command may have fields of the same name."""
        return f"{self.name}_{field.name}"


def _typer_option(field: Field[Any], hint: Any, default: Any, doc: str, group: str | None) -> tuple[Any, Any]:
    """Return the annotation and the default of the option that a field becomes."""
    extra, container = _metadata(hint) or Option(), _container(hint)
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    option = typer.Option(
        *(extra.flags or (_flag(field, hint, default=default),)),
        help=doc + (" Repeatable." if container else ""),
        metavar=extra.metavar or ("NAME=NUMBER" if container is dict else None),
        min=extra.min,
        max=extra.max,
        show_default=extra.default or default is not None,
        parser=named_number if container is dict else None,
        rich_help_panel=group,
    )
    return (Annotated[list[str], option], list(default)) if container else (Annotated[hint, option], default)


def _declared_option(declared: OptionInfo, field: Field[Any], hint: Any, group: str | None) -> OptionInfo:
    """Return a typer option with the flag that typer would derive from the parameter, and its group."""
    option = copy(declared)
    option.rich_help_panel = group
    if option.default is ... and not option.param_decls:
        option.default = _flag(field, hint, default=False)  # Inside `Annotated` this is the first flag.
    return option


def _metadata(hint: Any) -> Any:
    """Return the `Option` of a field, or the typer option that a class of the command line gives it."""
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((item for item in metadata if isinstance(item, Option | OptionInfo)), None)


def _container(hint: Any) -> Callable[[Any], Any] | None:
    """Return what collects the values of an option that may be repeated; None if it may not."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    containers: dict[Any, Callable[[Any], Any]] = {tuple: tuple, Mapping: dict}
    return containers.get(get_origin(plain))


def _flag(field: Field[Any], hint: Any, *, default: object) -> str:
    name = (field.name.removesuffix("s") if _container(hint) else field.name).replace("_", "-")
    on_and_off = bool in (hint, *get_args(hint)) and default is not False
    return f"--{name}/--no-{name}" if on_and_off else f"--{name}"


def _docs(kind: type[Any]) -> dict[str, str]:
    """Read the docstring of each field, as one line; a class overrides the docstrings of its base."""
    bases = [base for base in reversed(kind.__mro__) if is_dataclass(base)]
    definitions = [ast.parse(dedent(inspect.getsource(base))).body[0] for base in bases]
    return {
        statement.target.id: " ".join(str(doc.value.value).split())
        for definition in definitions
        if isinstance(definition, ast.ClassDef)
        for statement, doc in pairwise(definition.body)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
    }


def named_number(text: str) -> tuple[str, float]:
    """Parse an option such as `scale=20`."""
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise typer.BadParameter(f"expected NAME=NUMBER, such as scale=20; got {text!r}") from None


class GroupedCommand(TyperCommand):
    """Lists options below the title of their group; typer alone needs rich for that, too slow for --help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options of --help."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = f"{parameter.param_type_name.title()}s"
                title = getattr(parameter, "rich_help_panel", None) or kind
                sections.setdefault(title, []).append(_plain(*record))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _plain(option: str, help: str) -> tuple[str, str]:
    """Simplify typer's notation: `<list[Path]>` to `<path>`, `<int range>` to `<int>`, `(all)` to `all`."""
    option = re.sub(r"<list\[(\w+)\]>", lambda match: f"<{match[1].lower()}>", option)
    return option.replace(" range>", ">"), re.sub(r"\[default: \(([^()]*)\)", r"[default: \1", help)


def command_group(help: str) -> tuple[typer.Typer, Callable[..., Callable[[Command], Command]]]:
    """Return a group of commands, such as `sapbert read`, and the decorator that adds a command to it."""
    app = typer.Typer(
        help=help,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return app, partial(app.command, cls=GroupedCommand)
