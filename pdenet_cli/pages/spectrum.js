// The spectrum of a pixel with the band around it and that of the input around it, as SVG and as a table.
const chart = byId("chart"), bandReadout = byId("told-band");
const ends = [Math.min(...facts.places), Math.max(...facts.places)];
const BOX = {width: 960, height: 300, left: 76, right: 14, top: 12, bottom: 46};  // as wide as its place
const counted = facts.places.every((place, band) => place === band);  // the bands have numbers, not wavelengths
const known = value => value != null && !Number.isNaN(value);
let points = [], across, up;

const number = value => Math.abs(value) >= 1000 ? String(Math.round(value)) : String(+value.toPrecision(4));
const bandName = band => facts.nm ? `${+facts.places[band].toFixed(1)} nm (band ${band})` : `band ${band}`;

// In a narrow window it has fewer labels instead of smaller ones.
function fit() {
  BOX.width = Math.max(300, chart.clientWidth);
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
function runs(kind) {
  const found = [[]];
  points.forEach((point, band) => {
    if (facts.breaks.includes(band) || !known(point[kind])) found.push([]);
    if (known(point[kind])) found.at(-1).push(point);
  });
  return found.filter(run => run.length);
}

// `spectra`: lists of one value for each band, called mean, low, high and input.
function drawSpectrum(spectra, words) {
  points = facts.places.map((x, band) => ({x, band, ...Object.fromEntries(
    Object.entries(spectra).map(([kind, values]) => [kind, values[band]]))}));
  const {width, height, left, right, top, bottom} = BOX;
  const seen = points.flatMap(p => [p.mean, p.low, p.high, p.input]).filter(known);
  const [low, high] = byId("same").checked ? facts.range : [Math.min(...seen), Math.max(...seen)];
  across = axis(...ends, left, width - right, Math.floor(width / 60), .01);
  if (counted) across.ticks = across.ticks.filter(Number.isInteger);
  up = axis(seen.length ? low : 0, seen.length ? high : 1, height - bottom, top, 6, .05);
  const parts = [];
  for (const value of up.ticks) {
    const y = up.place(value).toFixed(1);
    parts.push(`<line class="grid" x1="${left}" x2="${width - right}" y1="${y}" y2="${y}"/>`,
      `<text x="${left - 8}" y="${+y + 4}" text-anchor="end">${value}</text>`);
  }
  for (const value of across.ticks) {
    const x = across.place(value).toFixed(1);
    parts.push(`<text x="${x}" y="${height - bottom + 18}" text-anchor="middle">${value}</text>`);
  }
  const at = (x, y) => `${across.place(x).toFixed(1)},${up.place(y).toFixed(1)}`;
  for (const run of runs("low")) {
    const edge = [...run.map(p => at(p.x, p.high)), ...run.map(p => at(p.x, p.low)).reverse()];
    parts.push(`<polygon class="band" points="${edge.join(" ")}"/>`);
  }
  for (const kind of ["input", "mean"]) for (const run of runs(kind)) {
    parts.push(`<polyline class="${kind}" points="${run.map(p => at(p.x, p[kind])).join(" ")}"/>`);
    if (run.length > 1) continue;
    const [x, y] = at(run[0].x, run[0][kind]).split(",");
    parts.push(`<circle class="${kind} dot" cx="${x}" cy="${y}" r="2.5"/>`);
  }
  byId("drawing").innerHTML = parts.join("");
  chart.setAttribute("aria-label", `Spectrum. ${words}`);
  if (byId("numbers").open) list();
}

function list() {
  const cells = p => facts.band ? [p.x, p.mean, p.low, p.high, p.input] : [p.x, p.mean, p.input];
  byId("listed").innerHTML = points.filter(p => known(p.mean)).map(
    p => `<tr>${cells(p).map(value => `<td>${known(value) ? number(value) : ""}</td>`).join("")}</tr>`).join("");
}

// The band nearest to a point of the chart.
function bandUnder(event) {
  const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * BOX.width;
  const away = p => Math.abs(across.place(p.x) - x), finite = points.filter(p => known(p.mean));
  return finite.length ? finite.reduce((best, point) => away(point) < away(best) ? point : best) : null;
}

function tellBand(event) {
  const p = bandUnder(event);
  if (!p) return;
  const x = across.place(p.x).toFixed(1);
  byId("hair").innerHTML =
    `<line class="hair" x1="${x}" x2="${x}" y1="${BOX.top}" y2="${BOX.height - BOX.bottom}"/>`;
  const band = known(p.low) ? `; ${facts.band}: ${number(p.low)} to ${number(p.high)}` : "";
  const input = known(p.input) ? `; input: ${number(p.input)}` : "";
  const name = bandName(p.band);
  bandReadout.textContent = `${name[0].toUpperCase()}${name.slice(1)}: ${number(p.mean)}${band}${input}`;
}
