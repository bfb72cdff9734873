/* One unit of PDE-Net: features are compressed, then refined along the bands and across the pixels.

To refine is x += conv(relu(conv(x))). For training, what the gradients need is kept: winograd_gradients.c. */

#include "winograd.h"

typedef struct {
    const float *const *features;
    long count, depth;
    const float *squeeze, *const *spectral, *const *spatial;
    float *compressed, *along, *spectrally, *across, *x; /* after each step; `along` and `across` may be missing */
    long cubes, bands, pixels, strip, next;
    work strips, planes;
    float *memory;
} forward_task;

/* y = x + conv(relu(conv(x))); what is between goes to `hidden`. */
INLINE void refine(const int across, image x, image hidden, image y, const float *const weights[2], const work *w)
{
    long all = count_tiles(across, w), block = block_of(all, w->tiles);
    for (long first = 0; first < all; first += block) {
        long tiles = all - first < block ? all - first : block;
        transform_block(across, x, w, first, tiles);
        convolve_block(across, weights[0], hidden, hidden, hidden, POSITIVE, w, first, tiles);
    }
    for (long first = 0; first < all; first += block) {
        long tiles = all - first < block ? all - first : block;
        transform_block(across, hidden, w, first, tiles);
        convolve_block(across, weights[1], y, x, x, SUM, w, first, tiles);
    }
}

/* The features of the pixels from `start` on, side by side, times (count * depth, width); then ReLU. */
static void compress(const forward_task *task, long start, image x, const work *w)
{
    const long depth = task->depth, step = x.stride / w->width * depth; /* to the same pixels of the next band */
    const float *weights = task->squeeze;
    for (long i = 0; i < task->count; i++, weights += depth * w->width) {
        const float *from = task->features[i] + start * depth;
        for (long row = 0; row < w->rows; row++, from += step) {
            for (long k = 0; k < w->cols * depth && row + 1 < w->rows; k += 16)
                __builtin_prefetch(from + step + k, 0, 2);
            multiply(from, depth, weights, x.data + row * x.stride, w->cols, w->width, i > 0, i == task->count - 1);
        }
    }
}

/* Along the bands, a strip of pixels at a time: all its bands stay in the cache. */
static void do_strips(void *argument, long part)
{
    forward_task *task = argument;
    work w = share(&task->strips, task->memory + part * task->strips.floats, 1);
    const long each = (task->pixels + task->strip - 1) / task->strip;
    for (long i; (i = __atomic_fetch_add(&task->next, 1, __ATOMIC_RELAXED)) < task->cubes * each;) {
        const long col = i % each * task->strip, start = i / each * task->bands * task->pixels + col;
        const long at = start * w.width, step = task->pixels * w.width;
        w.cols = task->pixels - col < task->strip ? task->pixels - col : task->strip;
        image x = {task->compressed + at, step}, y = {task->spectrally + at, step};
        image hidden = task->along ? (image){task->along + at, step} : (image){w.hidden, w.cols * w.width};
        compress(task, start, x, &w);
        refine(1, x, hidden, y, task->spectral, &w);
    }
}

static void do_planes(void *argument, long part)
{
    forward_task *task = argument;
    work w = share(&task->planes, task->memory + part * task->planes.floats, 6);
    const long step = w.cols * w.width;
    for (long i; (i = __atomic_fetch_add(&task->next, 1, __ATOMIC_RELAXED)) < task->cubes * task->bands;) {
        const long at = i * task->pixels * w.width;
        image hidden = {task->across ? task->across + at : w.hidden, step};
        refine(6, (image){task->spectrally + at, step}, hidden, (image){task->x + at, step}, task->spatial, &w);
    }
}

/* One unit of the network, (cubes, bands, rows, cols, depth) of `count` features -> (cubes, bands, rows, cols, width).
   The weights of the convolutions are transformed, (frequencies, in, out). `kept`: where to put the features after
   compression, within and after the spectral step, and within the spatial step; or null. Returns 0, or 1 without
   memory. */
int unit(const float *const *features, long count, long depth, const float *squeeze, const float *const spectral[2],
         const float *const spatial[2], float *const *kept, float *x, long cubes, long bands, long rows, long cols,
         long width, long threads)
{
    forward_task task = {
        .features = features, .count = count, .depth = depth, .squeeze = squeeze, .spectral = spectral,
        .spatial = spatial, .compressed = kept ? kept[0] : x, .along = kept ? kept[1] : NULL,
        .spectrally = kept ? kept[2] : x, .across = kept ? kept[3] : NULL, .x = x,
        .cubes = cubes, .bands = bands, .pixels = rows * cols, .strip = STRIP,
        .strips = {.rows = bands, .cols = STRIP, .width = width}, .planes = {.rows = rows, .cols = cols, .width = width},
    };
    size_up(&task.strips, 1);
    size_up(&task.planes, 6);
    const long floats = task.strips.floats > task.planes.floats ? task.strips.floats : task.planes.floats;
    task.memory = aligned_alloc(64, threads * floats * sizeof(float));
    if (!task.memory)
        return 1;
    in_parallel(do_strips, &task, threads);
    task.next = 0;
    in_parallel(do_planes, &task, threads);
    free(task.memory);
    return 0;
}
