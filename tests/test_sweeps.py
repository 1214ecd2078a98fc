import pytest

from dpcompare.sweeps import split_label, swept_label


@pytest.mark.parametrize(
    ("label", "values", "swept"),
    [
        ("dp-sgd", {"clip_norm": 10.0}, "dp-sgd (clip_norm=10)"),
        ("dp-sgd", {"clip_norm": 0.1}, "dp-sgd (clip_norm=0.1)"),
        (
            "dp-sgd (pld)",
            {"training.batch_size": 1048576, "training.epochs": 2.5},
            "dp-sgd (pld) (batch_size=1048576 epochs=2.5)",
        ),
    ],
)
def test_a_label_names_the_swept_values_and_gives_them_back(label, values, swept):
    assert swept_label(label, values) == swept
    curve, texts = split_label(swept)
    assert curve == label
    assert [float(text) for text in texts.values()] == list(values.values())


@pytest.mark.parametrize("label", ["dp-sgd", "rr (forward)", "laplace (25000 rows)", "(a=1)"])
def test_a_label_without_swept_values_is_a_curve_of_its_own(label):
    assert split_label(label) == (label, {})


def test_keys_with_digits_and_texts_are_given_back():
    swept = swept_label("adam", {"beta2": 0.9, "shape": "laplace"})
    assert split_label(swept) == ("adam", {"beta2": "0.9", "shape": "laplace"})
