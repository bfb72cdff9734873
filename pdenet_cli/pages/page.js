// The page: what is shown where, the chosen pixel, and the controls. The address names the chosen pixel.
const readout = byId("told"), {rows, columns, scale, maps} = facts;
const held = {};  // what has been unpacked: colours, input, mean, half, around, and the maps by number
const page = {
  chosen: [0, 0], shown: null, held: null, left: "bicubic", right: "result", blinking: false, flipped: false,
  map: 0, bands: null,  // null: true colours; else the bands that are red, green and blue
};
const layers = {};  // input, bicubic, result and map: lists from coarse to fine

// Pictures.

function setColours() {
  const {bands} = page, trueColours = !bands, wanted = bands ?? facts.rgb;
  const unpackedBands = source => trueColours ? [0, 1, 2].map(i => source.values(i)) : wanted.map(b => source.values(b));
  const limitsOf = values => trueColours ? facts.limits : values.map(stretch);
  const coarse = trueColours ? held.input : held.around, fine = trueColours ? held.colours : held.mean;
  if (coarse) {
    const values = unpackedBands(coarse), limits = limitsOf(values);
    const grid = {rows: coarse.rows, columns: coarse.columns, step: coarse.step * scale};
    layers.input = [colourLayer(grid, values, limits)];
    layers.bicubic = [bicubicLayer(grid, scale * coarse.step, values, limits)];
  }
  layers.result = [];
  if (trueColours && held.overview) {
    const whole = [0, 1, 2].map(i => held.overview.values(i));
    layers.result.push(colourLayer(held.overview, whole, facts.limits));
  }
  if (fine) {
    const values = unpackedBands(fine), limits = limitsOf(coarse ? unpackedBands(coarse) : values);
    layers.result.push(colourLayer(fine, values, limits));
  }
  redraw();
}

async function setMap(index) {
  page.map = index;
  const about = maps[index];
  for (const part of document.querySelectorAll("[data-map]")) part.hidden = Number(part.dataset.map) !== about.of;
  if (!about) return;
  held[index] ??= about.plane ? await Planes.of(about.plane)
    : about.spectra === "half" ? held.half : await Spectra.of(about.spectra);
  const source = held[index], perBand = Boolean(about.spectra);
  byId("band-choice").hidden = !perBand && byId("picture").value !== "one";
  const values = source.values(perBand ? Number(byId("band").value) : 0).map(value => (about.factor ?? 1) * value);
  about.top = perBand ? upperEnd(values) : about.top;
  about.values = values;
  about.sorted = Float32Array.from(values.filter(Number.isFinite)).sort();
  layers.map = [mapLayer(source, values, about.top, facts.ramps[about.counts ? "counts" : "errors"])];
  byId("top").textContent = `${number(about.top)} and more`;
  byId("half-top").textContent = number(about.top / 2);
  byId("map-unit").textContent = about.unit;
  byId("map-says").textContent = perBand ? `${about.says}: ${bandName(Number(byId("band").value))}` : about.says;
  byId("ramp").style.background = `linear-gradient(to right, ${rampStops(about.counts)})`;
  show(page.shown ?? page.chosen);
  redraw();
}

function rampStops(counts) {
  const ramp = facts.ramps[counts ? "counts" : "errors"];
  return Array.from({length: 17}, (_, i) => `#${ramp.slice(6 * (i ? 16 * i - 1 : 0)).slice(0, 6)}`).join(", ");
}

// The chosen pixel.

function ground(row, column) {
  if (!facts.transform) return "";
  const [x0, xc, xr, y0, yc, yr] = facts.transform, across = column + .5, down = row + .5;
  const x = x0 + xc * across + xr * down, y = y0 + yc * across + yr * down;
  if (facts.geographic) {
    return ` (${Math.abs(y).toFixed(6)}° ${y < 0 ? "S" : "N"}, ${Math.abs(x).toFixed(6)}° ${x < 0 ? "W" : "E"})`;
  }
  const digits = clamp(Math.ceil(-Math.log10(Math.hypot(xc, yc))) + 1, 0, 6);
  return ` (x ${x.toFixed(digits)}, y ${y.toFixed(digits)}${facts.crs ? `, ${facts.crs}` : ""})`;
}

