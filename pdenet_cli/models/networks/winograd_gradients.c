/* The gradients of one unit of PDE-Net, from its output back to its features.

The gradient of a convolution's input is a convolution with flipped weights, their inputs and outputs exchanged. That of
its weights is, in Winograd's frequencies, the product of the transformed inputs and the transformed gradients of the
outputs, summed over all tiles. */

#include "winograd.h"

enum { GATHERED = 4 }; /* rows of a sum of outer products that are in registers at once */

typedef struct {
    const float *const *features;
    float *const *to; /* gradients of the features */
    long count, depth, add;
    const float *spread, *const *spectral, *const *spatial;     /* flipped and exchanged */
    const float *compressed, *along, *spectrally, *across;      /* kept by the unit */
    float *dx;                                                  /* the gradient of the output; overwritten */
    float *dsqueeze, *const *dspectral, *const *dspatial;
    long cubes, bands, pixels, strip, parts;
    work strips, planes;
    float *memory, *sums; /* of each part: its work, and its sums for the gradients of weights */
    long each;            /* floats in the sums of a part */
} backward_task;

/* The transpose of `backward`: four gradients of outputs to six frequencies. */
INLINE void spread_outputs(const vec *g, vec *f)
{
    vec even = g[0] + 0.5f * g[2], odd = 0.70710678f * (g[1] + 0.5f * g[3]);
    vec even2 = g[0] + 2.0f * g[2], odd2 = 1.41421356f * (g[1] + 2.0f * g[3]);
    f[0] = g[0];
    f[1] = even + odd;
    f[2] = even - odd;
    f[3] = even2 + odd2;
    f[4] = even2 - odd2;
    f[5] = g[3];
}

INLINE void transform_gradients(const int across, image y, const work *w, long row, long col, float *to)
{
    const int kept = across > 1 ? KEPT : 1;
    float *at[KEPT * KEPT];
    vec part[TAPS * KEPT], f[TAPS];
    locate(y, w, row, col, KEPT, kept, w->zero, at);
    for (long c = 0; c < w->width; c += LANES) {
        for (int j = 0; j < kept; j++) {
            vec g[KEPT];
            UNROLL for (int i = 0; i < KEPT; i++) g[i] = LOAD(at[i * kept + j] + c);
            spread_outputs(g, f);
            UNROLL for (int i = 0; i < TAPS; i++) part[i * kept + j] = f[i];
        }
        for (int i = 0; i < TAPS; i++) {
            if (across > 1)
                spread_outputs(part + i * kept, f);
            else
                f[0] = part[i];
            UNROLL for (int j = 0; j < across; j++) STORE(to + (i * across + j) * spacing(w) + c, f[j]);
        }
    }
}

/* to (depth, width) += the sum over rows and cols of the outer products of a's and b's pixels. */
INLINE void gather_columns(const int vectors, image a, long depth, image b, long width, long rows, long cols, float *to)
{
    for (long column = 0; column < width; column += vectors * LANES)
        for (long k = 0; k < depth; k += GATHERED) {
            vec sum[GATHERED][MOST];
            UNROLL for (int i = 0; i < GATHERED; i++)
                UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = LOAD(to + (k + i) * width + column + v * LANES);
            for (long row = 0; row < rows; row++) {
                const float *p = a.data + row * a.stride + k, *q = b.data + row * b.stride + column;
                for (long t = 0; t < cols; t++, p += depth, q += width)
                    UNROLL for (int i = 0; i < GATHERED; i++)
                        UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += p[i] * LOAD(q + v * LANES);
            }
            UNROLL for (int i = 0; i < GATHERED; i++)
                UNROLL for (int v = 0; v < vectors; v++) STORE(to + (k + i) * width + column + v * LANES, sum[i][v]);
        }
}

static void gather(image a, long depth, image b, long width, long rows, long cols, float *to)
{
    if (width % (MOST * LANES) == 0)
        gather_columns(MOST, a, depth, b, width, rows, cols, to);
    else if (width % (2 * LANES) == 0)
        gather_columns(2, a, depth, b, width, rows, cols, to);
    else
        gather_columns(1, a, depth, b, width, rows, cols, to);
}

