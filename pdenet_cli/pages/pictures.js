// Pictures in tiles: colours of three bands, the input enlarged by bicubic interpolation, and maps through a ramp.
const TILE = 256, NO_DATA = [205, 205, 205], HATCH = [150, 150, 150];
const BUDGET = 14;  // milliseconds of painting before a frame is shown

// A picture whose pixels are `step` pixels of the scene wide; `paint(row, column, rows, columns, data)` fills a part.
class Layer {
  constructor({rows, columns, step}, paint) {
    Object.assign(this, {rows, columns, step, paint, tiles: new Map()});
  }

  // A tile as a canvas; null if there was no time left to paint it.
  tile(down, across, until) {
    const key = `${down},${across}`;
    if (!this.tiles.has(key)) {
      if (performance.now() > until) return null;
      const row = down * TILE, column = across * TILE, canvas = document.createElement("canvas");
      canvas.width = Math.min(TILE, this.columns - column);
      canvas.height = Math.min(TILE, this.rows - row);
      const picture = new ImageData(canvas.width, canvas.height);
      this.paint(row, column, canvas.height, canvas.width, picture.data);
      canvas.getContext("2d").putImageData(picture, 0, 0);
      this.tiles.set(key, canvas);
    }
    return this.tiles.get(key);
  }
}

function put(data, at, row, column, colour) {
  const [red, green, blue] = colour ?? ((row + column) % 8 < 2 ? HATCH : NO_DATA);
  data[at] = red; data[at + 1] = green; data[at + 2] = blue; data[at + 3] = 255;
}

// Values of three bands, dark at `low`, bright at `high`.
function colourLayer(grid, bands, limits) {
  const shades = limits.map(([low, high]) => 255 / (high - low));
  return new Layer(grid, (row, column, rows, columns, data) => {
    for (let y = 0, at = 0; y < rows; y++) for (let x = 0; x < columns; x++, at += 4) {
      const i = (row + y) * grid.columns + column + x;
      const colour = bands.map((values, c) => (values[i] - limits[c][0]) * shades[c]);
      put(data, at, row + y, column + x, colour.some(Number.isNaN) ? null : colour);
    }
  });
}

// As MATLAB's imresize: from each of the four neighbours in a line, cubic convolution with a = -0.5.
function cubic(distance) {
  const x = Math.abs(distance);
  return x <= 1 ? 1.5 * x ** 3 - 2.5 * x ** 2 + 1 : x < 2 ? -.5 * x ** 3 + 2.5 * x ** 2 - 4 * x + 2 : 0;
}

// Where a fine row or column lies among the coarse ones: their numbers, mirrored at the edge, and their weights.
function taps(fine, scale, length) {
  const centre = (fine + .5) / scale - .5, first = Math.floor(centre) - 1;
  return [0, 1, 2, 3].map(i => {
    const at = first + i, mirrored = at < 0 ? -1 - at : at >= length ? 2 * length - 1 - at : at;
    return [clamp(mirrored, 0, length - 1), cubic(centre - at)];
  });
}

function bicubicLayer(grid, scale, bands, limits) {
  const fine = {rows: grid.rows * scale, columns: grid.columns * scale, step: grid.step / scale};
  const enlarged = (values, downs, acrosses) => {
    let sum = 0, weights = 0;
    for (const [row, down] of downs) for (const [column, across] of acrosses) {
      const value = values[row * grid.columns + column];
      if (Number.isNaN(value)) continue;
      sum += down * across * value;
      weights += down * across;
    }
    return sum / weights;
  };
  return new Layer(fine, (row, column, rows, columns, data) => {
    const places = Array.from({length: columns}, (_, x) => taps(column + x, scale, grid.columns));
    for (let y = 0, at = 0; y < rows; y++) {
      const downs = taps(row + y, scale, grid.rows), coarse = Math.floor((row + y) / scale) * grid.columns;
      for (let x = 0; x < columns; x++, at += 4) {
        const inside = coarse + Math.floor((column + x) / scale);
        const known = bands.every(values => !Number.isNaN(values[inside]));
        const colour = bands.map((values, c) =>
          255 * (enlarged(values, downs, places[x]) - limits[c][0]) / (limits[c][1] - limits[c][0]));
        put(data, at, row + y, column + x, known ? colour : null);
      }
    }
  });
}

// A map from 0 to `top` through a ramp of 256 colours.
function mapLayer(grid, values, top, ramp) {
  const colours = Array.from({length: 256}, (_, i) =>
    [0, 2, 4].map(at => parseInt(ramp.slice(6 * i + at, 6 * i + at + 2), 16)));
  return new Layer(grid, (row, column, rows, columns, data) => {
    for (let y = 0, at = 0; y < rows; y++) for (let x = 0; x < columns; x++, at += 4) {
      const value = values[(row + y) * grid.columns + column + x];
      const colour = Number.isNaN(value) ? null : colours[clamp(Math.round(255 * value / top), 0, 255)];
      put(data, at, row + y, column + x, colour);
    }
  });
}

// What of some values is drawn dark and bright: the 2nd and the 98th percentile.
function stretch(values) {
  const every = Math.ceil(values.length / 50000), known = [];
  for (let i = 0; i < values.length; i += every) if (!Number.isNaN(values[i])) known.push(values[i]);
  known.sort((one, other) => one - other);
  const at = share => known[Math.round(share * (known.length - 1))] ?? 0;
  return at(.98) > at(.02) ? [at(.02), at(.98)] : [at(.02), at(.02) + 1];
}

// The upper end of a map's colours: one value in 200 is above it.
function upperEnd(values) {
  const known = Float32Array.from(values.filter(Number.isFinite)).sort();
  return known[Math.floor(.995 * (known.length - 1))] || known.at(-1) || 1;
}
