"""Whether all texts of a figure can be read: none leaves the page or lies on another."""

from matplotlib.figure import Figure
from matplotlib.text import Text

from dpcompare.figures.style import figure_style


def drawn_texts(figure: Figure) -> list[Text]:
    """All texts that reach the page: ticks beyond the limits have labels that do not."""
    unseen: set[Text] = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [t for t in found if t.get_visible() and t.get_text().strip() and t not in unseen]


def cut_or_overlapping(figure: Figure) -> list[str]:
    """Texts that leave the page or lie on each other."""
    with figure_style():
        figure.canvas.draw()
    page = figure.bbox
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in drawn_texts(figure)]
    bad = [
        f"cut: {text}"
        for text, box in boxes
        if box.x0 < 0 or box.y0 < 0 or box.x1 > page.x1 or box.y1 > page.y1
    ]
    for index, (text, box) in enumerate(boxes):
        for other, place in boxes[index + 1 :]:
            across = min(box.x1, place.x1) - max(box.x0, place.x0)
            along = min(box.y1, place.y1) - max(box.y0, place.y0)
            if across > 1 and along > 1:
                bad.append(f"overlap: {text} / {other}")
    return bad
