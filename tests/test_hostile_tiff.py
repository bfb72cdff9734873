"""TIFFs made to do harm, cut, damaged or full of nonsense: each ends in one line and takes no memory."""

import struct
import tracemalloc
import zlib
from contextlib import suppress

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import Window, create_cube, open_cube
from pdenet_cli.errors import FormatError
from tests.tiffs import PIXELS, gdal_file

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def tags_of(width=10, height=10, bits=8, **more):
    """The tags of a small grey picture, code: (type, values); type 3 SHORT, 4 LONG, 2 text, 12 double."""
    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits]), 259: (3, [1]), 262: (3, [1])}
    tags |= {273: (4, [512]), 277: (3, [1]), 278: (4, [height]), 279: (4, [width * height * bits // 8])}
    return tags | {int(code[1:]): value for code, value in more.items()}


def tiff_bytes(tags, data=b"\5" * 4096, next_ifd=0, first=8, magic=b"II*\0"):
    """A classic TIFF by hand: header, directory at 8, long values from 256 on, pixels from 512 on."""
    entries, values = b"", b""
    for code, (kind, numbers) in sorted(tags.items()):
        letter = {2: "B", 3: "H", 4: "I", 7: "B", 12: "d"}[kind]
        raw = struct.pack(f"<{len(numbers)}{letter}", *numbers)
        cell = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack("<I", 4096 + len(values))
        values += b"" if len(raw) <= 4 else raw
        entries += struct.pack("<HHI", code, kind, len(numbers)) + cell
    head = magic + struct.pack("<I", first) + struct.pack("<H", len(tags)) + entries + struct.pack("<I", next_ifd)
    return (head.ljust(512, b"\0") + data).ljust(4096, b"\0")[:4096] + values


def raw_tag(code, kind, count, offset):
    """A whole picture whose one more tag is written as told, be it true or not."""
    whole = tiff_bytes(tags_of())
    entries = 10
    place = 10 + 12 * (entries - 1)
    entry = struct.pack("<HHII", code, kind, count, offset)
    patched = whole[:8] + struct.pack("<H", entries) + whole[10:place] + entry + bytes(4)
    return patched + whole[len(patched) :]


def a_whole_tiff(tmp_path, **options):
    return gdal_file(tmp_path / "whole.tif", np.tile(PIXELS, (1, 4, 4)).astype("u2"), **options).read_bytes()


def circle_of(pages):
    """A chain of empty directories whose last points to its first."""
    out = b"II*\0" + struct.pack("<I", 8)
    for page in range(pages):
        following = 8 + 18 * (page + 1) if page < pages - 1 else 8
        out += struct.pack("<HHHII", 1, 256, 4, 1, 10) + struct.pack("<I", following)
    return out


def big_tags(count_of_tags, first=16):
    return b"II+\0" + struct.pack("<HHQ", 8, 0, first) + struct.pack("<Q", count_of_tags) + bytes(64)


HUGE = 2**31 - 1
HOSTILE = {
    "text": b"P5 this is not a TIFF\n" * 9,
    "four bytes": b"II*\0",
    "no picture": b"II*\0" + bytes(4),
    "first page behind the end": b"II*\0" + struct.pack("<I", 10**9),
    "half an entry": tiff_bytes(tags_of())[:37],
    "no next page": tiff_bytes(tags_of())[:118],
    "points at itself": tiff_bytes(tags_of(), next_ifd=8),
    "circle of two": circle_of(2),
    "circle of 300": circle_of(300),
    "20 thousand pages": circle_of(20_000)[:-4] + bytes(4),
    "a stack of terabytes": tiff_bytes(tags_of(_270=(2, list(b'{"shape": [99999999999, 10, 10]}\0')))),
    "next page behind the end": tiff_bytes(tags_of(), next_ifd=10**8),
    "pixels behind the end": tiff_bytes(tags_of(_273=(4, [10**9]))),
    "pixels past the end": tiff_bytes(tags_of(width=500, height=500)),
    "strip smaller than it says": tiff_bytes(tags_of(_279=(4, [10]))),
    "eight terabytes": tiff_bytes(tags_of(2**21, 2**20, 32, _279=(4, [100]))),
    "eight terabytes deflated": tiff_bytes(tags_of(2**21, 2**20, 32, _259=(3, [8]), _279=(4, [100]))),
    "eight terabytes left out": tiff_bytes(tags_of(2**21, 2**20, 32, _273=(4, [0]), _279=(4, [0]))),
    "eight terabytes of strips": tiff_bytes(tags_of(2**21, 2**20, 32, _278=(4, [1]), _279=(4, [100]))),
    "widest and highest": tiff_bytes(tags_of(2**32 - 1, 2**32 - 1, _279=(4, [100]))),
    "a giant tile": tiff_bytes(
        tags_of(_259=(3, [8]), _322=(4, [HUGE]), _323=(4, [HUGE]), _324=(4, [512]), _325=(4, [100]))
    ),
    "tiles of no size": tiff_bytes(tags_of(_322=(4, [16]), _323=(4, [0]), _324=(4, [512]), _325=(4, [100]))),
    "strips of no rows": tiff_bytes(tags_of(_278=(4, [0]))),
    "too few strips": tiff_bytes(tags_of(_278=(4, [1]), _259=(3, [5]))),
    "no offsets": tiff_bytes({code: tag for code, tag in tags_of().items() if code != 273}),
    "no width": tiff_bytes(tags_of(_256=(4, [0]))),
    "no bands": tiff_bytes(tags_of(_277=(3, [0]))),
    "65535 bands in one strip": tiff_bytes(tags_of(_277=(3, [65535]), _258=(3, [8] * 3))),
    "neither planes nor pixels": tiff_bytes(tags_of(_277=(3, [3]), _284=(3, [77]), _279=(4, [300]))),
    "a width in words": tiff_bytes(tags_of(_256=(2, list(b"ten\0")))),
    "many widths": tiff_bytes(tags_of(_256=(4, [10, 10, 10]))),
    "a number of 13 kinds": tiff_bytes(tags_of(_339=(3, [13]))),
    "numbers of 77 bits": tiff_bytes(tags_of(bits=77)),
    "WebP": tiff_bytes(tags_of(_259=(3, [50001]))),
    "an unknown compression": tiff_bytes(tags_of(_259=(3, [31337]))),
    "a volume": tiff_bytes(tags_of(_32997=(4, [9]))),
    "a tag behind the end": raw_tag(42112, 2, 1000, 10**6),
    "a tag of 30 GB": raw_tag(42112, 12, 2**32 - 1, 200),
    "70 thousand tags": b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(900_000),
    "a trillion tags": big_tags(10**12),
    "bigtiff first page at the end of time": big_tags(1, first=2**64 - 1),
}


def read_all(path):
    """Open and read; what a hostile file may cost is measured on the way."""
    tracemalloc.start()
    try:
        with open_cube(path) as cube:
            cube.read(Window(0, 0, min(cube.meta.rows, 8), min(cube.meta.columns, 8)))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50e6


def assert_refused(path):
    with pytest.raises(FormatError) as caught:
        read_all(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_line_and_takes_no_memory(tmp_path, name, capsys):
    path = tmp_path / "bad.tif"
    path.write_bytes(HOSTILE[name])
    assert_refused(path)
    assert capsys.readouterr() == ("", "")


def test_the_hand_made_picture_itself_is_good(tmp_path):
    (tmp_path / "good.tif").write_bytes(tiff_bytes(tags_of()))
    assert (open_cube(tmp_path / "good.tif").read() == 5).all()


@pytest.mark.parametrize("codec", [{}, dict(compress="deflate"), dict(compress="lzw", tiled=True)], ids=str)
def test_a_file_cut_anywhere_is_refused(tmp_path, codec):
    whole = a_whole_tiff(tmp_path, **codec)
    last = gdal_last_byte(tmp_path / "whole.tif")
    for cut in sorted({1, 4, 7, 8, 9, 40, 100, 300, len(whole) // 3, len(whole) // 2, last - 1}):
        path = tmp_path / "cut.tif"
        path.write_bytes(whole[:cut])
        assert_refused(path)


def gdal_last_byte(path):
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        return max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=True)))


@pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd", "lzma", "lerc", "jpeg", "packbits"])
def test_damaged_pixels_are_an_error_and_no_crash(tmp_path, compress):
    options = dict(compress=compress, interleave="pixel", tiled=True, blockxsize=32, blockysize=32)
    path = gdal_file(tmp_path / "a.tif", np.tile(PIXELS[:3], (1, 2, 2)).astype("u1"), **options)
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].dataoffsets[0]
    whole = bytearray(path.read_bytes())
    whole[place : place + 60] = bytes(range(100, 160))
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="strip or tile 0 cannot be decoded"):
        read_all(path)


def test_a_strip_that_unpacks_to_far_more_than_it_should_is_refused(tmp_path):
    bomb = zlib.compress(bytes(300_000_000))
    path = tmp_path / "a.tif"
    tags = tags_of(_259=(3, [8]), _273=(4, [5000]), _279=(4, [len(bomb)]))
    path.write_bytes(tiff_bytes(tags).ljust(5000, b"\0") + bomb)
    assert_refused(path)


def test_a_jpeg_that_says_it_is_giant_is_refused(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1, :32, :32].astype("u1"), compress="jpeg")
    whole = bytearray(path.read_bytes())
    frames = [i for i in range(len(whole) - 9) if whole[i : i + 2] in (b"\xff\xc0", b"\xff\xc1")]
    for frame in frames:
        whole[frame + 5 : frame + 9] = struct.pack(">HH", 65500, 65500)
    path.write_bytes(whole)
    assert_refused(path)


