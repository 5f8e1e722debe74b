"""Typer's parameters and help, made from the declaration in `trainbox.config`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from trainbox import values
from trainbox.cli.debug import Debug as Debug
from trainbox.config import options

METAVARS = {int: "N", float: "X", Path: "FOLDER", str: "NAME"}

# What a command gives back: the work, to be done once all words are understood.
Job = Callable[[], None]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, to standard output.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name under --output-dir, or the path of its folder.")]
Checkpoint = Annotated[
    Literal["last", "best"],
    typer.Option("--checkpoint", help="The last one, or the one of the lowest validation (else training) loss."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE.toml", help="Take what no flag or variable gives from this TOML file."),
]


def takes(*names: str) -> Callable[[Callable[..., Job]], Callable[..., Job]]:
    """Give a command the options `names` of `RunConfig`; it gets them as `flags`, with None for what is not given."""

    def decorate(command: Callable[..., Job]) -> Callable[..., Job]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
        parameters = [*own, *map(parameter, names)]

        @functools.wraps(command)
        def call(**given: Any) -> Job:
            return command(flags={name: given.pop(name) for name in names}, **given)

        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return decorate


def parameter(name: str) -> inspect.Parameter:
    """The parameter of a command that stands for an option: typed, bounded by its parser, None unless given."""
    option, kind = options()[name], values.kinds()[name]
    flag = "--" + name.replace("_", "-")
    words: dict[str, Any] = {"help": _help(name), "show_default": False, "rich_help_panel": option.panel}
    annotation: Any = kind
    if kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    else:
        words["parser"] = functools.partial(values.from_text, name, subject=flag)
        metavar = option.metavar or "|".join(option.choices) or METAVARS[kind]
        words["metavar"] = f"{metavar}|{option.word}" if option.word else metavar
    if option.choices:
        annotation = Literal[option.choices]
    elif values.is_list(option):
        annotation = list[str]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, typer.Option(flag, **words)],
    )


def _help(name: str) -> str:
    option, default = options()[name], values.defaults()[name]
    notes = [values.bounds(option)]
    if isinstance(default, bool):
        notes.insert(0, f"default: {'on' if default else 'off'}")
    elif default is not None:
        notes.insert(0, f"default: {default:g}" if isinstance(default, float) else f"default: {default}")
    told = "; ".join(filter(None, notes))
    return f"{option.help}  [{told}]" if told else option.help


def switched_off(switch: Any) -> Any:
    """`--help` with a value where it is not given: for want of one Typer would load Pydantic, which takes 0.2 s."""
    if switch is not None:
        switch.default = False
    return switch


class PanelCommand(TyperCommand):
    """A command whose help groups the options, as Typer's own does, without the second that importing Rich costs."""

    def get_help_option(self, ctx: Any) -> Any:
        return switched_off(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = "Arguments" if param.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(param, "rich_help_panel", None) or panel, []).append(record)
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
