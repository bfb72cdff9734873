"""Cutting scenes: every pixel and band once, margins inside the scene, and no piece larger than allowed."""

from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdenet_cli import Window
from pdenet_cli.errors import ResourceError
from pdenet_cli.tiling import Plan, plan_tiles

plans = st.builds(
    lambda rows, columns, bands, skipped, halo, band_halo, tile, depth: Plan(
        Window(0, 0, rows, columns),
        4,
        tuple(b for b in range(bands) if b not in skipped) or (0,),
        halo,
        band_halo,
        tile,
        depth,
    ),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sets(st.integers(0, 19)),
    st.integers(0, 9),
    st.integers(0, 5),
    st.integers(1, 70),
    st.integers(1, 21),
)


largest = attrgetter("largest")  # a memory of one byte per voxel


@given(plans)
def test_tiles_cover_the_scene_once_and_their_margins_stay_inside(plan):
    seen = np.zeros((plan.scene.rows, plan.scene.columns), int)
    for tile in plan.tiles:
        seen[tile.core.slices] += 1
        assert max(tile.core.rows, tile.core.columns) <= plan.tile
        assert tile.padded == tile.core.grown(plan.halo, within=plan.scene)
    assert (seen == 1).all()


@given(plans)
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
def test_the_counted_work_is_the_work_of_the_tiles(plan):
    depths = [len(span.padded) for span in plan.spans]
    areas = [tile.padded.rows * tile.padded.columns for tile in plan.tiles]
    assert plan.voxels == sum(depths) * sum(areas)
    assert plan.largest == max(depths) * max(areas)
    cores = [tile.core.rows * tile.core.columns * len(span.core) for tile in plan.tiles for span in plan.spans]
    assert plan.largest_core == max(cores)


@given(plans, st.integers(2, 300_000))
def test_a_plan_fits_or_is_refused(plan, most):
    arguments = plan.scene, plan.scale, plan.usable, plan.halo, plan.band_halo, most, largest
    try:
        chosen = plan_tiles(*arguments)
    except ResourceError as error:
        assert "--memory" in str(error)  # noqa: PT017
        return
    assert chosen.largest <= most
    assert chosen.voxels >= len(plan.usable) * plan.scene.rows * plan.scene.columns


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
def test_half_a_tile_and_the_other_half_are_the_tile(plan):
    tile = plan.tiles[-1]
    halves = tile.halves(plan.halo, plan.scene)
    assert sum(half.core.rows * half.core.columns for half in halves) == tile.core.rows * tile.core.columns
    assert len(halves) == (1 if (tile.core.rows, tile.core.columns) == (1, 1) else 2)
