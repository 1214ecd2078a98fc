"""Audits: a lower bound on epsilon by attack, held against the epsilon that is claimed.

An audit can refute a claim; it cannot prove one. What is attacked is what runs: the mechanism's
own sampling, clipping, noise and labels, through the trainer that every study uses.
See `docs/audit.md`.
"""
