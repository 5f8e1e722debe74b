"""The corridor: the only place that joins the rooms. One file a job; each imports what it needs when it runs."""

from trainbox.jobs.comparing import compare
from trainbox.jobs.evaluation import evaluate
from trainbox.jobs.exporting import export
from trainbox.jobs.reproducing import reproduce
from trainbox.jobs.training import train

__all__ = ["compare", "evaluate", "export", "reproduce", "train"]
