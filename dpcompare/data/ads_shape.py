"""The shape of the synthetic ads log: its columns, and what they say about clicks and conversions.

The marginal distributions follow the Criteo Display Advertising log (Kaggle, 2014): summary figures
of its first 10,000 rows (rounded shares, no row and no value of it), and cardinalities of the order
that facebookresearch/dlrm prints for the whole file. The click model is made up: its strengths are
set so that the best possible AUC is about .81, close to what is known of such logs. So is the
conversion model; its strengths lie on columns with few values, so that it can be learnt from the
few conversions that there are.
"""

from typing import NamedTuple

VERSION = 2  # part of the checksum: raise it when any number here or any draw changes

Points = tuple[tuple[int, float], ...]


class NumericShape(NamedTuple):
    """One integer column.

    Attributes:
        lowest: the smallest value.
        at_most: (value, share of present rows at or below it); the last share is 1.
        missing: the missing group it belongs to, or "".
        slope: log-odds per unit of its transformed value t, around t = 1.
        bend: log-odds per unit of (t - 1)**2.
        absent: log-odds of a missing value, against t = 1.
    """

    lowest: int
    at_most: Points
    missing: str
    slope: float
    bend: float
    absent: float


class CategoryShape(NamedTuple):
    """One categorical column.

    Attributes:
        covered: (r, share of present rows that the r most frequent values cover); the last r is
            the number of possible values, and its share is 1.
        missing: the missing group it belongs to, or "".
        strength: standard deviation of the log-odds of its frequent values.
    """

    covered: Points
    missing: str
    strength: float


# Columns of one group go missing together; the shares are of all rows.
MISSING: dict[str, float] = {
    "I1, I10": 0.448,
    "I3": 0.204,
    "I4, I13": 0.198,
    "I5": 0.049,
    "I6": 0.251,
    "I7, I9, I11": 0.049,
    "I8": 0.001,
    "I12": 0.773,
    "C3, C4, C12, C16, C21, C24": 0.036,
    "C6": 0.133,
    "C19, C20, C25, C26": 0.450,
    "C22": 0.818,
}

# fmt: off
NUMERIC: dict[str, NumericShape] = {
    "I1": NumericShape(
        0, ((0, 0.475), (1, 0.637), (3, 0.784), (10, 0.924), (44, 0.99), (214, 1.0)),
        "I1, I10", 0.33, -0.11, -0.5
    ),
    "I2": NumericShape(
        -2, ((-2, 0.001), (-1, 0.098), (0, 0.277), (1, 0.434), (3, 0.52), (10, 0.612),
        (100, 0.85), (1_000, 0.971), (2_223, 0.99), (18_522, 1.0)), "", 0.28, 0.11, 0.0
    ),
    "I3": NumericShape(
        0, ((0, 0.008), (1, 0.158), (3, 0.335), (10, 0.609), (30, 0.822), (100, 0.954),
        (303, 0.99), (2_831, 0.999), (65_535, 1.0)), "I3", -0.11, 0.11, 0.17
    ),
    "I4": NumericShape(
        0, ((0, 0.071), (1, 0.221), (3, 0.436), (10, 0.754), (30, 0.959), (44, 0.99),
        (280, 1.0)), "I4, I13", 0.17, -0.17, 0.11
    ),
    "I5": NumericShape(
        0, ((0, 0.017), (10, 0.091), (100, 0.195), (1_000, 0.348), (10_000, 0.735),
        (100_000, 0.966), (312_517, 0.99), (1_618_110, 1.0)), "I5", -0.39, -0.22, -0.99
    ),
    "I6": NumericShape(
        0, ((0, 0.063), (3, 0.146), (10, 0.267), (30, 0.438), (100, 0.7), (300, 0.884),
        (1_737, 0.99), (12_167, 1.0)), "I6", -0.33, -0.11, -0.77
    ),
    "I7": NumericShape(
        0, ((0, 0.253), (1, 0.392), (3, 0.546), (10, 0.754), (30, 0.901), (190, 0.99),
        (1_658, 1.0)), "I7, I9, I11", 0.39, -0.17, -0.28
    ),
    "I8": NumericShape(
        0, ((0, 0.118), (1, 0.202), (3, 0.326), (10, 0.578), (30, 0.862), (48, 0.99),
        (682, 1.0)), "I8", 0.11, 0.11, -0.33
    ),
    "I9": NumericShape(
        0, ((0, 0.032), (3, 0.135), (10, 0.258), (30, 0.432), (100, 0.706), (300, 0.897),
        (1_229, 0.99), (7_335, 1.0)), "I7, I9, I11", -0.17, 0.17, -0.11
    ),
    "I10": NumericShape(
        0, ((0, 0.502), (1, 0.934), (2, 0.989), (3, 0.999), (6, 1.0)), "I1, I10",
        0.22, 0.0, -0.22
    ),
    "I11": NumericShape(
        0, ((0, 0.265), (1, 0.627), (3, 0.835), (10, 0.962), (22, 0.99), (79, 1.0)),
        "I7, I9, I11", 0.44, -0.17, -0.22
    ),
    "I12": NumericShape(
        0, ((0, 0.736), (1, 0.884), (3, 0.943), (14, 0.99), (98, 1.0)), "I12",
        0.22, 0.0, -0.11
    ),
    "I13": NumericShape(
        0, ((0, 0.062), (1, 0.204), (3, 0.403), (10, 0.692), (30, 0.92), (74, 0.99),
        (770, 1.0)), "I4, I13", -0.28, 0.22, 0.06
    ),
}

