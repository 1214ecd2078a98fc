"""What a row of weights has missed since it was last touched: one joint Gaussian, exactly.

Momentum mu with learning rates eta_t makes, of the (noisy) mean gradient g_t + n_t,

    v_{t+1} = mu v_t + g_t + n_t,    theta_{t+1} = theta_t - eta_t v_{t+1}.

A row that no example of a step touches has g_t = 0 there, so as long as nobody looks at it, it need
not be computed: the recursion is linear, hence what becomes of the row over the steps s to t - 1
is a linear map of what it was, plus a Gaussian pair whose covariance depends on s and t alone.
With p = mu v_s + g_s, the velocity that waits at step s, and standard normals z1, z2,

    mu v_t  = decay p + size (mu l11 z1),
    theta_t = theta_s - drift p + size (l21 z1 + l22 z2),

where size is the standard deviation of every n_t and l the Cholesky factor of the covariance
[[vv, vt], [vt, tt]] of (velocity, weight) at size 1. Going from t to t + 1, for every s <= t,

    drift <- drift + eta_t decay,  decay <- mu decay,
    vv' = mu^2 vv + 1,  vt' = mu vt - eta_t vv',  tt' = tt - 2 eta_t mu vt + eta_t^2 vv'.

All terms of each sum have one sign (vt is never positive), so float32 loses nothing, where
differences of prefix sums would lose most of the variance at the end of a long schedule. Plain SGD
is mu = 0: only tt = sum of eta^2 matters. With size 0 the same map is the sparse momentum
update of ordinary training.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

WINDOW = 8192
"""The most steps a row may miss: the cost of keeping track grows with it at every step."""


class Catchup(NamedTuple):
    """How rows get what they missed; every array has one entry per row.

    Attributes:
        decay: what is left of the waiting velocity.
        drift: how far a waiting velocity of 1 has moved the weight, downwards.
        velocity: mu l11.
        weight: (l21, l22).
    """

    decay: jax.Array
    drift: jax.Array
    velocity: jax.Array
    weight: tuple[jax.Array, jax.Array]


class MissedNoise(NamedTuple):
    """The map and the covariance for every step s at which rows may have been touched last.

    Attributes:
        decay: (WINDOW + 1,), and so are the others.
        drift: see the module.
        velocity_variance: vv.
        covariance: vt.
        weight_variance: tt.
    """

    decay: jax.Array
    drift: jax.Array
    velocity_variance: jax.Array
    covariance: jax.Array
    weight_variance: jax.Array

    @classmethod
    def nothing(cls) -> "MissedNoise":
        """At step 0 of a window, where nobody has missed anything."""
        # One array each: a shared one could not be donated.
        return cls(jnp.ones(WINDOW + 1), *(jnp.zeros(WINDOW + 1) for _ in range(4)))

    def after_step(self, step: jax.Array, rate: jax.Array, momentum: jax.Array) -> "MissedNoise":
        """After one more step of the window.

        Args:
            step: its number in the window, from 0.
            rate: its learning rate.
            momentum: mu.
        """
        vv = momentum**2 * self.velocity_variance + 1.0
        new = MissedNoise(
            momentum * self.decay,
            self.drift + rate * self.decay,
            vv,
            momentum * self.covariance - rate * vv,
            self.weight_variance - 2.0 * rate * momentum * self.covariance + rate**2 * vv,
        )
        began = jnp.arange(WINDOW + 1) <= step
        return MissedNoise(*(jnp.where(began, a, b) for a, b in zip(new, self, strict=True)))

    def catchup(self, last: jax.Array, momentum: jax.Array) -> Catchup:
        """For rows that were touched last at the steps `last` of the window."""
        values = jax.tree.map(lambda of_step: of_step.at[last].get(mode="promise_in_bounds"), self)
        vv, vt, tt = values.velocity_variance, values.covariance, values.weight_variance
        l11 = jnp.sqrt(vv)
        l21 = jnp.where(vv > 0, vt / jnp.maximum(l11, 1e-20), 0.0)
        l22 = jnp.sqrt(jnp.maximum(tt - l21**2, 0.0))
        return Catchup(values.decay, values.drift, momentum * l11, (l21, l22))
