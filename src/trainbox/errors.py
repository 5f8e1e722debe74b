"""What a user can meet, one class for each exit code.

A message is one line: what failed, the value received, what to do next. Logic raises; only `trainbox.cli.app` prints.
"""


class TrainboxError(Exception):
    """Base of every error that is told to the user in one line; `exit_code` is what the process ends with."""

    exit_code = 1


class RunFailedError(TrainboxError):
    """The run itself failed, for a reason that is neither its words, its devices nor its data."""

    exit_code = 1


class UsageError(TrainboxError):
    """Words or configuration that cannot be followed."""

    exit_code = 2


class DevicesError(TrainboxError):
    """Devices that were asked for, or that the machine has, cannot be used."""

    exit_code = 3


class DataError(TrainboxError):
    """A data set that is unknown, not prepared, damaged or not of a usable kind."""

    exit_code = 4


class DivergedError(TrainboxError):
    """A loss, gradient or weight is not finite."""

    exit_code = 5


class InterruptedRunError(TrainboxError):
    """A signal asked the run to stop; everything worth saving has been saved."""

    def __init__(self, message: str, *, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum
