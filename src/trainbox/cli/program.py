"""The Typer application: which commands there are. It turns words into a job; `trainbox.cli.app` does the job."""

from __future__ import annotations

from typing import Annotated

import typer

from trainbox import __version__
from trainbox.cli.config import config
from trainbox.cli.evaluate import evaluate
from trainbox.cli.export import export
from trainbox.cli.options import Debug, PanelCommand
from trainbox.cli.train import train

# Wide terminals show one line an option; without one, help is as wide as a file is kept.
CONTEXT = {"max_content_width": 120, "help_option_names": ["--help", "-h"]}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainbox {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
]


def build() -> typer.Typer:
    """The application, without shell completion and without Rich, whose import takes most of a second."""
    program = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=CONTEXT)
    program.callback()(trainbox)
    for command in (train, evaluate, export, config):
        program.command(cls=PanelCommand, context_settings=CONTEXT)(command)
    return program


def trainbox(*, version: Version = False, debug: Debug = False) -> None:
    """Train image classifiers with TensorFlow and Keras: the same result wherever it runs."""