function countBelow(value, sorted) {
  let first = 0, last = sorted.length;  // by halves: there may be millions
  while (first < last) {
    const middle = first + last >> 1;
    if (sorted[middle] < value) first = middle + 1; else last = middle;
  }
  return first;
}

function mapWords(row, column) {
  const about = maps[page.map], source = held[page.map];
  if (!about?.values) return "";
  const [down, across] = source.nearest(row, column), value = about.values[down * source.columns + across];
  if (Number.isNaN(value)) return ": no data";
  const rank = Math.floor(1000 * countBelow(value, about.sorted) / about.sorted.length) / 10;
  return `: ${about.name} ${number(value)}${about.sign}, more than in ${rank} % of the pixels`;
}

function show([row, column]) {
  page.shown = [row, column];
  let words = `Row ${row}, column ${column}${ground(row, column)}${mapWords(row, column)}`;
  page.held = null;
  if (held.mean) {
    const pixel = held.mean.pixel(row, column);
    if (pixel[0] !== row || pixel[1] !== column) {
      page.held = pixel;
      words += `. The spectrum is of row ${pixel[0]}, column ${pixel[1]} (blue frame), the nearest held here`;
    }
    const [r, c] = pixel, mean = held.mean.spectrum(r, c), half = held.half?.spectrum(r, c);
    const input = held.around?.spectrum(Math.floor(r / scale), Math.floor(c / scale)) ?? mean.map(() => NaN);
    drawSpectrum({mean, input, low: mean.map((v, i) => half ? v - half[i] : NaN),
      high: mean.map((v, i) => half ? v + half[i] : NaN)}, words);
  }
  readout.textContent = words;
  redraw();
}

// Where the pointer is; null: it has left, and the chosen pixel is shown again.
page.point = where => {
  if (where && (where[0] < 0 || where[1] < 0 || where[0] >= rows || where[1] >= columns)) where = null;
  show(where ? where.map(Math.floor) : page.chosen);
};

page.choose = (row, column) => {
  page.chosen = [clamp(Math.floor(row), 0, rows - 1), clamp(Math.floor(column), 0, columns - 1)];
  history.replaceState(null, "", `#${page.chosen.join(",")}`);
  show(page.chosen);
};

function reveal([row, column]) {
  const [width, height] = views[0].size, {zoom} = place;
  const away = (at, middle, shown) => Math.abs(at + .5 - middle) > shown / 2 ? at + .5 - middle : 0;
  moveBy(away(row, place.row, height / zoom), away(column, place.column, width / zoom));
}

function fromAddress() {
  const numbers = /^#(\d+),(\d+)$/.exec(location.hash);
  if (numbers) page.choose(Number(numbers[1]), Number(numbers[2]));
  return Boolean(numbers);
}

// Controls.

const colourLists = () => {
  if (page.blinking) return [layers[page.flipped ? page.right : page.left] ?? []];
  return page.left === page.right ? [layers[page.left] ?? []] : [layers[page.left] ?? [], layers[page.right] ?? []];
};

function tag() {
  const names = {input: "input", bicubic: "bicubic", result: "result"}, {left, right, blinking, flipped} = page;
  byId("tag-left").textContent = blinking ? names[flipped ? right : left] : names[left];
  byId("tag-right").textContent = blinking || left === right ? "" : names[right];
  byId("divider").hidden = blinking || left === right;
  byId("divider").style.left = `${100 * views[0].divider}%`;
  byId("divider").setAttribute("aria-valuenow", Math.round(100 * views[0].divider));
  byId("blink").setAttribute("aria-pressed", blinking);
  redraw();
}

function divide(share) { views[0].divider = clamp(share, 0, 1); tag(); }

let clock = null;
function blink(on) {
  page.blinking = on;
  clearInterval(clock);
  if (on) clock = setInterval(() => { page.flipped = !page.flipped; tag(); }, 700);
  tag();
}

async function pickPicture() {
  const kind = byId("picture").value, band = Number(byId("band").value);
  byId("three").hidden = kind !== "three";
  byId("band-choice").hidden = kind !== "one" && !maps[page.map]?.spectra;
  byId("band-name").textContent = bandName(band);
  page.bands = kind === "true" ? null : kind === "one" ? [band, band, band]
    : ["red", "green", "blue"].map(id => Number(byId(id).value));
  setColours();
  if (maps[page.map]?.spectra) await setMap(page.map);
}

