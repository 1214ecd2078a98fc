"""Two results folders side by side: which settings differ, and what that changes."""

from dpcompare.comparison.metric import compare
from dpcompare.comparison.settings import Difference, differing_settings
from dpcompare.comparison.text import WIDTH, comparison_text

__all__ = ["WIDTH", "Difference", "compare", "comparison_text", "differing_settings"]