/* Of y = conv(x): adds to the frequencies of the weights' gradients, and makes that of x, gated or not. */
INLINE void revert(const int across, image x, image dy, const float *flipped, float *sums, image dx, image base, image gate,
                   const finish how, const work *w)
{
    const int kept = across > 1 ? KEPT : 1;
    const long wide = (w->cols + kept - 1) / kept, all = count_tiles(across, w), block = block_of(all, w->tiles);
    for (long first = 0; first < all; first += block) {
        const long tiles = all - first < block ? all - first : block;
        transform_block(across, x, w, first, tiles);
        for (long t = 0; t < tiles; t++)
            transform_gradients(across, dy, w, (first + t) / wide * KEPT, (first + t) % wide * kept,
                                w->outputs + t * w->width);
        for (int f = 0; f < TAPS * across; f++)
            gather((image){w->inputs + f * spacing(w), 0}, w->width, (image){w->outputs + f * spacing(w), 0}, w->width, 1,
                   tiles, sums + f * w->width * w->width);
        transform_block(across, dy, w, first, tiles);
        convolve_block(across, flipped, dx, base, gate, how, w, first, tiles);
    }
}

/* Of x + conv(relu(conv(x))), in place: from the gradient of the sum to that of x. */
INLINE void unrefine(const int across, image x, image hidden, image dx, const float *const flipped[2], float *sums,
                     const finish last, const work *w)
{
    image between = {w->hidden, w->cols * w->width};
    const long size = TAPS * across * w->width * w->width;
    revert(across, hidden, dx, flipped[1], sums + size, between, between, hidden, GATED, w);
    revert(across, x, between, flipped[0], sums, dx, dx, x, last, w);
}

static image at(const float *data, long offset, long stride) { return (image){(float *)data + offset, stride}; }

static void undo_planes(void *argument, long part)
{
    backward_task *task = argument;
    work w = share(&task->planes, task->memory + part * task->planes.floats, 6);
    const long step = w.cols * w.width, all = task->cubes * task->bands;
    float *sums = task->sums + part * task->each;
    memset(sums, 0, 2 * TAPS * TAPS * w.width * w.width * sizeof(float));
    for (long i = part * all / task->parts; i < (part + 1) * all / task->parts; i++) {
        const long from = i * task->pixels * w.width;
        unrefine(6, at(task->spectrally, from, step), at(task->across, from, step), at(task->dx, from, step), task->spatial,
                 sums, SUM, &w);
    }
}

/* The gradients of the features of a strip of pixels from `start` on, and of the weights that compressed them. */
static void spread_features(const backward_task *task, long start, image dx, float *sums, const work *w)
{
    const long depth = task->depth, step = task->pixels * depth;
    for (long i = 0; i < task->count; i++) {
        gather(at(task->features[i], start * depth, step), depth, dx, w->width, w->rows, w->cols,
               sums + i * depth * w->width);
        for (long row = 0; row < w->rows; row++)
            multiply(dx.data + row * dx.stride, w->width, task->spread + i * depth * w->width,
                     task->to[i] + start * depth + row * step, w->cols, depth, task->add, 0);
    }
}

static void undo_strips(void *argument, long part)
{
    backward_task *task = argument;
    work w = share(&task->strips, task->memory + part * task->strips.floats, 1);
    const long each = (task->pixels + task->strip - 1) / task->strip, all = task->cubes * each;
    const long square = w.width * w.width, step = task->pixels * w.width;
    float *sums = task->sums + part * task->each + 2 * TAPS * TAPS * square;
    memset(sums, 0, (2 * TAPS * square + task->count * task->depth * w.width) * sizeof(float));
    for (long i = part * all / task->parts; i < (part + 1) * all / task->parts; i++) {
        const long col = i % each * task->strip, start = i / each * task->bands * task->pixels + col;
        const long from = start * w.width;
        w.cols = task->pixels - col < task->strip ? task->pixels - col : task->strip;
        image dx = at(task->dx, from, step);
        unrefine(1, at(task->compressed, from, step), at(task->along, from, step), dx, task->spectral, sums, GATED_SUM,
                 &w);
        spread_features(task, start, dx, sums + 2 * TAPS * square, &w);
    }
}

