"use strict";
// The pixel under the pointer is shown; a click, a tap or an arrow key makes it stay, and the address names it.
// Which map is shown is kept nowhere: a page always opens with the first.
const byId = id => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const {rows, columns, bands, step} = facts;  // of the spectra, every step-th pixel of the scene
const views = byId("views"), chart = byId("chart"), told = byId("told"), toldBand = byId("told-band");
const ends = [Math.min(...facts.places), Math.max(...facts.places)];
const BOX = {width: 960, height: 300, left: 76, right: 14, top: 12, bottom: 46};  // as wide as its place
const counted = facts.places.every((place, band) => place === band);  // the bands have numbers, not wavelengths
const ranks = facts.maps.map(() => null);  // the values of each map in ascending order, once it was shown
let bytes, map = 0, chosen, shown, across, up;

const number = value => Math.abs(value) >= 1000 ? String(Math.round(value)) : String(+value.toPrecision(4));
const clamp = (value, most) => Math.max(0, Math.min(most, value));

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function countBelow(value, ranked) {
  let first = 0, last = ranked.length;  // by halves: there may be millions
  while (first < last) {
    const middle = first + last >> 1;
    if (ranked[middle] < value) first = middle + 1; else last = middle;
  }
  return first;
}

function mapValue(row, column) {
  return new DataView(bytes.buffer).getFloat32(4 * ((map * rows + row) * columns + column), true);
}

function ranked() {
  if (!ranks[map]) {
    const pixels = Array.from({length: rows * columns}, (_, i) => mapValue(Math.floor(i / columns), i % columns));
    ranks[map] = {pixels, sorted: Float32Array.from(pixels.filter(Number.isFinite)).sort()};
  }
  return ranks[map];
}

function spectrum(row, column) {
  const pixels = rows * columns, values = bands * pixels, start = 4 * facts.maps.length * pixels;
  const code = (part, at) => bytes[start + 2 * part * values + at] | bytes[start + (2 * part + 1) * values + at] << 8;
  const input = inputSpectrum(row, column, start + 6 * values);
  return facts.places.map((x, band) => {
    const at = band * pixels + row * columns + column, middle = code(0, at), size = facts.size[band];
    if (!middle) return null;
    const mean = facts.lowest[band] + (middle - 1) * size;
    return {band, x, mean, low: mean - code(1, at) * size, high: mean + code(2, at) * size, input: input[band]};
  });
}

// That of the input's pixel around a place: of many finer ones it is the same, and the page holds it once.
function inputSpectrum(row, column, start) {
  const [high, wide] = [facts.input.rows, facts.input.columns].map(list => list.at(-1) + 1);
  const pixels = high * wide, place = facts.input.rows[row] * wide + facts.input.columns[column];
  return facts.places.map((_, band) => {
    const at = start + band * pixels + place, code = bytes[at] | bytes[at + bands * pixels] << 8;
    return code ? facts.lowest[band] + (code - 1) * facts.size[band] : null;
  });
}

// The chart.

// In a narrow window it has fewer labels instead of smaller ones.
function fit() {
  BOX.width = Math.max(320, chart.clientWidth);
  chart.setAttribute("viewBox", `0 0 ${BOX.width} ${BOX.height}`);
  byId("across").setAttribute("x", (BOX.left + BOX.width - BOX.right) / 2);
}

function axis(low, high, start, end, most, room) {
  const span = high - low || Math.max(Math.abs(high), 1) * .1;
  if (high === low) [low, high] = [low - span / 2, high + span / 2];
  [low, high] = [low - room * span, high + room * span];
  const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 2.5, 5, 10].map(factor => factor * unit).find(gap => gap >= rough * .999);
  const ticks = [];
  for (let count = Math.ceil(low / gap); count * gap <= high; count++) ticks.push(+(count * gap).toPrecision(12));
  return {ticks, place: value => start + (value - low) / (high - low) * (end - start)};
}

// A line is broken at bands without data, where bands are missing, and where a second detector starts over.
function runs(points) {
  const found = [[]];
  points.forEach((point, band) => {
    if (facts.breaks.includes(band) || !point) found.push([]);
    if (point) found.at(-1).push(point);
  });
  return found.filter(run => run.length);
}

function draw(points) {
  const known = points.filter(Boolean), {width, height, left, right, top, bottom} = BOX;
  const all = byId("same").checked ? facts.range : known.flatMap(p => [p.low, p.high, p.input ?? p.mean]);
  const low = Math.min(...all), high = Math.max(...all);
  across = axis(...ends, left, width - right, Math.floor(width / 60), .01);
  if (counted) across.ticks = across.ticks.filter(Number.isInteger);
  up = axis(known.length ? low : 0, known.length ? high : 1, height - bottom, top, 6, .05);
  const parts = [];
  for (const value of up.ticks) {
    const y = up.place(value).toFixed(1);
    parts.push(`<line class="grid" x1="${left}" x2="${width - right}" y1="${y}" y2="${y}"/>`,
      `<text x="${left - 8}" y="${+y + 4}" text-anchor="end">${value}</text>`);
  }
  for (const value of across.ticks)
    parts.push(`<text x="${across.place(value).toFixed(1)}" y="${height - bottom + 18}" text-anchor="middle">${value}</text>`);
  const at = (x, y) => `${across.place(x).toFixed(1)},${up.place(y).toFixed(1)}`;
  for (const run of runs(points)) {
    const edge = [...run.map(p => at(p.x, p.high)), ...run.map(p => at(p.x, p.low)).reverse()];
    if (facts.band) parts.push(`<polygon class="band" points="${edge.join(" ")}"/>`);
  }
  const line = (kind, run) => {
    parts.push(`<polyline class="${kind}" points="${run.map(p => at(p.x, p[kind])).join(" ")}"/>`);
    if (run.length > 1) return;
    const [x, y] = at(run[0].x, run[0][kind]).split(",");
    parts.push(`<circle class="${kind} dot" cx="${x}" cy="${y}" r="2.5"/>`);
  };
  for (const run of runs(points.map(p => p?.input == null ? null : p))) line("input", run);
  for (const run of runs(points)) line("mean", run);
  byId("drawing").innerHTML = parts.join("");
}