const MOVES = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
const ACTS = {"+": () => zoomBy(2, page.chosen), "=": () => zoomBy(2, page.chosen), "-": () => zoomBy(.5, page.chosen),
  "0": showAll, b: () => blink(!page.blinking), "[": () => divide(views[0].divider - .05),
  "]": () => divide(views[0].divider + .05)};

function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select, input, summary")) return;
  const move = MOVES[event.key], far = event.shiftKey ? 10 : 1;
  if (event.target.id === "divider" && move && move[1]) divide(views[0].divider + .02 * far * move[1]);
  else if (event.target.closest("#views") && move) {
    page.choose(page.chosen[0] + far * move[0], page.chosen[1] + far * move[1]);
    reveal(page.chosen);
  } else if (ACTS[event.key]) ACTS[event.key]();
  else return;
  event.preventDefault();
}

function listen() {
  document.addEventListener("keydown", key);
  for (const side of ["left", "right"]) byId(side).addEventListener("change", () => {
    page[side] = byId(side).value;
    tag();
  });
  const divider = byId("divider");
  divider.addEventListener("pointerdown", event => divider.setPointerCapture(event.pointerId));
  divider.addEventListener("pointermove", event => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    const box = views[0].canvas.getBoundingClientRect();
    divide((event.clientX - box.left) / box.width);
  });
  byId("blink").addEventListener("click", () => blink(!page.blinking));
  for (const [id, key] of [["nearer", "+"], ["farther", "-"], ["whole", "0"]])
    byId(id).addEventListener("click", ACTS[key]);
  byId("single").addEventListener("click", () => {
    Object.assign(place, {row: page.chosen[0] + .5, column: page.chosen[1] + .5});
    moveBy(0, 0, 16);
  });
  byId("map")?.addEventListener("change", () => setMap(Number(byId("map").value)));
  for (const id of ["picture", "band", "red", "green", "blue"]) byId(id).addEventListener("input", pickPicture);
  chart.addEventListener("pointermove", tellBand);
  chart.addEventListener("pointerleave", () => { byId("hair").innerHTML = bandReadout.textContent = ""; });
  chart.addEventListener("click", event => {
    const point = bandUnder(event);
    if (point) { byId("band").value = point.band; pickPicture(); }
  });
  byId("same").addEventListener("change", () => show(page.shown ?? page.chosen));
  byId("numbers").addEventListener("toggle", () => show(page.shown ?? page.chosen));
  addEventListener("hashchange", fromAddress);
  addEventListener("resize", () => { fit(); moveBy(0, 0, Math.max(place.zoom, Math.min(fitting(), 1))); show(page.shown ?? page.chosen); });
}

async function start() {
  if (!("DecompressionStream" in window)) {
    readout.textContent = "The pictures need a newer browser: Chrome 80, Firefox 113, Safari 16.4 or later.";
    return;
  }
  new View(byId("colours"), colourLists);
  if (byId("trust")) new View(byId("trust"), () => [layers.map ?? []]);
  fit();
  showAll();
  if (facts.overview) {
    held.overview = await Planes.of(facts.overview);
    first();
  }
  held.input = await Planes.of(facts.input);
  held.colours = await Planes.of(facts.colours);
  first();
  if (maps.length) await setMap(0);
  held.mean = await Spectra.of(facts.mean);
  if (facts.half) held.half = await Spectra.of(facts.half);
  held.around = await Spectra.of(facts.around);
  listen();
  tag();
  for (const control of document.querySelectorAll("#views [disabled], .tools [disabled]")) control.disabled = false;
  if (!fromAddress()) page.choose(...mostDoubtful());
  document.body.dataset.ready = "yes";
}

// Notes when there was something to see.
function first() {
  setColours();
  document.body.dataset.first ??= Math.round(performance.now());
}

// Where to begin without a pixel in the address: where the first map is largest, else the middle.
function mostDoubtful() {
  const about = maps[0];
  if (!about?.sorted.length) return [rows >> 1, columns >> 1];
  const at = about.values.indexOf(about.sorted.at(-1)), source = held[0];
  return source.pixel(...[Math.floor(at / source.columns), at % source.columns].map(i => source.first + i * source.step));
}

start();