@pytest.mark.parametrize("wrapped", [None, "deflate", "zstd"])
def test_a_lerc_picture_that_says_it_is_giant_is_refused(tmp_path, wrapped):
    blob = imagecodecs.lerc_encode(np.zeros((8000, 8000), "u1"), compression=wrapped)
    path = tmp_path / "a.tif"
    tags = tags_of(_259=(3, [34887]), _273=(4, [5000]), _279=(4, [len(blob)]))
    path.write_bytes(tiff_bytes(tags).ljust(5000, b"\0") + blob)
    assert_refused(path)


def test_xml_bombs_and_broken_xml_leave_a_note(tmp_path):
    entities = '<!DOCTYPE a [<!ENTITY b "xxxx"><!ENTITY c "&b;&b;&b;">]>'
    bomb = f'{entities}<GDALMetadata><Item name="a">&c;</Item></GDALMetadata>'
    for text in (bomb, "<GDALMetadata><Item", "\x00\x01"):
        (tmp_path / "a.tif").write_bytes(tiff_bytes(tags_of(_42112=(2, list(text.encode() + b"\0")))))
        with open_cube(tmp_path / "a.tif") as cube:
            assert (cube.read() == 5).all()
            assert cube.meta.extra == {}
    assert "GDAL_METADATA is ignored" in cube.meta.notes[0]


