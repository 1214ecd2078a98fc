"""dpcompare: what each way of being private costs an ads model."""

__version__ = "0.1.0"
