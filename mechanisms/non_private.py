"""Training without privacy: the reference that every curve is read against."""

from dpcompare.mechanism import Mechanism


class NonPrivate(Mechanism):
    """The base class itself: true labels, plain mean gradients, nothing guaranteed."""