/* The transpose of the weights' transform along one axis: six frequencies, `step` apart, to three taps. */
INLINE void to_taps(const vec *f, vec *taps)
{
    const float third = 1.0f / 3.0f;
    vec even = f[1] + f[2], odd = f[1] - f[2], even2 = f[3] + f[4], odd2 = f[3] - f[4];
    taps[0] = f[0] - 2 * third * even + 0.5f * third * even2;
    taps[1] = 0.70710678f * third * (odd2 - 2 * odd);
    taps[2] = third * (even2 - even) + f[5];
}

/* The sum of all parts' frequencies, as taps (3 or 9, in, out). */
static void finish_weights(const backward_task *task, const int across, long offset, float *taps)
{
    const long square = task->planes.width * task->planes.width;
    for (long c = 0; c < square; c += LANES) {
        vec part[3 * TAPS], f[TAPS], out[3];
        for (int j = 0; j < across; j++) {
            for (int i = 0; i < TAPS; i++) {
                const float *p = task->sums + offset + (i * across + j) * square + c;
                f[i] = LOAD(p);
                for (long k = 1; k < task->parts; k++)
                    f[i] += LOAD(p + k * task->each);
            }
            to_taps(f, out);
            for (int i = 0; i < 3; i++)
                part[i * across + j] = out[i];
        }
        for (int i = 0; i < 3; i++)
            if (across > 1) {
                to_taps(part + i * across, out);
                for (int j = 0; j < 3; j++)
                    STORE(taps + (i * 3 + j) * square + c, out[j]);
            } else
                STORE(taps + i * square + c, part[i]);
    }
}

static void finish_gradients(const backward_task *task)
{
    const long square = task->planes.width * task->planes.width, spectral = 2 * TAPS * TAPS * square;
    const long squeeze = spectral + 2 * TAPS * square;
    for (int i = 0; i < 2; i++) {
        finish_weights(task, 6, i * TAPS * TAPS * square, task->dspatial[i]);
        finish_weights(task, 1, spectral + i * TAPS * square, task->dspectral[i]);
    }
    for (long c = 0; c < task->count * task->depth * task->planes.width; c++) {
        float sum = task->sums[squeeze + c];
        for (long k = 1; k < task->parts; k++)
            sum += task->sums[k * task->each + squeeze + c];
        task->dsqueeze[c] = sum;
    }
}

/* From `dx`, the gradient of a unit's output, to those of its features (added to what is in `to`, with `add`) and of its
   weights: (count * depth, width), (3, in, out), (9, in, out). `spread` is (count, width, depth); the other weights are
   flipped, exchanged and transformed. Depth and width are multiples of 16. Returns 0, or 1 without memory. */
int unit_gradients(const float *const *features, float *const *to, long count, long depth, long add, const float *spread,
                   const float *const spectral[2], const float *const spatial[2], const float *const kept[4], float *dx,
                   float *dsqueeze, float *const dspectral[2], float *const dspatial[2], long cubes, long bands, long rows,
                   long cols, long width, long threads)
{
    backward_task task = {
        .features = features, .to = to, .count = count, .depth = depth, .add = add, .spread = spread,
        .spectral = spectral, .spatial = spatial, .compressed = kept[0], .along = kept[1], .spectrally = kept[2],
        .across = kept[3], .dx = dx, .dsqueeze = dsqueeze, .dspectral = dspectral, .dspatial = dspatial,
        .cubes = cubes, .bands = bands, .pixels = rows * cols, .strip = STRIP, .parts = threads,
        .strips = {.rows = bands, .cols = STRIP, .width = width}, .planes = {.rows = rows, .cols = cols, .width = width},
        .each = 2 * TAPS * (TAPS + 1) * width * width + count * depth * width,
    };
    size_up(&task.strips, 1);
    size_up(&task.planes, 6);
    const long floats = task.strips.floats > task.planes.floats ? task.strips.floats : task.planes.floats;
    task.memory = aligned_alloc(64, threads * (floats + task.each) * sizeof(float));
    if (!task.memory)
        return 1;
    task.sums = task.memory + threads * floats;
    in_parallel(undo_planes, &task, threads);
    in_parallel(undo_strips, &task, threads);
    finish_gradients(&task);
    free(task.memory);
    return 0;
}
