"""Objects as a notebook shows them."""

from pdenet_cli.reprs import html_table


def test_a_table_shows_texts_as_they_are() -> None:
    shown = html_table("a < b", {"bands": "4 & 5", "<script>": "x"})
    assert shown.count("<tr>") == 2
    assert "a &lt; b" in shown
    assert "4 &amp; 5" in shown
    assert "<script>" not in shown
