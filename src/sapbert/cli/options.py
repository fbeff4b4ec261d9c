"""Options made from the fields of a settings dataclass, so that a setting is said once.

A field's name, type, default and the docstring below it become an option. Python throws docstrings of fields
away, so they are read from the source of the class.

An option's default is that of its field, for --help to show. Hence `given` asks which options the user gave:
only those count more than a recipe.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

Verb = Callable[..., None]


def with_options(settings: type[Any], groups: Mapping[str, str]) -> Callable[[Verb], Verb]:
    """Give a verb an option for each field of `settings`; it takes them from its context, with `given`.

    `groups` has a title for the first field of each group.
    """

    def decorate(verb: Verb) -> Verb:
        own = inspect.signature(verb, eval_str=True)

        def command(**arguments: object) -> None:
            verb(**{name: arguments[name] for name in own.parameters})

        command.__doc__ = verb.__doc__
        parameters = [*own.parameters.values(), *_parameters(settings, groups)]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer asks for it
        return command

    return decorate


def given(context: typer.Context, settings: type[Any]) -> dict[str, Any]:
    """Return the fields of `settings` that the user gave options for."""
    found: dict[str, Any] = {}
    for field in fields(settings):
        source = context.get_parameter_source(field.name)
        if source is not None and source.name == "COMMANDLINE":
            value = context.params[field.name]
            found[field.name] = dict(value) if isinstance(value, list | tuple) else value
    return found


class GroupedCommand(TyperCommand):
    """Lists options under the title of their group, which typer does only with rich, too slow for --help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what --help says of arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                plain = f"{parameter.param_type_name.title()}s"
                title = getattr(parameter, "rich_help_panel", None) or plain
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _parameters(settings: type[Any], groups: Mapping[str, str]) -> Iterator[inspect.Parameter]:
    hints, docs, defaults, group = get_type_hints(settings), _docs(settings), settings(), None
    # A class says its own settings first, then those that it shares with others.
    for field in sorted(fields(settings), key=lambda field: field.name not in settings.__annotations__):
        group, hint, doc = groups.get(field.name, group), hints[field.name], docs[field.name]
        default = getattr(defaults, field.name)
        option = typer.Option(help=doc, rich_help_panel=group)
        if get_origin(hint) is Mapping:
            # One at a time: `loss_settings` is told by --loss-setting a=1 --loss-setting b=2.
            hint, default = list[str], []
            option = typer.Option(
                f"--{field.name.removesuffix('s').replace('_', '-')}",
                parser=named_number,
                metavar="NAME=NUMBER",
                help=f"{doc} May be given again.",
                rich_help_panel=group,
            )
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option]
        )


def _docs(settings: type[Any]) -> dict[str, str]:
    """Read the docstring of each field, as one line; a class's own counts more than that of its base."""
    bases = [base for base in reversed(settings.__mro__) if is_dataclass(base)]
    written = [ast.parse(dedent(inspect.getsource(base))).body[0] for base in bases]
    return {
        statement.target.id: " ".join(str(doc.value.value).split())
        for definition in written
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
        raise typer.BadParameter(f"expected a name and a number, such as scale=20; got {text!r}") from None
