"""Pages as their source: well formed, and sufficient to themselves."""

import base64
import io
import re
from html.parser import HTMLParser

from skimage.io import imread


class Tags(HTMLParser):
    """Counts tags, follows that they close, and keeps every address."""

    EMPTY = ("meta", "link", "img", "line", "circle", "br")

    def __init__(self):
        super().__init__()
        self.open, self.counts, self.addresses = [], {}, []

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def check_page(text):
    """That a page is well formed, loads nothing and runs nothing; how many images and charts it has."""
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "script" not in tags.counts
    assert not re.search(r"url\(|@import|\son\w+=", text)
    assert all(address.startswith("data:") for address in tags.addresses)
    for address in tags.addresses:
        if "base64," in address:
            assert imread(io.BytesIO(base64.b64decode(address.partition("base64,")[2]))).ndim == 3
    return {"images": tags.counts["img"], "charts": tags.counts["svg"]}
