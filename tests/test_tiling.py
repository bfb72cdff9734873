"""Cutting scenes: every pixel and band once, margins inside the scene, and no piece larger than allowed."""

from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdenet_cli import Window
from pdenet_cli.errors import ResourceError
from pdenet_cli.sampling.tiling import Plan, Tile, plan_tiles

plans = st.builds(
    lambda rows, columns, bands, skipped, halo, band_halo, tile, depth, around: Plan(
        Window(*around[:2], rows, columns),
        4,
        tuple(b for b in range(bands) if b not in skipped) or (0,),
        halo,
        band_halo,
        tile,
        depth,
        surroundings=Window(0, 0, rows + sum(around[::2]), columns + sum(around[1::2])) if any(around) else None,
    ),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sets(st.integers(0, 19)),
    st.integers(0, 9),
    st.integers(0, 5),
    st.integers(1, 70),
    st.integers(1, 21),
    st.tuples(*4 * [st.integers(0, 12)]),  # rows above, columns to the left, rows below, columns to the right
)


largest = attrgetter("largest")  # a memory of one byte per voxel


@given(plans)
@settings(deadline=None)
def test_tiles_cover_the_scene_once_and_their_margins_stay_inside(plan):
    seen = np.zeros((plan.scene.rows, plan.scene.columns), int)
    for tile in plan.tiles:
        seen[tile.core.relative_to(plan.scene).slices] += 1
        assert max(tile.core.rows, tile.core.columns) <= plan.tile
        assert tile.padded == tile.core.grown(plan.halo, within=plan.seen)
        assert tile.target == tile.core.relative_to(plan.scene).scaled(plan.scale)
    assert (seen == 1).all()


@given(plans)
@settings(deadline=None)
def test_spans_compute_every_usable_band_once_and_own_every_band_of_the_file(plan):
    last = plan.usable[-1] + 3  # the file may go on with unusable bands
    computed, owned = [], []
    for span in plan.spans:
        assert list(span.padded)[span.crop] == list(span.core)
        computed += span.core
        mine = range(last)[span.owned]
        owned += mine
        assert {plan.usable[i] for i in span.core} <= set(mine)
    assert computed == list(range(len(plan.usable)))
    assert owned == list(range(last))


@given(plans)
@settings(deadline=None)
def test_the_counted_work_is_the_work_of_the_tiles(plan):
    depths = [len(span.padded) for span in plan.spans]
    areas = [tile.padded.pixels for tile in plan.tiles]
    assert plan.voxels == sum(depths) * sum(areas)
    assert plan.largest == max(depths) * max(areas)
    assert plan.pixels(0) == max(tile.core.pixels for tile in plan.tiles)


@given(plans, st.integers(2, 300_000))
@settings(deadline=None)
def test_a_plan_fits_or_is_refused(plan, most):
    arguments = plan.scene, plan.scale, plan.usable, plan.halo, plan.band_halo, most, largest
    try:
        chosen = plan_tiles(*arguments, surroundings=plan.surroundings)
    except ResourceError as error:
        assert "`memory`" in str(error)  # noqa: PT017
        return
    assert chosen.largest <= most
    assert chosen.voxels >= len(plan.usable) * plan.scene.pixels


def test_a_scene_is_cut_into_even_tiles_and_a_halo_of_nothing_is_one():
    plan = plan_tiles(Window(0, 0, 1200, 700), 4, range(3), 0, 0, 1 << 40, largest, tile=1024)
    assert {(tile.core.rows, tile.core.columns) for tile in plan.tiles} == {(600, 700)}
    assert all(tile.padded == tile.core for tile in plan.tiles)


def test_a_network_that_looks_everywhere_is_given_the_whole_scene():
    scene = Window(0, 0, 20, 90)
    plan = plan_tiles(scene, 4, range(3), None, None, 1 << 40, largest, tile=30)
    assert [tile.padded for tile in plan.tiles] == [scene] * 3


def test_of_all_plans_that_fit_the_one_with_the_least_work_is_taken():
    chosen = plan_tiles(Window(0, 0, 100, 100), 4, range(40), 8, 4, 60_000, largest)
    sides, depths = range(8, 101), range(1, 41)
    others = [Plan(chosen.scene, 4, chosen.usable, 8, 4, side, depth) for side in sides for depth in depths]
    least = min(plan.voxels for plan in others if plan.largest <= 60_000)
    assert chosen.voxels <= 1.1 * least  # sides are tried about 12 % apart