// The pixel.

function show(row, column) {
  shown = [row, column];
  const place = [row * step, column * step], points = spectrum(row, column), value = mapValue(row, column);
  for (const view of document.querySelectorAll(".view")) {
    const y = `${100 * (place[0] + .5) / facts.extent[0]}%`, x = `${100 * (place[1] + .5) / facts.extent[1]}%`;
    view.querySelector(".across").style.top = view.querySelector("b").style.top = y;
    view.querySelector(".down").style.left = view.querySelector("b").style.left = x;
  }
  draw(points);
  let words = `Row ${place[0]}, column ${place[1]}: `;
  if (Number.isFinite(value)) {
    const {sorted} = ranked(), below = countBelow(value, sorted) / sorted.length, {name, unit} = facts.maps[map];
    words += `${name} ${number(value)}${unit}, more than in ${Math.floor(1000 * below) / 10} % of the pixels`;
  } else words += "no data";
  told.textContent = words;
  chart.setAttribute("aria-label", `Spectrum with its band. ${words}`);
  toldBand.textContent = "";
  if (byId("numbers").open) list(points);
}

function list(points) {
  const cells = p => facts.band ? [p.x, p.mean, p.low, p.high, p.input] : [p.x, p.mean, p.input];
  byId("listed").innerHTML = points.filter(Boolean).map(
    p => `<tr>${cells(p).map(value => `<td>${value == null ? "" : number(value)}</td>`).join("")}</tr>`).join("");
}

function showMap(index) {
  map = index;
  for (const part of document.querySelectorAll("[data-map]")) part.hidden = Number(part.dataset.map) !== map;
  show(...shown);
}

function choose(row, column) {
  chosen = [clamp(row, rows - 1), clamp(column, columns - 1)];
  show(...chosen);
  history.replaceState(null, "", `#${chosen[0] * step},${chosen[1] * step}`);
}

function fromAddress() {
  const met = /^#(\d+),(\d+)$/.exec(location.hash);
  if (met) choose(...met.slice(1).map(place => Math.floor(place / step)));
  return Boolean(met);
}

function under(event) {
  const box = event.target.closest(".view").querySelector("img").getBoundingClientRect();
  const part = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
  const place = part.map((share, i) => Math.floor(share * facts.extent[i] / step));
  return [clamp(place[0], rows - 1), clamp(place[1], columns - 1)];
}

function nearest(event) {
  const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * BOX.width;
  const known = spectrum(...shown).filter(Boolean);
  if (!known.length) return;
  const away = p => Math.abs(across.place(p.x) - x);
  const p = known.reduce((best, other) => away(other) < away(best) ? other : best);
  const line = across.place(p.x).toFixed(1);
  byId("hair").innerHTML =
    `<line class="hair" x1="${line}" x2="${line}" y1="${BOX.top}" y2="${BOX.height - BOX.bottom}"/>`;
  const band = facts.band ? `; ${facts.band}: ${number(p.low)} to ${number(p.high)}` : "";
  const place = facts.nm ? `${+p.x.toFixed(1)} nm (band ${p.band})` : `Band ${p.band}`;
  const input = p.input == null ? "" : `; input: ${number(p.input)}`;
  toldBand.textContent = `${place}: ${number(p.mean)}${band}${input}`;
}

const MOVES = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};

function listen() {
  for (const view of document.querySelectorAll(".view")) {
    view.addEventListener("pointermove", event => show(...under(event)));
    view.addEventListener("pointerleave", () => show(...chosen));
    view.addEventListener("click", event => choose(...under(event)));
  }
  views.addEventListener("keydown", event => {
    const move = MOVES[event.key], far = event.shiftKey ? 10 : 1;
    if (!move || event.target.id === "map" || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    choose(chosen[0] + far * move[0], chosen[1] + far * move[1]);
  });
  const pick = byId("map");  // there where there are several maps
  if (pick) {
    pick.disabled = false;
    pick.addEventListener("change", () => showMap(pick.selectedIndex));
  }
  chart.addEventListener("pointermove", nearest);
  chart.addEventListener("pointerleave", () => { byId("hair").innerHTML = toldBand.textContent = ""; });
  byId("same").addEventListener("change", () => show(...shown));
  byId("numbers").addEventListener("toggle", () => show(...shown));
  addEventListener("hashchange", fromAddress);
  addEventListener("resize", () => { fit(); show(...shown); });
}

async function start() {
  if (!("DecompressionStream" in window)) {
    told.textContent = "The spectra need a newer browser: Chrome 80, Firefox 113, Safari 16.4 or later.";
    return;
  }
  bytes = await unpacked(byId("spectra").textContent);
  fit();
  listen();
  // Without a pixel in the address: the one to distrust most.
  const {pixels, sorted} = ranked(), most = pixels.indexOf(sorted.at(-1));
  if (!fromAddress()) choose(Math.floor(Math.max(most, 0) / columns), Math.max(most, 0) % columns);
  document.body.dataset.ready = "yes";
}

start();
