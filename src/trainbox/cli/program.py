"""The Typer application: which commands there are. It turns words into a job; `trainbox.cli.app` does the job."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trainbox import __version__
from trainbox.cli.debug import Debug

# Each is a function in the module of `trainbox.cli` that has its name, imported only when it is called for, so that
# help is as quick with many commands as with few.
COMMANDS = {
    "train": "Train a model, or go on with the run of the same name.",
    "evaluate": "Evaluate a run's last or best checkpoint on a split of its data set.",
    "export": "Write a run's last or best checkpoint as a SavedModel and as model.keras.",
    "reproduce": "Run a finished run again from its manifest alone, and tell whether the bits are the same.",
    "compare": "Tell the first step at which two runs part, and what differs.",
    "devices": "List every GPU of this machine, whether this process may use it, and if not, why.",
    "doctor": "Check what a run stands on, and say what to type where something is wrong.",
    "data": "Prepare data sets, list, check and describe them, and clean up after killed preparations.",
    "config": "Show each value that `train` would use and where it comes from.",
}
# Those of `trainbox data`: each is the function data_NAME in the module of `trainbox.cli.data` that has its name.
DATA = {
    "list": "List the data sets that lie prepared in the data folder.",
    "info": "Describe a data set, prepared or not, without fetching anything.",
    "prepare": "Prepare data sets, so that runs need no network.",
    "verify": "Read every file of prepared data sets and compare it with what was written.",
    "clean": "Remove what killed preparations left, and never the work of a live one.",
}
CONTEXT = {"max_content_width": 120, "help_option_names": ["--help", "-h"]}


class Commands(TyperGroup):
    """The commands of trainbox, each built when it is needed."""

    table = COMMANDS

    def build(self, name: str) -> Any:
        function = getattr(importlib.import_module(f"trainbox.cli.{name}"), name)
        return group(name, function) if name == "data" else command(name, function)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            from trainbox.values import did_you_mean, shown

            ctx.fail(f"no such command: {shown(cmd_name)}{did_you_mean(cmd_name, self.table)}")
        if cmd_name not in self.commands:
            self.add_command(self.build(cmd_name))
        return self.commands[cmd_name]

    def get_help_option(self, ctx: Any) -> Any:
        from trainbox.cli.options import switched_off

        return switched_off(super().get_help_option(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))


class DataCommands(Commands):
    """The commands of `trainbox data`, in the same way."""

    table = DATA

    def build(self, name: str) -> Any:
        return command(name, getattr(importlib.import_module(f"trainbox.cli.data.{name}"), f"data_{name}"))


def group(name: str, function: Any) -> Any:
    """The group of the commands of `trainbox data`."""
    program = typer.Typer(cls=DataCommands, name=name, add_completion=False, rich_markup_mode=None)
    program.callback(context_settings=CONTEXT)(function)
    return typer.main.get_command(program)


def command(name: str, function: Any) -> Any:
    """The Typer command of a function, without shell completion and without Rich, whose import takes long."""
    from trainbox.cli.options import PanelCommand

    program = typer.Typer(add_completion=False, rich_markup_mode=None)
    program.command(name, cls=PanelCommand, context_settings=CONTEXT)(function)
    return typer.main.get_command(program)


def build() -> Any:
    """The whole application."""
    program = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None, context_settings=CONTEXT)
    program.callback()(trainbox)
    return typer.main.get_command(program)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainbox {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
]


def trainbox(*, version: Version = False, debug: Debug = False) -> None:
    """Train image classifiers with TensorFlow and Keras: the same result wherever it runs."""
