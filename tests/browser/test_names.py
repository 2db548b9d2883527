"""Names that look alike are not the same, and ticks of a chart are told apart."""

from __future__ import annotations

from playwright.sync_api import expect

from .conftest import Visitor
from .site import site

LATIN, MIXED = "Bank", "B\u0430nk"
RUSSIAN = "\u0411\u0430\u043d\u043a North"


def test_letters_of_another_script_within_a_word_are_shown_by_number(visit: Visitor) -> None:
    with site() as made:
        for name in (LATIN, MIXED, RUSSIAN):
            made.feed(name, 10)
        page = visit(made.address).page
        expect(page.get_by_role("link", name=LATIN, exact=True)).to_be_visible()
        expect(page.get_by_role("link", name=RUSSIAN, exact=True)).to_be_visible()
        page.get_by_role("searchbox").fill(MIXED)
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="B⟨U+0430⟩nk", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("B⟨U+0430⟩nk")


def test_no_two_ticks_say_the_same_time(visit: Visitor) -> None:
    """Two points within a second: ticks are closer than a second, and the words tell seconds."""
    with site() as made:
        made.feed("bank", 60)
        page = visit(made.address + "#/tenant/bank").page
        words = page.evaluate(
            """async () => {
                const drawn = [];
                const fill = CanvasRenderingContext2D.prototype.fillText;
                CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                    if (/^\\d\\d:\\d\\d/.test(text)) drawn.push(`${text} at ${Math.round(x)}`);
                    fill.call(this, text, x, y);
                };
                const { TimeChart } = await import("/assets/charts.js");
                const chart = new TimeChart("small");
                document.body.append(chart.box);
                const at = 1700000000000;
                const lines = [{ key: "a", name: "a", values: [0.1, 0.2, 0.3], colour: "--in-force" }];
                chart.set("a", [at, at + 400, at + 900], lines, 0.5);
                await new Promise((done) => setTimeout(done, 300));
                return [...new Set(drawn)].map((one) => one.split(" ")[0]); // it may be drawn twice
            }"""
        )
        assert words
        assert len(words) == len(set(words))
