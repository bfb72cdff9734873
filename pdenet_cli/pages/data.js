"use strict";
// What the page holds: planes of codes for pictures and maps, and the spectra of the pixels of a grid.
const byId = id => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

// The bytes of a part, which may stand further down in the page than the reader of this has come.
async function part(number) {
  const id = `part-${number}`;
  const complete = () => byId(id) && (byId(id).nextElementSibling || document.readyState !== "loading");
  while (!complete()) await new Promise(resolve => setTimeout(resolve, 10));
  const text = atob(byId(id).textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Each code is foretold from those to its left, above and between; the bytes hold the differences.
function unpacked(bytes, planes, rows, columns) {
  const count = planes * rows * columns, codes = new Uint16Array(count);
  for (let i = 0; i < count; i++) {
    const column = i % columns, row = (i - column) / columns % rows;
    const left = column ? codes[i - 1] : 0, above = row ? codes[i - columns] : 0;
    const corner = row && column ? codes[i - columns - 1] : 0, folded = bytes[i] | bytes[i + count] << 8;
    const least = left < above ? left : above, most = left < above ? above : left;
    const guess = corner >= most ? least : corner <= least ? most : left + above - corner;
    codes[i] = guess + ((folded >>> 1) ^ -(folded & 1));
  }
  return codes;
}

// Every step-th pixel of a scene, from its first-th on.
class Grid {
  constructor({rows, columns, step, first}) { Object.assign(this, {rows, columns, step, first}); }

  // The one of its pixels that is nearest to a pixel of the scene, counted within the grid.
  nearest(row, column) {
    const at = (place, length) => clamp(Math.round((place - this.first) / this.step), 0, length - 1);
    return [at(row, this.rows), at(column, this.columns)];
  }

  // Where that is in the scene.
  pixel(row, column) {
    return this.nearest(row, column).map(place => this.first + this.step * place);
  }
}

class Planes extends Grid {
  static async of(about) {
    const planes = new Planes(about), {rows, columns, lowest} = about;
    Object.assign(planes, {about, codes: unpacked(await part(about.part), lowest.length, rows, columns)});
    return planes;
  }

  ofCode(code, plane = 0) {
    if (!code) return NaN;
    const value = this.about.lowest[plane] + this.about.size[plane] * (code - 1);
    return this.about.root ? value * value : value;
  }

  value(row, column, plane = 0) {
    const [down, across] = this.nearest(row, column);
    return this.ofCode(this.codes[(plane * this.rows + down) * this.columns + across], plane);
  }

  values(plane) {
    const count = this.rows * this.columns;
    return Float32Array.from(this.codes.subarray(plane * count, (plane + 1) * count), c => this.ofCode(c, plane));
  }
}

// value[band] = middle[band] + sum of the components times their basis spectra; without a basis, components are bands.
class Spectra extends Grid {
  static async of(about) {
    const spectra = new Spectra(about), {rows, columns, lowest} = about;
    Object.assign(spectra, {about, codes: unpacked(await part(about.part), lowest.length, rows, columns)});
    spectra.place = Array(facts.bands).fill(-1);  // of each band among those of the codes
    about.bands.forEach((band, i) => { spectra.place[band] = i; });
    return spectra;
  }

  component(k, at) {
    const code = this.codes[k * this.rows * this.columns + at];
    return code ? this.about.lowest[k] + this.about.size[k] * (code - 1) : NaN;
  }

  // All bands of the nearest pixel, NaN where there is nothing.
  spectrum(row, column) {
    const [down, across] = this.nearest(row, column), at = down * this.columns + across;
    const {lowest, middle, basis} = this.about, parts = lowest.map((_, k) => this.component(k, at));
    return this.place.map(i => {
      if (i < 0) return NaN;
      return basis ? parts.reduce((sum, value, k) => sum + value * basis[k][i], middle[i]) : parts[i];
    });
  }

  // One band of all pixels.
  values(band) {
    const count = this.rows * this.columns, i = this.place[band], {lowest, size, middle, basis} = this.about;
    const found = new Float32Array(count);
    if (i < 0) return found.fill(NaN);
    if (!basis) return found.map((_, at) => this.component(i, at));
    found.fill(middle[i]);
    for (let k = 0; k < lowest.length; k++) {
      const weight = basis[k][i], start = k * count;
      for (let at = 0; at < count; at++) {
        const code = this.codes[start + at];
        found[at] += code ? weight * (lowest[k] + size[k] * (code - 1)) : NaN;
      }
    }
    return found;
  }
}
