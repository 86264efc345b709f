"""The published formulas, checked against numbers worked out by hand and against each other."""

from __future__ import annotations

import math

import pytest

from specviz.training.recipe import Recipe, depth_scale, exit_weight, time_scale


def test_layer_dropout_grows_from_zero_to_the_full_rate_with_depth_and_time():
    recipe = Recipe(dropout=0.1)
    assert recipe.dropout_rate(0, 12, 99, 100) == 0
    assert recipe.dropout_rate(11, 12, 0, 100) == 0
    assert recipe.dropout_rate(11, 12, 99, 100) == pytest.approx(0.1)
    # D(5) = 2^(5/11) - 1, S(49) = 2^(49/99) - 1
    assert recipe.dropout_rate(5, 12, 49, 100) == pytest.approx(0.1 * (2 ** (5 / 11) - 1) * (2 ** (49 / 99) - 1))
    assert depth_scale(0, 1) == 0 and time_scale(0, 1) == 1


def test_exit_weights_are_the_published_sums():
    assert [exit_weight(layer, 6, 0.5) for layer in range(6)] == [
        0.5 * sum(range(layer + 1)) if layer < 5 else 5 + 0.5 * sum(range(5)) for layer in range(6)
    ]


@pytest.mark.parametrize("curriculum", ["rotational", "gradual", "all"])
def test_weights_sum_to_one_and_always_contain_the_full_model(curriculum):
    recipe = Recipe(exits=True, curriculum=curriculum, rotation=3)
    for step in range(40):
        weights = recipe.exit_weights(8, step, 40)
        assert sum(weights.values()) == pytest.approx(1)
        assert 7 in weights and list(weights) == sorted(weights)


def test_published_weights_are_the_default_and_the_power_flattens_them():
    published = Recipe(exits=True, curriculum="all", exit_scale=0.3).exit_weights(5, 0, 10)
    raw = {layer: exit_weight(layer, 5, 0.3) for layer in range(1, 5)}
    assert published == pytest.approx({layer: value / sum(raw.values()) for layer, value in raw.items()})
    flat = Recipe(exits=True, curriculum="all", exit_scale=0.3, exit_power=0.5).exit_weights(5, 0, 10)
    roots = {layer: math.sqrt(value) for layer, value in raw.items()}
    assert flat == pytest.approx({layer: value / sum(roots.values()) for layer, value in roots.items()})


def test_rotation_visits_every_exit_once_in_turn():
    recipe = Recipe(exits=True, rotation=4)
    visited = [layer for step in range(4) for layer in recipe.enabled_exits(12, step, 100)[:-1]]
    # exit 0 has weight 0, exit 11 is the full model
    assert sorted(visited) == list(range(1, 11))


def test_gradual_curriculum_opens_one_exit_every_half_share_of_the_depth():
    recipe = Recipe(exits=True, curriculum="gradual")
    layers, steps = 6, 120  # one every 10 steps
    assert recipe.enabled_exits(layers, 9, steps) == (5,)
    assert recipe.enabled_exits(layers, 10, steps) == (4, 5)
    assert recipe.enabled_exits(layers, 40, steps) == (1, 2, 3, 4, 5)


def test_plain_training_has_one_exit_and_no_dropout():
    recipe = Recipe()
    assert recipe.exit_weights(12, 5, 10) == {11: 1.0}
    assert recipe.dropout_rate(11, 12, 9, 10) == 0
