"""What the commands of `trainbox data` share: their words, and their lines."""

from __future__ import annotations

from typing import Annotated

import typer

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets, such as digits or emnist/balanced.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set, such as mnist, emnist/balanced or mnist:3.0.1.")]
WORDS = ("data_dir",)
# What of a set is read.
VIEW = ("inputs", "label", "resize", "pad_to")