CATEGORIES: dict[str, CategoryShape] = {
    "C1": CategoryShape(
        ((1, 0.5), (2, 0.672), (4, 0.804), (16, 0.941), (64, 0.987), (1_460, 1.0)), "",
        0.23
    ),
    "C2": CategoryShape(
        ((1, 0.123), (4, 0.27), (16, 0.517), (64, 0.794), (256, 0.982), (580, 1.0)), "",
        0.32
    ),
    "C3": CategoryShape(
        ((1, 0.049), (4, 0.129), (16, 0.221), (64, 0.298), (256, 0.398), (4_096, 0.579),
        (10_000_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C4": CategoryShape(
        ((1, 0.076), (4, 0.194), (16, 0.288), (64, 0.389), (256, 0.519), (4_096, 0.766),
        (2_200_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C5": CategoryShape(
        ((1, 0.666), (2, 0.819), (4, 0.919), (16, 0.99), (32, 0.997), (300, 1.0)), "",
        0.33
    ),
    "C6": CategoryShape(
        ((1, 0.53), (2, 0.754), (4, 0.943), (7, 0.999), (24, 1.0)), "C6", 0.33
    ),
    "C7": CategoryShape(
        ((1, 0.011), (4, 0.036), (16, 0.1), (64, 0.233), (256, 0.437), (4_096, 0.942),
        (12_500, 1.0)), "", 0.36
    ),
    "C8": CategoryShape(
        ((1, 0.589), (2, 0.759), (4, 0.877), (16, 0.976), (64, 0.997), (630, 1.0)), "",
        0.23
    ),
    "C9": CategoryShape(
        ((1, 0.887), (2, 0.9995), (3, 1.0)), "", 0.39
    ),
    "C10": CategoryShape(
        ((1, 0.276), (4, 0.303), (16, 0.361), (64, 0.445), (256, 0.587), (4_096, 0.913),
        (93_000, 1.0)), "", 0.36
    ),
    "C11": CategoryShape(
        ((1, 0.02), (4, 0.064), (16, 0.148), (64, 0.31), (256, 0.568), (1_024, 0.871),
        (5_700, 1.0)), "", 0.36
    ),
    "C12": CategoryShape(
        ((1, 0.049), (4, 0.129), (16, 0.227), (64, 0.315), (256, 0.42), (4_096, 0.607),
        (8_400_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C13": CategoryShape(
        ((1, 0.022), (4, 0.07), (16, 0.174), (64, 0.355), (256, 0.624), (1_024, 0.908),
        (3_200, 1.0)), "", 0.36
    ),
    "C14": CategoryShape(
        ((1, 0.363), (2, 0.709), (4, 0.905), (16, 0.997), (27, 1.0)), "", 0.46
    ),
    "C15": CategoryShape(
        ((1, 0.019), (4, 0.056), (16, 0.151), (64, 0.345), (256, 0.621), (1_024, 0.887),
        (15_000, 1.0)), "", 0.36
    ),
    "C16": CategoryShape(
        ((1, 0.049), (4, 0.129), (16, 0.235), (64, 0.341), (256, 0.464), (4_096, 0.68),
        (5_500_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C17": CategoryShape(
        ((1, 0.43), (2, 0.564), (4, 0.767), (9, 0.999), (10, 1.0)), "", 0.52
    ),
    "C18": CategoryShape(
        ((1, 0.051), (4, 0.123), (16, 0.289), (64, 0.553), (256, 0.812), (1_024, 0.974),
        (5_700, 1.0)), "", 0.36
    ),
    "C19": CategoryShape(
        ((1, 0.601), (4, 0.675), (16, 0.755), (64, 0.847), (256, 0.935), (2_200, 1.0)),
        "C19, C20, C25, C26", 0.18
    ),
    "C20": CategoryShape(
        ((1, 0.362), (2, 0.684), (3, 0.9999), (4, 1.0)), "C19, C20, C25, C26", 0.46
    ),
    "C21": CategoryShape(
        ((1, 0.049), (4, 0.129), (16, 0.232), (64, 0.328), (256, 0.441), (4_096, 0.638),
        (7_000_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C22": CategoryShape(
        ((1, 0.526), (2, 0.91), (4, 0.979), (6, 0.999), (18, 1.0)), "C22", 0.33
    ),
    "C23": CategoryShape(
        ((1, 0.452), (2, 0.654), (4, 0.831), (8, 0.978), (12, 0.999), (15, 1.0)), "", 0.39
    ),
    "C24": CategoryShape(
        ((1, 0.078), (4, 0.287), (16, 0.436), (64, 0.558), (256, 0.69), (4_096, 0.913),
        (286_000, 1.0)), "C3, C4, C12, C16, C21, C24", 0.27
    ),
    "C25": CategoryShape(
        ((1, 0.328), (2, 0.527), (4, 0.705), (16, 0.965), (32, 0.998), (105, 1.0)),
        "C19, C20, C25, C26", 0.33
    ),
    "C26": CategoryShape(
        ((1, 0.082), (4, 0.166), (16, 0.314), (64, 0.452), (256, 0.625), (4_096, 0.892),
        (143_000, 1.0)), "C19, C20, C25, C26", 0.27
    ),
}
# fmt: on

# Log-odds of two columns together: strength * a second effect of each of the two values.
PAIRS: tuple[tuple[str, str, float], ...] = (
    ("C14", "C17", 0.15),
    ("C6", "C23", 0.15),
    ("C2", "I11", 0.12),
    ("C20", "I6", 0.12),
)

# A value as rare as this or rarer is drawn with a weaker effect, so that a model of 100,000 rows
# can learn most of what there is to learn: effect ~ (share / FREQUENT) ** RARE_DECAY.
FREQUENT = 5e-3
RARE_DECAY = 0.5

# The log-odds grow by this much over the log. The click rate of the Criteo log rose from .218 in
# its first rows to .265 on its seventh day; this gives the same factor at the default base rate.
DRIFT = 0.40

# What a column adds to the log-odds of a conversion (first table) and to the log of the mean count
# (second table). Numbers: the slope per unit of the transformed value t, around t = 1; a missing
# one counts as t = 0. Categories: the standard deviation over frequent values; rare ones add less,
# those that share a slot nothing.
# fmt: off
CONVERSION_EFFECTS: dict[str, float] = {
    "I1": 0.30, "I2": -0.25, "I3": 0.20, "I5": -0.35, "I6": 0.35, "I8": 0.25, "I11": -0.30,
    "C2": 0.30, "C5": 0.40, "C6": 0.40, "C8": 0.40, "C14": 0.40, "C17": 0.40, "C20": 0.40,
    "C23": 0.40, "C25": 0.30,
}
COUNT_EFFECTS: dict[str, float] = {
    "I2": 0.40, "I4": 0.40, "I5": 0.35, "I7": 0.35, "I9": -0.35, "I11": 0.30, "I13": -0.35,
    "C1": 0.30, "C6": 0.45, "C9": 0.50, "C14": 0.35, "C17": 0.35, "C19": 0.35, "C22": 0.40,
    "C23": 0.40,
}
# fmt: on

# As PAIRS, with the same second effects; only columns of PAIRS have any.
CONVERSION_PAIRS: tuple[tuple[str, str, float], ...] = (("C6", "C14", 0.2), ("C17", "I11", 0.2))
COUNT_PAIRS: tuple[tuple[str, str, float], ...] = (("C20", "C23", 0.2), ("C2", "I6", 0.2))

# What likely clicks tell about conversions, and likely conversions about their number: this share
# of the one's log-odds, without drift and intercept, is part of the other's.
CONVERSION_FROM_CLICK = 0.3
COUNT_FROM_CONVERSION = 0.4

# Growth over the log, as DRIFT: of the log-odds of a conversion and of the log of the mean count.
CONVERSION_DRIFT = 0.3

# Counts are Poisson with mean G m: m is known, G is gamma distributed with mean 1 and this shape.
COUNT_INTERCEPT = -2.06  # so that the mean count is about .19
COUNT_BOUNDS = (-6.0, 2.0)  # of log m
GAMMA_SHAPE = 0.5
