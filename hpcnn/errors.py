"""One small hierarchy of errors that are the user's to mend.

Each message is one line that names what, where, the value and the remedy; the command prints it without a traceback.
Anything else that is raised is a defect of the suite and keeps its traceback.
"""

from __future__ import annotations


class HpcnnError(Exception):
    """Base class. `exit_status` is what the command ends with.

    `agreed` is true of an error that every rank raised together (all of them know of it), so that rank 0 says it once
    and all end in order; any other error of one rank among several ends the whole job at once.
    """

    exit_status = 1
    agreed = False


class ConfigError(HpcnnError):
    """A flag, a TOML key or a combination of them that cannot be run."""

    exit_status = 2


class NetworkError(HpcnnError):
    """A layer spec or an architecture that does not fit; the message names the layer."""

    exit_status = 2


class DataError(HpcnnError):
    """A CSV that cannot be used; the message names the file and, where there is one, the line and column (from 1)."""


class BackendError(HpcnnError):
    """A backend that is unknown, not installed or unable to do what was asked."""


class NotInstalledError(BackendError):
    """A backend that this environment does not have; `word` is env/with.sh's for the one that does."""

    def __init__(self, message: str, word: str = "") -> None:  # ranks tell each other of it, made from args alone
        super().__init__(message)
        self.word = word


class LaunchError(HpcnnError):
    """The processes that run are not those that were asked for (communicator size, ranks against shards).

    `quiet` is true where another process, which this one shares no communicator with, says it."""

    quiet = False


class CheckpointError(HpcnnError):
    """A checkpoint that cannot be read or does not fit."""


class ResultsError(HpcnnError):
    """A results folder that is missing, damaged or would be overwritten."""


class TrainingError(HpcnnError):
    """A training that cannot go on: a loss that is no number, replicas that drifted apart."""


class ProgramError(HpcnnError):
    """Programs of ranks that do not match each other; below the line stands the schedule table, the place marked."""