def test_without_a_margin_tiles_are_as_large_as_is_good_for_progress():
    plan = plan_tiles(Window(0, 0, 1000, 1000), 4, range(100), 0, 0, 1 << 40, largest)
    assert (plan.tile, plan.depth, plan.count) == (250, 100, 16)
    tight = plan_tiles(Window(0, 0, 1000, 1000), 4, range(100), 0, 0, 100 * 130**2, largest)
    assert tight.tile > 100  # not more pieces than memory wants


def test_where_it_costs_little_a_scene_is_cut_although_it_would_fit():
    scene = Window(0, 0, 4000, 4000)
    assert 1 < plan_tiles(scene, 4, range(10), 8, 4, 1 << 60, largest).count <= 36
    assert plan_tiles(Window(0, 0, 100, 100), 4, range(10), 28, 4, 1 << 60, largest).count == 1


@given(plans)
@settings(deadline=None)
def test_tiles_are_counted_without_being_made(plan):
    assert plan.count == len(plan.tiles)


def test_the_memory_that_would_do_is_told():
    with pytest.raises(ResourceError, match=r"needs 2,560 bytes of memory .*, but only 2,559 are allowed") as met:
        plan_tiles(Window(0, 0, 64, 64), 4, range(10), 4, None, 2559, largest)
    assert "Use `memory` 1MB." in str(met.value)
    assert plan_tiles(Window(0, 0, 64, 64), 4, range(10), 4, None, 2560, largest).largest == 2560


@pytest.mark.parametrize(
    ("halo", "tile", "advised"),
    [
        (0, None, "Use `memory` 3MB."),
        (0, 20, "Use `memory` 11MB or a smaller `tile`."),
        (4, None, "Use `memory` 11MB. In upscale and uncertainty a smaller `halo` needs less but is less exact."),
        (None, None, "Use `memory` 164MB."),
    ],
)
def test_only_what_helps_against_too_little_memory_is_advised(halo, tile, advised):
    scene, heavy = Window(0, 0, 64, 64), lambda plan: 4000 * plan.largest
    with pytest.raises(ResourceError) as met:
        plan_tiles(scene, 4, range(10), halo, None, 1_000_000, heavy, tile)
    assert str(met.value).endswith(f"1,000,000 are allowed. {advised}")
    enough = int(advised.split()[2].split("MB")[0]) * 1_000_000
    assert plan_tiles(scene, 4, range(10), halo, None, enough, heavy, tile).largest * 4000 <= enough


def test_what_fits_whole_is_not_cut():
    plan = plan_tiles(Window(0, 0, 100, 80), 4, range(30), 26, 26, 100 * 80 * 30, largest)
    assert len(plan.tiles) == len(plan.spans) == 1


def test_four_hundred_bands_fit_in_the_memory_of_less():
    small = plan_tiles(Window(0, 0, 64, 64), 4, range(400), 4, 10, 64 * 64 * 60, largest)
    assert len(small.spans) > 1
    assert small.largest <= 64 * 64 * 60


def test_a_network_that_needs_the_whole_spectrum_gets_it():
    plan = plan_tiles(Window(0, 0, 64, 64), 4, range(100), 4, None, 32 * 32 * 100, largest)
    assert [len(span.padded) for span in plan.spans] == [100]
    with pytest.raises(ResourceError):
        plan_tiles(Window(0, 0, 64, 64), 4, range(100), 4, None, 99, largest)


@given(plans)
@settings(deadline=None)
def test_half_a_tile_and_the_other_half_are_the_tile(plan):
    tile = plan.tiles[-1]
    halves = tile.halves(plan.halo, plan.seen)
    assert sum(half.core.pixels for half in halves) == tile.core.pixels
    assert len(halves) == (1 if (tile.core.rows, tile.core.columns) == (1, 1) else 2)
    assert all(half.padded == half.core.grown(plan.halo, within=plan.seen) for half in halves)
    assert all(half.target == half.core.relative_to(plan.scene).scaled(plan.scale) for half in halves)


def test_a_tile_is_halved_across_its_longer_side():
    for rows, columns, half in ((9, 4, (5, 4)), (4, 9, (4, 5)), (6, 6, (3, 6))):
        scene = Window(0, 0, rows, columns)
        assert (first := Tile(scene, scene, 4).halves(1, scene)[0].core).rows == half[0]
        assert first.columns == half[1]
