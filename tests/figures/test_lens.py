import numpy as np
import pytest

from specviz.figures import lens as figure
from specviz.figures.theme import DARK, Look, table_of
from tests.analysis.test_lens import HAND


def test_the_cells_show_what_each_exit_would_write():
    fig = figure.lens(HAND, words=True)
    grid = fig.data[0]
    assert list(grid.x) == [0, 1, 2, 3] and list(grid.y) == [1, 2, 3]
    assert np.allclose(grid.z, HAND.probabilities) and (grid.zmin, grid.zmax) == (0, 1)
    assert list(grid.text[0]) == ["<b>one</b>", "<b>two</b>", "three", "<b>four</b>"]  # bold: as the whole model
    assert grid.text[1][3] == "&lt;b&gt;" and grid.text[2][2] == "<b>·⏎</b>"  # seen, and not obeyed
    assert list(fig.layout.xaxis.ticktext) == ["a", "·b", "∅", "京"]
    assert "the whole model: <" not in grid.hovertext[1][3] and "four" in grid.hovertext[1][3]


def test_the_stepped_line_stands_below_the_layer_where_the_answer_is_settled():
    fig = figure.lens(HAND)
    line = fig.data[3]
    assert sorted(zip(fig.data[1].x, fig.data[1].y, strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 1), (1, 3), (2, 3), (3, 1), (3, 3)
    ]  # fmt: skip
    assert list(line.x) == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert list(line.y) == [0.5, 2.5, 2.5, 2.5, 2.5]
    assert "layer 3 / 3" in fig.layout.meta["learn"]


def test_the_table_holds_the_same_data():
    table = table_of(figure.lens(HAND))
    assert list(table.columns) == ["layer", "position", "after", "says", "probability", "final"]
    assert len(table) == 12 and table["says"][5] == " \n" and not table["final"][5]


@pytest.mark.parametrize("look", [Look(), DARK, Look(lang="ja")])
def test_long_texts_show_a_part_and_the_exit_in_use_is_drawn(look):
    from specviz.analysis.lens import LensTable

    wide = LensTable("w", tuple(range(100)), tuple("x" * 100), np.ones((4, 100), np.int32), np.ones((4, 100), np.float32),
                     {1: "y"}, prompt=90)  # fmt: skip
    fig = figure.lens(wide, chosen=2, look=look)
    assert list(fig.data[0].x) == list(range(76, 100)) and fig.data[0].text is None
    assert any(shape.y0 == 2.5 for shape in fig.layout.shapes) and any(shape.x0 == 89.5 for shape in fig.layout.shapes)
    assert fig.layout.height == 620
    assert list(figure.lens(wide, start=10).data[0].x) == list(range(10, 34))
    assert list(figure.lens(wide, words=True).data[0].x) == list(range(88, 100))
    with pytest.raises(ValueError, match="positions 0..99"):
        figure.lens(wide, start=100)


def test_no_table_yet_says_so():
    assert table_of(figure.lens(None)).empty
