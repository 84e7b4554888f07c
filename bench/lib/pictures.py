"""Distributions as a picture: SVG, a panel for each quantity, a curve for each case."""

from html import escape

# Of one case after the other; they differ in lightness too (Okabe and Ito).
COLOURS = ("#000000", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 260, 200, 44, 20, 40


def distributions(panels):
    """The share of samples below each value. `panels` has, by title, samples by case."""
    cases = list(dict.fromkeys(case for panel in panels.values() for case in panel))
    colour = {case: COLOURS[at % len(COLOURS)] for at, case in enumerate(cases)}
    legend = HEIGHT + TOP + BOTTOM + 8
    width, height = len(panels) * (WIDTH + LEFT) + 16, legend + 18 * len(cases)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for at, (title, panel) in enumerate(panels.items()):
        parts += _panel(at * (WIDTH + LEFT) + LEFT, title, panel, colour)
    for at, case in enumerate(cases):
        y = legend + 18 * at
        parts.append(f'<path d="M{LEFT} {y}h24" stroke="{colour[case]}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 30}" y="{y + 4}">{escape(case)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left, title, panel, colour):
    most = max(max(samples) for samples in panel.values()) * 1.05
    x = lambda value: left + WIDTH * value / most
    y = lambda share: TOP + HEIGHT * (1 - share)
    frame = f'x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"'
    yield f'<rect {frame} fill="none" stroke="#888"/>'
    for share in (0, 0.25, 0.5, 0.75, 1):
        yield f'<text x="{left - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:g}</text>'
    for part in (0, 0.5, 1):
        place = f'x="{x(part * most):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle"'
        value = part * most
        told = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        yield f"<text {place}>{told}</text>"
    middle = f'x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle"'
    yield f"<text {middle}>{escape(title)}</text>"
    for case, samples in panel.items():
        ordered = sorted(samples)
        steps = "".join(
            f"H{x(value):.1f}V{y((rank + 1) / len(ordered)):.1f}"
            for rank, value in enumerate(ordered)
        )
        path = f'd="M{left} {y(0):.1f}{steps}" fill="none" stroke="{colour[case]}"'
        yield f'<path {path} stroke-width="1.5"/>'
