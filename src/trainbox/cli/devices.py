"""`trainbox devices`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainbox.cli.options import Debug, Job, Json, takes

TensorFlow = Annotated[
    bool,
    typer.Option("--tensorflow", help="Load TensorFlow, and set the list that it makes of the GPUs beside this one."),
]


@takes()
def devices(*, tensorflow: TensorFlow = False, json: Json = False, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """List every GPU of this machine, whether this process may use it, and if not, why.

    `index` is CUDA's number for it here, and what `train --devices` takes. A machine without GPUs is told the reason,
    and that is no error. TensorFlow is loaded only with --tensorflow.
    """

    def job() -> None:
        from trainbox.cli.app import tell
        from trainbox.cli.session import report, settle

        settings = settle({**flags, "progress": "plain"}, fields=("progress",))

        from trainbox import jobs

        if json:
            report(lambda _: jobs.list_devices(tensorflow=tensorflow).values, settings, json=True)
        else:
            tell("".join(f"{line}\n" for line in (*settings.notices, *jobs.list_devices(tensorflow=tensorflow).lines)))

    return job