@pytest.mark.parametrize(
    "tags",
    [
        dict(_33550=(12, [float("nan"), 1, 0]), _33922=(12, [0] * 6)),
        dict(_33550=(12, [0, 0, 0]), _33922=(12, [0] * 6)),
        dict(_33550=(2, list(b"abc\0")), _33922=(12, [0] * 5)),
        dict(_34264=(12, [1] * 7)),
        dict(_34735=(3, [1, 1, 0, 900, 1024, 0, 1, 1, 3072, 34736, 1, 60000, 1026, 34737, 60000, 60000])),
        dict(_34735=(3, [1, 1])),
        dict(_34735=(12, [1.5] * 9)),
        dict(_34735=(12, [1e30] * 9), _34737=(7, [255] * 9), _34736=(2, list(b"text\0"))),
        dict(_34735=(3, [1, 1, 0, 2, 3074, 34737, 4, 0, 3075, 34737, 4, 0]), _34737=(2, list(b"abcd\0"))),
        dict(_34735=(3, [1, 1, 0, 3, 3072, 0, 1, 32767, 3075, 0, 1, 1, 3076, 0, 1, 9001])),
        dict(_50844=(12, [1] * 5)),
        dict(_42113=(2, list(b"nonsense\0"))),
        dict(_42113=(12, [1.0, 2.0])),
    ],
    ids=str,
)
def test_nonsense_in_the_georeference_costs_only_the_georeference(tmp_path, tags):
    (tmp_path / "a.tif").write_bytes(tiff_bytes(tags_of(**tags)))
    with open_cube(tmp_path / "a.tif") as cube:
        assert (cube.read() == 5).all()
        assert cube.meta.georeference.transform is None
        assert cube.meta.nodata is None
        with create_cube(tmp_path / "b.tif", cube.meta.upscaled(2)):
            pass


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1, max_size=6))
def test_any_bytes_changed_end_in_a_cube_or_in_one_line(tmp_path, changes):
    whole = bytearray(tiff_bytes(tags_of(_259=(3, [1]), _339=(3, [1]), _33550=(12, [1, 1, 0]), _284=(3, [1]))))
    for place, value in changes:
        whole[place] = value
    path = tmp_path / "a.tif"
    path.write_bytes(whole)
    with suppress(FormatError):
        read_all(path)
